//! `docs/state-machine.md`, made from the code. A stale file fails; `A3SBOX_WRITE_DOCS=1` writes it.

use std::fmt::{Debug, Write as _};
use std::path::Path;

use super::tests::{EXEC_EVENTS, EXEC_STATES, FENCED, INIT_EVENTS, INIT_STATES, TASK_VERBS};
use super::*;
use crate::GenerationStep;
use crate::local_execution::{Recorded, Sight, decide};
use crate::task::{TaskInit, TaskObservation, reconcile};

const WRITE_DOCS: &str = "A3SBOX_WRITE_DOCS";

#[test]
fn the_document_of_the_state_machines_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/state-machine.md");
    let made = document();
    if std::env::var_os(WRITE_DOCS).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (made, kept)) in made.lines().zip(kept.lines()).enumerate() {
        assert_eq!(
            made,
            kept,
            "line {} is stale; run with {WRITE_DOCS}=1",
            number + 1
        );
    }
    assert_eq!(
        made.lines().count(),
        kept.lines().count(),
        "{WRITE_DOCS}=1 writes it"
    );
}

fn document() -> String {
    let mut text = String::from(
        "# State machines\n\n\
         Made from the code by the test `the_document_of_the_state_machines_is_current` of `a3sbox-execution`;\n\
         `A3SBOX_WRITE_DOCS=1 cargo test -p a3sbox-execution state_machines` writes it anew. Every pair is here: what is\n\
         not listed does not exist.\n\n",
    );
    durable(&mut text);
    init(&mut text);
    exec(&mut text);
    faces(&mut text);
    settling(&mut text);
    recovery(&mut text);
    text
}

fn durable(text: &mut String) {
    text.push_str(
        "## The durable states of an execution\n\n\
         `ManagedExecutionState::step_to`, for both faces. Bold steps grow the generation by one; all others keep it. The\n\
         picture leaves out the steps to `killing`, `stopped` and `failed` that nearly every state has.\n\n\
         ```mermaid\nstateDiagram-v2\n",
    );
    let ends = [
        ManagedExecutionState::Killing,
        ManagedExecutionState::Stopped,
        ManagedExecutionState::Failed,
    ];
    for from in ManagedExecutionState::ALL {
        for to in ManagedExecutionState::ALL {
            let is_drawn = !ends.contains(&to) || ends.contains(&from);
            match from.step_to(to) {
                Ok(GenerationStep::Advance) => {
                    let _ = writeln!(text, "    {from} --> {to}: generation + 1");
                }
                Ok(GenerationStep::Keep) if is_drawn => {
                    let _ = writeln!(text, "    {from} --> {to}");
                }
                Ok(GenerationStep::Keep) | Err(_) => {}
            }
        }
    }
    text.push_str("```\n\n| from | to | a caller is told |\n|---|---|---|\n");
    for from in ManagedExecutionState::ALL {
        let steps: Vec<String> = ManagedExecutionState::ALL
            .into_iter()
            .filter_map(|to| match from.step_to(to) {
                Ok(GenerationStep::Advance) => Some(format!("**{to}**")),
                Ok(GenerationStep::Keep) => Some(to.to_string()),
                Err(_) => None,
            })
            .collect();
        let _ = writeln!(
            text,
            "| {from} | {} | {:?} |",
            steps.join(", "),
            from.observed()
        );
    }
    text.push('\n');
}

