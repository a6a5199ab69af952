//! One sweep: a verb broken at each of its durable writes in turn.

use std::path::Path;
use std::time::Duration;

use a3sbox_e2e::{Node, Watcher, eventually, scaled};
use anyhow::{Context, Result, ensure};
use containerd_client::tonic::Status;

use crate::fault::{Fault, Fired, Tracer};
use crate::pod::Pod;
use crate::report::Report;
use crate::truth::{self, Exit};
use crate::verb::{EXEC, Verb};

/// containerd's cleanup of both containers, with a loaded machine's slack.
const CLEAN_LIMIT: Duration = Duration::from_secs(30);
/// More calls of one kind than any verb makes: reaching it means that the verb never comes to its end.
const MOST_POINTS: u32 = 200;
/// Share of the points that a normal run takes.
const NORMAL_STRIDE: u32 = 2;

/// Every how many points one is taken.
pub(crate) fn stride() -> u32 {
    // Scaled by nothing, it is a full run.
    if scaled(100) == 100 { 1 } else { NORMAL_STRIDE }
}

pub(crate) fn run(
    node: &Node<'_>,
    watcher: &Watcher,
    report: &Report,
    verb: Verb,
    fault: Fault,
) -> Result<()> {
    let pod = Pod::new(node)?;
    let mut points = 0;
    for call in fault.calls() {
        let mut number = 1;
        loop {
            let point = Point {
                pod: &pod,
                watcher,
                verb,
                fault,
                call,
                number,
            };
            let seen = point
                .run()
                .with_context(|| format!("{} {}: {call} {number}", verb.label(), fault.label()))?;
            let Some((fired, outcome)) = seen else { break };
            report.add(verb, fault, call, &fired.path, &outcome);
            points += 1;
            number += stride();
            ensure!(number < MOST_POINTS, "{call} has no end");
        }
    }
    ensure!(points > 0, "no durable write was found in this verb");
    end(&pod)
}

/// The pod goes as any other, and then there is nothing.
fn end(pod: &Pod<'_>) -> Result<()> {
    pod.bring_up()?;
    let (_, socket) = pod.server()?;
    pod.end()?;
    nothing_left("after the sweep", || truth::left_of_pod(pod, &socket))
}

fn nothing_left(when: &str, look: impl Fn() -> Vec<String>) -> Result<()> {
    eventually(&format!("nothing is left {when}"), CLEAN_LIMIT, || {
        Ok(look().is_empty().then_some(()))
    })
    .map_err(|error| error.context(format!("{:#?}", look())))
}

struct Point<'a> {
    pod: &'a Pod<'a>,
    watcher: &'a Watcher,
    verb: Verb,
    fault: Fault,
    call: &'static str,
    number: u32,
}

impl Point<'_> {
    /// Where the fault fired and what came of it; `None` when the verb ended without it.
    fn run(&self) -> Result<Option<(Fired, String)>> {
        let pod = self.pod;
        pod.bring_up()?;
        let (server, socket) = pod.server()?;
        let since = truth::mark(self.watcher, &pod.subject);
        let holder_since = truth::mark(self.watcher, &pod.holder);
        self.verb.prepare(pod).context("preparation")?;
        let tracer = Tracer::attach(
            server,
            pod.folder.path(),
            self.fault,
            self.call,
            self.number,
            || drop(pod.api.state(&pod.holder, "")),
        )?;
        let answer = self.verb.call(pod);
        let fired = tracer.finish(self.fault, answer.is_err())?;
        let Some(fired) = fired else {
            answer.context("the verb failed without a fault")?;
            if matches!(self.verb, Verb::Pause | Verb::Resume) {
                truth::check_frozen(pod)?;
            }
            self.recover_by_client(since)?;
            return Ok(None);
        };
        let outcome = match self.fault {
            Fault::Kill => self.after_death(&socket, since, holder_since)?,
            Fault::Eio | Fault::Enospc => {
                let told = self.check_answer(&answer, &fired.path)?;
                if matches!(self.verb, Verb::Pause | Verb::Resume) {
                    truth::check_frozen(pod)?;
                }
                let is_told_created = truth::is_created(pod);
                let exit = self.recover_by_client(since)?;
                ensure!(
                    !(is_told_created && pod.is_ready()),
                    "the process ran, and containerd said that it was not started"
                );
                ensure!(
                    pod.server().is_ok_and(|(pid, _)| pid == server),
                    "the server is another one"
                );
                format!("{told}; {exit}")
            }
        };
        Ok(Some((fired, outcome)))
    }

    /// The server is dead: containerd has `delete` run for both containers.
    fn after_death(
        &self,
        socket: &Path,
        since: truth::Mark,
        holder_since: truth::Mark,
    ) -> Result<String> {
        let pod = self.pod;
        nothing_left("after the server's death", || {
            truth::left_of_pod(pod, socket)
        })?;
        truth::await_delete(self.watcher, &pod.holder, holder_since)?;
        // containerd has not told of a task whose create it saw fail.
        if self.verb != Verb::Create {
            truth::await_delete(self.watcher, &pod.subject, since)?;
        }
        let exits = truth::exits(self.watcher, &pod.subject, &pod.subject, since)?;
        truth::check_exits(&exits, pod.took_the_signal())?;
        let execs = truth::exits(self.watcher, &pod.subject, EXEC, since)?;
        ensure!(execs.len() <= 1, "the exec's exits: {execs:?}");
        // The first container ran until the cleanup killed it.
        let exits_of_holder = truth::exits(self.watcher, &pod.holder, &pod.holder, holder_since)?;
        ensure!(
            matches!(exits_of_holder.as_slice(), [Exit { status: 137, .. }]),
            "exits of the first container: {exits_of_holder:?}"
        );
        Ok(match exits.first() {
            None => "all gone; containerd told no exit".to_owned(),
            Some(exit) => format!("all gone; exit {}", exit.status),
        })
    }

    /// An error names the file and the reason; success is fine.
    fn check_answer(&self, answer: &Result<(), Status>, path: &Path) -> Result<&'static str> {
        let Err(status) = answer else {
            return Ok("succeeded");
        };
        let folder = path.parent().unwrap_or(path).display().to_string();
        let text = status.message();
        ensure!(
            text.contains(self.fault.text()) && text.contains(&folder),
            "the error does not name {} and {}: {status:?}",
            path.display(),
            self.fault.text()
        );
        Ok("refused, naming the file")
    }

    /// The task is killed and deleted by a client, the rest of the pod goes on, and nothing of it is left.
    fn recover_by_client(&self, since: truth::Mark) -> Result<String> {
        let pod = self.pod;
        let exit = pod.take_away(&pod.subject).context("taking it away")?;
        nothing_left("of the container", || truth::left_of(pod, &pod.subject))?;
        let exits = truth::exits(self.watcher, &pod.subject, &pod.subject, since)?;
        truth::check_exits(&exits, pod.took_the_signal())?;
        ensure!(exits.len() <= 1, "the exit was told twice: {exits:?}");
        if let (Some(status), Some(told)) = (exit, exits.first()) {
            ensure!(
                status == told.status,
                "delete says {status} and the event {}",
                told.status
            );
        }
        pod.api
            .state(&pod.holder, "")
            .context("state of the first container")?;
        Ok(match exit {
            Some(status) => format!("deleted, exit {status}"),
            None => "no task".to_owned(),
        })
    }
}
