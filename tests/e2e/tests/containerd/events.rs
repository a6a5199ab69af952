//! Events as containerd's subscribers see them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use a3sbox_e2e::{Case, Node, eventually};
use anyhow::{Context, Result, ensure};

const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::core("events::a_life_in_order", a_life_in_order),
        Case::full(
            "events::execs_and_pauses_in_order",
            execs_and_pauses_in_order,
        ),
        Case::full(
            "events::an_execs_exit_comes_before_its_inits",
            an_execs_exit_comes_before_its_inits,
        ),
    ]
}

/// `ctr events`, read as it comes.
pub(crate) struct Watcher {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Watcher {
    pub(crate) fn start(node: &Node<'_>) -> Result<Self> {
        let mut child = Command::new("ctr")
            .args(["-n", node.namespace(), "events"])
            .env_clear()
            .envs(node.containerd.env())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take().context("no stdout")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out)
                .lines()
                .map_while(std::result::Result::ok)
            {
                if let Ok(mut lines) = sink.lock() {
                    lines.push(line);
                }
            }
        });
        let watcher = Self { child, lines };
        // The subscription is live when an event that we cause ourselves comes through.
        let probe = node.id("probe");
        eventually("the subscription is live", LIMIT, || {
            node.ctr(&[
                "container",
                "create",
                "--runtime",
                node.shim.runtime_type(),
                a3sbox_e2e::BUSYBOX,
                &probe,
                "true",
            ])?;
            node.ctr(&["container", "rm", &probe])?;
            Ok(watcher.lines_of(&probe).first().map(drop))
        })?;
        Ok(watcher)
    }

    /// Lines that name `id` in quotes.
    pub(crate) fn lines_of(&self, id: &str) -> Vec<String> {
        let mark = format!("\"{id}\"");
        self.lines
            .lock()
            .map(|lines| {
                lines
                    .iter()
                    .filter(|line| line.contains(&mark))
                    .cloned()
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Topics of the task's events, once `last` is among them.
    pub(crate) fn topics_of(&self, id: &str, last: &str, limit: Duration) -> Result<Vec<String>> {
        let topics = || -> Vec<String> {
            self.lines_of(id)
                .iter()
                .filter_map(|line| {
                    line.split_whitespace()
                        .find(|word| word.starts_with("/tasks/"))
                })
                .map(str::to_owned)
                .collect()
        };
        eventually(&format!("event {last} of {id}"), limit, || {
            Ok(topics().iter().any(|t| t == last).then_some(()))
        })
        .with_context(|| format!("{:?}", topics()))?;
        Ok(topics())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn a_life_in_order(node: &Node<'_>) -> Result<()> {
    let events = Watcher::start(node)?;
    let id = node.id("events");
    node.run(&id, &[], &["true"])?.ok()?;
    let topics = events.topics_of(&id, "/tasks/delete", LIMIT)?;
    ensure!(
        topics
            == [
                "/tasks/create",
                "/tasks/start",
                "/tasks/exit",
                "/tasks/delete"
            ],
        "{topics:?}"
    );
    Ok(())
}

fn execs_and_pauses_in_order(node: &Node<'_>) -> Result<()> {
    let events = Watcher::start(node)?;
    let id = node.id("events");
    let running = node.background(&id, &[], &["sleep", "1000"])?;
    node.ctr(&["task", "pause", &id])?.ok()?;
    node.ctr(&["task", "resume", &id])?.ok()?;
    node.exec(&id, "e", &[], &["true"])?.ok()?;
    drop(running);
    let topics = events.topics_of(&id, "/tasks/delete", LIMIT)?;
    let wanted = [
        "/tasks/create",
        "/tasks/start",
        "/tasks/paused",
        "/tasks/resumed",
        "/tasks/exec-added",
        "/tasks/exec-started",
        "/tasks/exit",
        "/tasks/exit",
        "/tasks/delete",
    ];
    ensure!(topics == wanted, "{topics:?}");
    Ok(())
}

fn an_execs_exit_comes_before_its_inits(node: &Node<'_>) -> Result<()> {
    let events = Watcher::start(node)?;
    let id = node.id("order");
    let running = node.background(&id, &[], &["sleep", "1000"])?;
    let api = node.api()?;
    let process = serde_json::json!({"args": ["sleep", "1000"], "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}});
    api.exec(&id, "e1", &process, &a3sbox_e2e::TaskIo::default())?;
    api.start(&id, "e1")?;
    api.kill(&id, "", 9, false)?;
    api.wait(&id, "", LIMIT)?;
    drop(running);
    events.topics_of(&id, "/tasks/delete", LIMIT)?;
    let exits: Vec<_> = events
        .lines_of(&id)
        .into_iter()
        .filter(|line| line.contains("/tasks/exit"))
        .collect();
    ensure!(exits.len() == 2, "{exits:?}");
    ensure!(
        exits[0].contains("\"id\":\"e1\"") && exits[1].contains(&format!("\"id\":\"{id}\"")),
        "{exits:?}"
    );
    Ok(())
}