fn init(text: &mut String) {
    text.push_str(
        "## The owner of a containerd task: its init process\n\n\
         `next_init`. Events named `Fenced…` are the contract's verbs, after the fence admitted the caller's generation;\n\
         the others are containerd's verbs, reports of effects, and observations. `defer`: asked again when what is under\n\
         way has settled. `join`: shares the answer of the same work. `done`: satisfied already. `ignore`: says nothing new.\n\n\
         ```mermaid\nstateDiagram-v2\n",
    );
    for from in INIT_STATES {
        for event in INIT_EVENTS {
            if let Verdict::Go(to, _) = next_init(from, event)
                && to != from
            {
                let _ = writeln!(text, "    {from:?} --> {to:?}: {event:?}");
            }
        }
    }
    text.push_str("```\n\n| durable | states of the owner |\n|---|---|\n");
    for durable in ManagedExecutionState::ALL {
        let states: Vec<String> = INIT_STATES
            .into_iter()
            .filter(|state| {
                let probe = ManagedExecutionState::Removing;
                state.durable(probe) == durable && durable != probe
            })
            .map(|state| format!("{state:?}"))
            .collect();
        if !states.is_empty() {
            let _ = writeln!(text, "| {durable} | {} |", states.join(", "));
        }
    }
    text.push_str("| as recorded before | Draining, Discarding |\n\n");
    table(text, &INIT_EVENTS, &INIT_STATES, next_init);
}

fn exec(text: &mut String) {
    text.push_str("## An exec\n\n`next_exec`; whether the container admits the verb is asked of the table above first.\n\n```mermaid\nstateDiagram-v2\n");
    for from in EXEC_STATES {
        for event in EXEC_EVENTS {
            if let Verdict::Go(to, _) = next_exec(from, event)
                && to != from
            {
                let _ = writeln!(text, "    {from:?} --> {to:?}: {event:?}");
            }
        }
    }
    text.push_str("```\n\n");
    table(text, &EXEC_EVENTS, &EXEC_STATES, next_exec);
}

/// One row per event and verdict, with the states that share it.
fn table<E: Copy + Debug, S: Copy + Debug>(
    text: &mut String,
    events: &[E],
    states: &[S],
    next: impl Fn(S, E) -> Verdict<S>,
) {
    text.push_str("| event | in | verdict | effects, in order |\n|---|---|---|---|\n");
    for event in events {
        let mut rows: Vec<(String, String, Vec<String>)> = Vec::new();
        for state in states {
            let (verdict, effects) = words(*state, next(*state, *event));
            match rows
                .iter_mut()
                .find(|row| row.0 == verdict && row.1 == effects)
            {
                Some(row) => row.2.push(format!("{state:?}")),
                None => rows.push((verdict, effects, vec![format!("{state:?}")])),
            }
        }
        for (verdict, effects, states) in rows {
            let _ = writeln!(
                text,
                "| {event:?} | {} | {verdict} | {effects} |",
                states.join(", ")
            );
        }
    }
    text.push('\n');
}

fn words<S: Debug>(state: S, verdict: Verdict<S>) -> (String, String) {
    match verdict {
        Verdict::Go(next, effects) => {
            let effects: Vec<String> = effects.iter().map(|e| format!("{e:?}")).collect();
            let next = format!("{next:?}");
            let stays = next == format!("{state:?}");
            let verdict = if stays {
                "stays".to_owned()
            } else {
                format!("→ {next}")
            };
            (verdict, effects.join(", "))
        }
        Verdict::Refuse(Refusal::Precondition(text)) => (format!("refused: {text}"), String::new()),
        Verdict::Refuse(refusal) => (format!("refused: {refusal:?}"), String::new()),
        other => (format!("{other:?}").to_lowercase(), String::new()),
    }
}

