//! Codes and texts: what a call in the wrong state answers is what the stock shim answers.
//!
//! One walk through a container's states asks every verb in each of them. It is done on both shims and
//! compared line by line; where ours differs on purpose the reason stands in [`DIFFERENT`].

use std::time::Duration;

use a3sbox_e2e::{Api, Case, Node, Shim, TaskIo, Version};
use anyhow::{Context, Result, ensure};
use containerd_client::tonic::Status;
use serde_json::{Value, json};

use crate::lifecycle::created;

const EXIT_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::full(
            "answers::codes_and_texts_are_the_stock_shims",
            codes_and_texts,
        )
        .ours_alone(),
    ]
}

/// Asked, and how ours begins. A size for what has no terminal is the caller's mistake, which stock passes
/// over; what is malformed has the code that says so.
const DIFFERENT: [(&str, &str); 9] = [
    ("created: resize", NO_TERMINAL),
    ("running: resize", NO_TERMINAL),
    ("running: resize of exec early", NO_TERMINAL),
    ("paused: resize", NO_TERMINAL),
    ("stopped: resize of exec last", NO_TERMINAL),
    (
        "running: update of what is no resource",
        "InvalidArgument: ",
    ),
    ("running: add of exec none", "InvalidArgument: "),
    ("running: kill 99", "InvalidArgument: invalid signal 99"),
    // As of containerd 1.7; the shim of 1.6 leaves it to runc.
    (
        "stopped: start of exec last",
        "FailedPrecondition: container ID init process is not running",
    ),
];
const NO_TERMINAL: &str = "FailedPrecondition: cannot resize a process without a terminal";

fn codes_and_texts(node: &Node<'_>) -> Result<()> {
    let on = |shim| walk(&Node { shim, ..*node });
    let (stock, ours) = (on(Shim::Stock)?, on(Shim::Ours)?);
    ensure!(
        stock.len() == ours.len(),
        "{} answers, {} from stock",
        ours.len(),
        stock.len()
    );
    let different: Vec<String> = stock
        .iter()
        .zip(&ours)
        .filter(|((asked, stock), (_, ours))| {
            let known = DIFFERENT.iter().find(|(known, _)| asked == known);
            known.map_or(stock != ours, |(_, begin)| !ours.starts_with(begin))
        })
        .map(|((asked, stock), (_, ours))| format!("{asked}\n  ours:  {ours}\n  stock: {stock}"))
        .collect();
    ensure!(
        different.is_empty(),
        "{} of {} answers differ\n{}",
        different.len(),
        ours.len(),
        different.join("\n")
    );
    Ok(())
}

/// What was asked, and the answer as one line.
type Answers = Vec<(String, String)>;

/// Asks and keeps the answers, with the container's id taken out of them.
struct Walker<'a> {
    api: Api,
    id: &'a str,
    state: &'static str,
    answers: Answers,
}

