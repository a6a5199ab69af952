//! What holds for every pair. The pairs themselves are in `docs/state-machine.md` (module `doc`).

use super::*;

pub(super) const INIT_STATES: [InitState; 17] = [
    InitState::Creating,
    InitState::Created,
    InitState::Starting,
    InitState::StartingEnded,
    InitState::Running,
    InitState::Pausing,
    InitState::Paused,
    InitState::Resuming,
    InitState::Updating,
    InitState::Snapshotting,
    InitState::SnapshottingPaused,
    InitState::Killing,
    InitState::Draining,
    InitState::Stopped,
    InitState::Discarding,
    InitState::Deleting,
    InitState::Gone,
];

pub(super) const INIT_EVENTS: [InitEvent; 34] = [
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
    InitEvent::FencedPause,
    InitEvent::FencedResume,
    InitEvent::FencedUpdate,
    InitEvent::FencedUpdateDone,
    InitEvent::FencedUpdateFailed,
    InitEvent::FencedSnapshot,
    InitEvent::FencedSnapshotDone,
    InitEvent::FencedSnapshotFailed,
    InitEvent::FencedSnapshotFrozen,
    InitEvent::FencedKill,
];

/// The contract's verbs.
pub(super) const FENCED: [InitEvent; 5] = [
    InitEvent::FencedPause,
    InitEvent::FencedResume,
    InitEvent::FencedUpdate,
    InitEvent::FencedSnapshot,
    InitEvent::FencedKill,
];

/// containerd's verbs.
pub(super) const TASK_VERBS: [InitEvent; 12] = [
    InitEvent::Start,
    InitEvent::Pause,
    InitEvent::Resume,
    InitEvent::Kill,
    InitEvent::KillAll,
    InitEvent::ExecAdd,
    InitEvent::ExecStart,
    InitEvent::Update,
    InitEvent::Checkpoint,
    InitEvent::Resize,
    InitEvent::CloseStdin,
    InitEvent::Delete,
];

pub(super) const EXEC_STATES: [ExecState; 7] = [
    ExecState::Declared,
    ExecState::Starting,
    ExecState::Running,
    ExecState::Stopped,
    ExecState::Discarding,
    ExecState::Deleting,
    ExecState::Gone,
];

pub(super) const EXEC_EVENTS: [ExecEvent; 10] = [
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

#[test]
fn the_lists_name_every_state_and_event() {
    let is_whole = |numbers: Vec<usize>, last: usize| {
        numbers.len() == last + 1 && numbers.iter().enumerate().all(|(i, n)| i == *n)
    };
    let states = INIT_STATES.map(|s| s as usize).to_vec();
    assert!(is_whole(states, InitState::Gone as usize));
    let events = INIT_EVENTS.map(|e| e as usize).to_vec();
    assert!(is_whole(events, InitEvent::FencedKill as usize));
    let states = EXEC_STATES.map(|s| s as usize).to_vec();
    assert!(is_whole(states, ExecState::Gone as usize));
    let events = EXEC_EVENTS.map(|e| e as usize).to_vec();
    assert!(is_whole(events, ExecEvent::Exited as usize));
}

/// The owner's machine and the durable states are one: whatever the first does, the second has an edge for.
#[test]
fn every_step_of_the_owner_is_a_step_of_the_durable_states() {
    for state in INIT_STATES {
        let recorded: Vec<ManagedExecutionState> = match state {
            // They keep what is recorded; these are the states that lead there.
            InitState::Draining => INIT_STATES
                .into_iter()
                .filter(|from| {
                    matches!(
                        next_init(*from, InitEvent::Exited),
                        Verdict::Go(InitState::Draining, _)
                    ) || *from == InitState::StartingEnded
                })
                .map(|from| from.durable(ManagedExecutionState::Created))
                .collect(),
            _ => vec![state.durable(ManagedExecutionState::Created)],
        };
        for event in INIT_EVENTS {
            let Verdict::Go(next, _) = next_init(state, event) else {
                continue;
            };
            for from in &recorded {
                let to = next.durable(*from);
                // A container that was never created, or that is deleted, has no record to step.
                let has_record = next != InitState::Gone;
                assert!(
                    to == *from || !has_record || from.step_to(to).is_ok(),
                    "{event:?} in {state:?}: {from} -> {to}"
                );
            }
        }
    }
}

#[test]
fn a_fenced_verb_never_waits_and_only_a_kill_overtakes() {
    for state in INIT_STATES {
        for event in FENCED {
            let verdict = next_init(state, event);
            assert!(
                !matches!(verdict, Verdict::Defer | Verdict::Join | Verdict::Ignore),
                "{event:?} in {state:?}"
            );
            let is_stable = matches!(state, InitState::Running | InitState::Paused);
            if event != InitEvent::FencedKill && !is_stable {
                assert_eq!(
                    verdict,
                    Verdict::Refuse(Refusal::Conflict),
                    "{event:?} in {state:?}"
                );
            }
        }
    }
}

#[test]
fn a_report_that_a_kill_or_the_end_overtook_tells_its_caller_so() {
    let reports = [
        InitEvent::PauseDone,
        InitEvent::PauseFailed,
        InitEvent::ResumeDone,
        InitEvent::ResumeFailed,
        InitEvent::FencedUpdateDone,
        InitEvent::FencedUpdateFailed,
        InitEvent::FencedSnapshotDone,
        InitEvent::FencedSnapshotFailed,
        InitEvent::FencedSnapshotFrozen,
    ];
    for state in [
        InitState::Killing,
        InitState::Draining,
        InitState::Stopped,
        InitState::Deleting,
    ] {
        for event in reports {
            match next_init(state, event) {
                Verdict::Go(next, effects) => {
                    assert_eq!(next, state);
                    assert!(effects.contains(&Effect::AnswerEnded), "{event:?}");
                }
                other => panic!("{event:?} in {state:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn gone_admits_nothing() {
    for event in INIT_EVENTS {
        let verdict = next_init(InitState::Gone, event);
        assert!(
            matches!(
                verdict,
                Verdict::Ignore | Verdict::Refuse(Refusal::NotCreated | Refusal::Conflict)
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