fn faces(text: &mut String) {
    text.push_str(
        "## The two faces on one execution\n\n\
         What a second verb meets while a first one is under way. Rows: the first verb, with the state that it claims.\n\
         Columns: the second verb. A verb of containerd never meets a conflict; one of the contract never waits.\n\n| under way |",
    );
    let verbs: Vec<InitEvent> = TASK_VERBS.into_iter().chain(FENCED).collect();
    for verb in &verbs {
        let _ = write!(text, " {verb:?} |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(verbs.len()));
    text.push('\n');
    let stable = [
        InitState::Created,
        InitState::Running,
        InitState::Paused,
        InitState::Stopped,
    ];
    for from in stable {
        for first in &verbs {
            let Verdict::Go(claimed, _) = next_init(from, *first) else {
                continue;
            };
            if claimed == from {
                continue;
            }
            let _ = write!(text, "| {first:?} in {from:?} ({claimed:?}) |");
            for second in &verbs {
                let cell = match next_init(claimed, *second) {
                    Verdict::Go(next, _) if next == claimed => "beside it".to_owned(),
                    Verdict::Go(next, _) => format!("overtakes: {next:?}"),
                    Verdict::Refuse(Refusal::Conflict) => "conflict".to_owned(),
                    Verdict::Refuse(_) => "refused".to_owned(),
                    Verdict::Defer => "waits".to_owned(),
                    Verdict::Join => "joins".to_owned(),
                    Verdict::Done => "done".to_owned(),
                    Verdict::Ignore => panic!("a verb is ignored"),
                };
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
    text.push('\n');
}

fn settling(text: &mut String) {
    let sights = [
        Sight::Running,
        Sight::Paused,
        Sight::Pending,
        Sight::Stopped,
        Sight::Failed,
        Sight::Absent,
        Sight::AnotherBoot,
    ];
    text.push_str(
        "## What reconcile decides\n\n\
         `decide`, for executions that no task owns: from the record and what the backend sees. A runtime whose evidence\n\
         drifted (another digest, generation, driver, endpoint) is an error of the look and adopted by nobody.\n\n| recorded |",
    );
    for sight in sights {
        let _ = write!(text, " {sight:?} |");
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|\n");
    for state in ManagedExecutionState::ALL {
        let plain = Recorded {
            state,
            is_cold: false,
            pauses_cold: false,
            source_is_paused: false,
            freezer_applied: false,
        };
        let mut cases = vec![(state.to_string(), plain)];
        match state {
            ManagedExecutionState::Paused | ManagedExecutionState::Resuming => {
                cases.push((
                    format!("{state}, cold"),
                    Recorded {
                        is_cold: true,
                        ..plain
                    },
                ));
            }
            ManagedExecutionState::Pausing => {
                let cold = Recorded {
                    pauses_cold: true,
                    ..plain
                };
                cases.push((format!("{state}, without memory"), cold));
            }
            ManagedExecutionState::Snapshotting => {
                let frozen = Recorded {
                    freezer_applied: true,
                    ..plain
                };
                cases.push((format!("{state}, freeze marked"), frozen));
                let paused = Recorded {
                    source_is_paused: true,
                    ..plain
                };
                cases.push((format!("{state}, source paused"), paused));
            }
            _ => {}
        }
        for (name, recorded) in cases {
            let _ = write!(text, "| {name} |");
            for sight in sights {
                let _ = write!(text, " {:?} |", decide(recorded, sight));
            }
            text.push('\n');
        }
    }
    text.push('\n');
}

fn recovery(text: &mut String) {
    let process = TaskInit::default();
    let running = |paused| TaskObservation::Running { process, paused };
    let seen = [
        ("created", TaskObservation::Created(process)),
        ("running", running(false)),
        ("paused", running(true)),
        ("stopped", TaskObservation::Stopped),
        ("absent, or another boot", TaskObservation::Absent),
    ];
    text.push_str(
        "## Where a task is whose owner died\n\n\
         `reconcile`: what the dead owner missed goes through the same machine. `inspect` tells it, `delete` acts on it;\n\
         nothing is adopted.\n\n| recorded |",
    );
    for (name, _) in seen {
        let _ = write!(text, " {name} |");
    }
    text.push_str("\n|---|---|---|---|---|---|\n");
    for state in INIT_STATES {
        let _ = write!(text, "| {state:?} |");
        for (_, observed) in seen {
            let _ = write!(text, " {:?} |", reconcile(state, &observed));
        }
        text.push('\n');
    }
}