impl Walker<'_> {
    fn keep<T: std::fmt::Debug>(&mut self, asked: &str, answer: Result<T, Status>) {
        let line = match answer {
            Ok(value) => format!("{value:?}"),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        self.answers.push((
            format!("{}: {asked}", self.state),
            line.replace(self.id, "ID"),
        ));
    }

    /// The verbs on the container.
    fn container(&mut self) {
        let (api, id) = (self.api.clone(), self.id);
        self.keep("start", api.start(id, "").map(drop));
        self.keep("delete", api.delete(id).map(drop));
        self.keep("resume", api.resume(id));
        self.keep("resize", api.resize(id, "", 80, 24));
        self.keep("close stdin", api.close_stdin(id, ""));
        self.keep("update", api.update(id, &json!({"pids": {"limit": 100}})));
        self.keep("update of nothing", api.update(id, &json!({})));
        self.keep("update of what is no resource", api.update(id, &json!([])));
        self.keep("kill 0", api.kill(id, "", 0, false));
        self.keep("kill WINCH", api.kill(id, "", 28, false));
        self.keep("kill WINCH of all", api.kill(id, "", 28, true));
        self.keep("kill 99", api.kill(id, "", 99, false));
        let state = |exec: &str| api.state(id, exec).map(|p| (p.status, p.exit_status));
        self.keep("state", state(""));
        let metrics = api.metrics(id).map(|any| any.type_url);
        self.keep("metrics", metrics.map_err(|s| Status::new(s.code(), "")));
    }

    /// The verbs on one exec.
    fn exec(&mut self, exec: &str) {
        let (api, id) = (self.api.clone(), self.id);
        let asked = |verb: &str| format!("{verb} of exec {exec}");
        let state = api.state(id, exec).map(|p| (p.status, p.exit_status));
        self.keep(&asked("state"), state);
        self.keep(&asked("resize"), api.resize(id, exec, 80, 24));
        self.keep(&asked("close stdin"), api.close_stdin(id, exec));
        self.keep(&asked("kill WINCH"), api.kill(id, exec, 28, false));
        self.keep(&asked("kill all"), api.kill(id, exec, 28, true));
        if !self.state.ends_with("ended") {
            self.keep(&asked("start"), api.start(id, exec).map(drop));
        }
        self.keep(&asked("delete"), api.delete_exec(id, exec).map(deleted));
    }

    fn add(&mut self, exec: &str, process: &Value) {
        let answer = self.api.exec(self.id, exec, process, &TaskIo::default());
        self.keep(&format!("add of exec {exec}"), answer);
    }

    /// Waits for an exit of which nothing is compared.
    fn ended(&self, exec: &str) -> Result<()> {
        self.api
            .wait(self.id, exec, EXIT_LIMIT)
            .with_context(|| format!("wait of {exec:?}"))?;
        Ok(())
    }
}

fn deleted(answer: containerd_client::services::v1::DeleteResponse) -> (u32, bool) {
    (answer.exit_status, answer.pid > 0)
}

fn process(args: &[&str]) -> Value {
    json!({"args": args, "cwd": "/", "env": ["PATH=/bin:/usr/bin"], "user": {"uid": 0, "gid": 0}})
}

