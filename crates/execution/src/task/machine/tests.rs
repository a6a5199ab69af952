//! The whole table, state by event. A change of behaviour shows as a changed row.

use std::fmt::Write as _;

use super::*;

const INIT_STATES: [InitState; 13] = [
    InitState::Creating,
    InitState::Created,
    InitState::Starting,
    InitState::StartingEnded,
    InitState::Running,
    InitState::Pausing,
    InitState::Paused,
    InitState::Resuming,
    InitState::Draining,
    InitState::Stopped,
    InitState::Discarding,
    InitState::Deleting,
    InitState::Gone,
];

const INIT_EVENTS: [InitEvent; 24] = [
    InitEvent::CreateDone,
    InitEvent::CreateFailed,
    InitEvent::Start,
    InitEvent::StartDone,
    InitEvent::StartFailed,
    InitEvent::Pause,
    InitEvent::PauseDone,
    InitEvent::PauseFailed,
    InitEvent::Resume,
    InitEvent::ResumeDone,
    InitEvent::ResumeFailed,
    InitEvent::Kill,
    InitEvent::KillAll,
    InitEvent::ExecAdd,
    InitEvent::ExecStart,
    InitEvent::Update,
    InitEvent::Checkpoint,
    InitEvent::Resize,
    InitEvent::CloseStdin,
    InitEvent::Delete,
    InitEvent::DeleteDone,
    InitEvent::DeleteFailed,
    InitEvent::Exited,
    InitEvent::Drained,
];

const EXEC_STATES: [ExecState; 7] = [
    ExecState::Declared,
    ExecState::Starting,
    ExecState::Running,
    ExecState::Stopped,
    ExecState::Discarding,
    ExecState::Deleting,
    ExecState::Gone,
];

const EXEC_EVENTS: [ExecEvent; 10] = [
    ExecEvent::Start,
    ExecEvent::StartDone,
    ExecEvent::StartFailed,
    ExecEvent::Kill,
    ExecEvent::Resize,
    ExecEvent::CloseStdin,
    ExecEvent::Delete,
    ExecEvent::DeleteDone,
    ExecEvent::DeleteFailed,
    ExecEvent::Exited,
];

fn text<S: std::fmt::Debug>(verdict: Verdict<S>) -> String {
    match verdict {
        Verdict::Go(next, effects) => {
            let effects: Vec<String> = effects.iter().map(|e| format!("{e:?}")).collect();
            format!("{next:?} {}", effects.join("+"))
        }
        Verdict::Refuse(Refusal::Precondition(text)) => format!("refused: {text}"),
        Verdict::Refuse(refusal) => format!("refused: {refusal:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn init_table() -> String {
    let mut table = String::new();
    for event in INIT_EVENTS {
        for state in INIT_STATES {
            let verdict = text(next_init(state, event));
            writeln!(table, "{event:?} in {state:?} -> {verdict}").unwrap();
        }
    }
    table
}

fn exec_table() -> String {
    let mut table = String::new();
    for event in EXEC_EVENTS {
        for state in EXEC_STATES {
            let verdict = text(next_exec(state, event));
            writeln!(table, "{event:?} in {state:?} -> {verdict}").unwrap();
        }
    }
    table
}

#[track_caller]
fn assert_same(actual: &str, expected: &str) {
    for (actual, expected) in actual.lines().zip(expected.lines()) {
        assert_eq!(actual, expected);
    }
    assert_eq!(actual.lines().count(), expected.lines().count());
}

#[test]
fn every_pair_of_the_init_machine_is_as_written() {
    assert_same(&init_table(), include_str!("init.table"));
}

#[test]
fn every_pair_of_the_exec_machine_is_as_written() {
    assert_same(&exec_table(), include_str!("exec.table"));
}

#[test]
fn gone_admits_nothing() {
    for event in INIT_EVENTS {
        let verdict = next_init(InitState::Gone, event);
        assert!(
            matches!(
                verdict,
                Verdict::Ignore | Verdict::Refuse(Refusal::NotCreated)
            ),
            "{event:?}: {verdict:?}"
        );
    }
}

#[test]
fn a_kill_is_never_deferred() {
    for state in INIT_STATES {
        for event in [InitEvent::Kill, InitEvent::KillAll] {
            assert_ne!(next_init(state, event), Verdict::Defer, "{state:?}");
        }
    }
}

#[test]
fn an_exit_is_told_once_from_every_state() {
    for start in INIT_STATES {
        let mut state = start;
        let mut told = 0;
        for event in [
            InitEvent::Exited,
            InitEvent::StartDone,
            InitEvent::Drained,
            InitEvent::Exited,
            InitEvent::Drained,
        ] {
            if let Verdict::Go(next, effects) = next_init(state, event) {
                state = next;
                told += effects
                    .iter()
                    .filter(|e| **e == Effect::PublishExited)
                    .count();
            }
        }
        let has_process = !matches!(
            start,
            InitState::Stopped | InitState::Deleting | InitState::Gone
        );
        assert_eq!(told, usize::from(has_process), "{start:?}");
    }
}

#[test]
fn refusals_have_the_texts_that_clients_know() {
    let cases = [
        (
            Refusal::AlreadyFinished,
            TaskError::NotFound("process already finished: not found".into()),
        ),
        (
            Refusal::NotCreated,
            TaskError::NotFound("container not created: not found".into()),
        ),
        (
            Refusal::InitNotRunning,
            TaskError::FailedPrecondition(
                "container c1 init process is not running: failed precondition".into(),
            ),
        ),
        (
            Refusal::ProcessNotCreated,
            TaskError::FailedPrecondition("process not created: failed precondition".into()),
        ),
    ];
    for (refusal, expected) in cases {
        assert_eq!(refusal.into_error("c1"), expected);
    }
}

/// Prints the tables; `cargo test -- --ignored --nocapture print_tables` shows what a change would make.
#[test]
#[ignore = "a tool, not a check"]
fn print_tables() {
    print!("{}=====\n{}", init_table(), exec_table());
}
