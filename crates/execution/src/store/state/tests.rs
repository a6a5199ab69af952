use super::*;

use ManagedExecutionState as S;

/// The whole table, in the words of the contract; the last three groups are edges of ours.
const LEGAL: &[(S, &[S])] = &[
    (
        S::Creating,
        &[S::Created, S::Starting, S::Killing, S::Stopped, S::Failed],
    ),
    (
        S::Created,
        &[
            S::Starting,
            S::Killing,
            S::RestartStopping,
            S::Stopped,
            S::Failed,
            S::Removing,
        ],
    ),
    (
        S::Starting,
        &[
            S::Created,
            S::Creating,
            S::Running,
            S::Killing,
            S::Stopped,
            S::Failed,
        ],
    ),
    (
        S::Running,
        &[
            S::Pausing,
            S::UpdatingResources,
            S::Snapshotting,
            S::Killing,
            S::RestartStopping,
            S::Stopped,
            S::Failed,
        ],
    ),
    (
        S::Pausing,
        &[S::Paused, S::Running, S::Killing, S::Stopped, S::Failed],
    ),
    (
        S::Paused,
        &[
            S::Resuming,
            S::Snapshotting,
            S::Killing,
            S::RestartStopping,
            S::Stopped,
            S::Failed,
        ],
    ),
    (
        S::Resuming,
        &[S::Running, S::Paused, S::Killing, S::Stopped, S::Failed],
    ),
    (
        S::UpdatingResources,
        &[S::Running, S::Killing, S::Stopped, S::Failed],
    ),
    (
        S::Snapshotting,
        &[S::Running, S::Paused, S::Stopped, S::Failed, S::Killing],
    ),
    (S::Killing, &[S::Stopped, S::Failed]),
    (S::Stopped, &[S::RestartStopping, S::Removing]),
    (S::Failed, &[S::RestartStopping, S::Removing]),
    (S::RestartStopping, &[S::RestartStarting]),
    (S::RestartStarting, &[S::Running, S::Stopped, S::Failed]),
    (S::Removing, &[]),
];

#[test]
fn every_pair_of_states_is_a_step_or_refused() {
    assert_eq!(LEGAL.len(), S::ALL.len());
    let advancing = [
        (S::Pausing, S::Paused),
        (S::Resuming, S::Running),
        (S::RestartStopping, S::RestartStarting),
    ];
    for (from, targets) in LEGAL {
        for to in S::ALL {
            let expected = if !targets.contains(&to) {
                Err(IllegalTransition { from: *from, to })
            } else if advancing.contains(&(*from, to)) {
                Ok(GenerationStep::Advance)
            } else {
                Ok(GenerationStep::Keep)
            };
            assert_eq!(from.step_to(to), expected, "{from} -> {to}");
        }
    }
}

#[test]
fn status_texts_are_read_back() {
    for state in S::ALL {
        assert_eq!(S::from_status(state.as_status()), Ok(state));
        assert_eq!(
            serde_json::to_value(state).unwrap(),
            serde_json::json!(state.as_status())
        );
    }
    assert_eq!(S::from_status("dead"), Ok(S::Failed));
    assert_eq!(
        S::from_status("zombie"),
        Err(UnknownStatus("zombie".into()))
    );
}