fn walk(node: &Node<'_>) -> Result<Answers> {
    let (api, id, _guard) = created(node, "answers", &["sleep", "1000"])?;
    let mut walker = Walker {
        api: api.clone(),
        id: &id,
        state: "created",
        answers: Vec::new(),
    };
    let sleep = process(&["sleep", "1000"]);

    walker.keep("create", api.create(&id, &TaskIo::default()).map(drop));
    walker.keep("pause", api.pause(&id));
    walker.keep("resume", api.resume(&id));
    walker.keep("resize", api.resize(&id, "", 80, 24));
    walker.keep("checkpoint", checkpoint(node, &api, &id));
    walker.keep("update", api.update(&id, &json!({"pids": {"limit": 100}})));
    walker.exec("ghost");
    walker.add("early", &sleep);
    walker.add("early", &sleep);

    walker.keep("start", api.start(&id, "").map(drop));
    walker.state = "running";
    walker.container();
    walker.exec("ghost");
    walker.exec("early");
    walker.add("", &sleep);
    walker.add("odd", &json!({"args": [], "cwd": "/"}));
    walker.add("none", &json!("text"));
    let wait = |exec: &str| {
        api.wait(&id, exec, Duration::from_secs(2))
            .map(|exit| exit.exit_status)
    };
    walker.keep("wait of exec ghost", wait("ghost"));
    walker.add("short", &process(&["true"]));
    walker.keep("start of exec short", api.start(&id, "short").map(drop));
    walker.ended("short")?;
    walker.keep(
        "state of exec early",
        api.state(&id, "early").map(|p| p.status),
    );
    api.kill(&id, "early", 9, false)?;
    walker.ended("early")?;
    walker.state = "running, exec ended";
    walker.exec("early");
    walker.exec("short");
    walker.exec("short");
    walker.state = "paused";
    walker.add("kept", &sleep);
    walker.keep("pause", api.pause(&id));
    walker.keep("pause again", api.pause(&id));
    walker.add("late", &sleep);
    walker.keep("start", api.start(&id, "").map(drop));
    walker.keep("delete", api.delete(&id).map(drop));
    walker.keep("resize", api.resize(&id, "", 80, 24));
    walker.keep("close stdin", api.close_stdin(&id, ""));
    walker.keep("update", api.update(&id, &json!({"pids": {"limit": 100}})));
    walker.keep("state", api.state(&id, "").map(|p| p.status));
    walker.keep(
        "state of exec kept",
        api.state(&id, "kept").map(|p| p.status),
    );
    walker.exec("ghost");
    walker.keep("resume", api.resume(&id));
    walker.keep("resume again", api.resume(&id));
    walker.add("last", &sleep);

    walker.state = "stopped";
    api.kill(&id, "", 9, false)?;
    walker.ended("")?;
    walker.keep("start", api.start(&id, "").map(drop));
    walker.keep("pause", api.pause(&id));
    walker.keep("resume", api.resume(&id));
    walker.keep("resize", api.resize(&id, "", 80, 24));
    walker.keep("close stdin", api.close_stdin(&id, ""));
    walker.keep("update", api.update(&id, &json!({"pids": {"limit": 100}})));
    walker.keep("kill", api.kill(&id, "", 15, false));
    walker.keep("kill of all", api.kill(&id, "", 15, true));
    walker.keep("checkpoint", checkpoint(node, &api, &id));
    walker.add("late", &sleep);
    walker.exec("ghost");
    walker.exec("last");
    let state = api.state(&id, "").map(|p| (p.status, p.exit_status));
    walker.keep("state", state);
    walker.keep("wait", wait(""));
    walker.keep("delete", api.delete(&id).map(deleted));
    walker.state = "deleted";
    walker.keep("delete", api.delete(&id).map(drop));
    walker.keep("kill", api.kill(&id, "", 9, false));
    walker.keep("state", api.state(&id, "").map(|p| p.status));
    let mut answers = walker.answers;
    answers.extend(failed_start(node)?);
    Ok(answers)
}

/// Starts that fail. In a container of their own and at the end: some stock shims panic over them later.
fn failed_start(node: &Node<'_>) -> Result<Answers> {
    let (api, id, _guard) = created(node, "answers", &["sleep", "1000"])?;
    api.start(&id, "")?;
    let mut walker = Walker {
        api: api.clone(),
        id: &id,
        state: "exec failed",
        answers: Vec::new(),
    };
    walker.add("bad", &process(&["/no/such"]));
    walker.keep("start", api.start(&id, "bad").map(drop).map_err(code_alone));
    walker.keep("state", api.state(&id, "bad").map(|p| p.status));
    walker.keep("kill", api.kill(&id, "bad", 9, false));
    walker.keep("delete", api.delete_exec(&id, "bad").map(deleted));
    walker.add("good", &process(&["sleep", "1000"]));
    walker.keep("start", api.start(&id, "good").map(drop));
    walker.keep("start again", api.start(&id, "good").map(drop));
    api.kill(&id, "good", 9, false)?;
    walker.ended("good")?;
    walker.keep("start of an ended one", api.start(&id, "good").map(drop));
    walker.add("bad", &process(&["sleep", "1000"]));
    walker.state = "paused";
    api.pause(&id)?;
    walker.keep(
        "start of exec bad",
        api.start(&id, "bad").map(drop).map_err(code_alone),
    );
    Ok(walker.answers)
}

/// What the engine says in its own words has the engine's log or pipe in it.
fn code_alone(status: Status) -> Status {
    Status::new(status.code(), "")
}

/// containerd 1.6 makes the image before it asks the shim, and fails for the shims' names alone.
fn checkpoint(node: &Node<'_>, api: &Api, id: &str) -> Result<(), Status> {
    if node.containerd.version() == Version::V1_6 {
        return Ok(());
    }
    api.checkpoint(id)
}
