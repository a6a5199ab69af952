//! What holds for every pair; the pairs themselves are in `docs/state-machine.md`.

use super::*;

const SIGHTS: [Sight; 7] = [
    Sight::Running,
    Sight::Paused,
    Sight::Pending,
    Sight::Stopped,
    Sight::Failed,
    Sight::Absent,
    Sight::AnotherBoot,
];

fn all() -> impl Iterator<Item = (Recorded, Sight)> {
    State::ALL.into_iter().flat_map(|state| {
        (0..16_u8).flat_map(move |bits| {
            let recorded = Recorded {
                state,
                is_cold: bits & 1 != 0,
                pauses_cold: bits & 2 != 0,
                source_is_paused: bits & 4 != 0,
                freezer_applied: bits & 8 != 0,
            };
            SIGHTS.map(move |sight| (recorded, sight))
        })
    })
}

#[test]
fn every_decision_is_a_step_of_the_table() {
    for (recorded, sight) in all() {
        let to = match decide(recorded, sight) {
            Decision::Complete(to) | Decision::RollBack(to) | Decision::End(to) => to,
            Decision::CompleteColdPause => State::Paused,
            Decision::CompleteStart => State::Running,
            _ => continue,
        };
        assert!(
            recorded.state.step_to(to).is_ok(),
            "{recorded:?} {sight:?} {to}"
        );
    }
}

#[test]
fn nothing_of_another_boot_is_ever_taken_for_alive() {
    for (recorded, sight) in all().filter(|(_, sight)| *sight == Sight::AnotherBoot) {
        let decision = decide(recorded, sight);
        let is_live = matches!(
            decision,
            Decision::Confirm
                | Decision::CompleteStart
                | Decision::Complete(_)
                | Decision::FreezeAndCapture
                | Decision::CaptureAndThaw
                | Decision::CaptureAndRelease
                | Decision::ReleaseThawed
        );
        assert!(!is_live, "{recorded:?}: {decision:?}");
    }
}

#[test]
fn an_effect_is_repeated_only_under_its_own_identity() {
    for (recorded, sight) in all() {
        let is_again = matches!(
            decide(recorded, sight),
            Decision::Redo | Decision::StartAgain
        );
        let is_deduplicated = matches!(
            recorded.state,
            State::UpdatingResources
                | State::Killing
                | State::RestartStopping
                | State::RestartStarting
        );
        assert!(!is_again || is_deduplicated, "{recorded:?} {sight:?}");
    }
}

#[test]
fn a_frozen_claim_is_never_frozen_again() {
    for (recorded, sight) in all().filter(|(recorded, _)| recorded.freezer_applied) {
        assert_ne!(decide(recorded, sight), Decision::FreezeAndCapture);
    }
}

#[test]
fn an_end_that_was_seen_is_the_end() {
    for (recorded, sight) in all() {
        let is_live = !matches!(
            recorded.state,
            State::Created
                | State::Stopped
                | State::Failed
                | State::Removing
                | State::UpdatingResources
                | State::Killing
                | State::RestartStopping
        );
        let is_cold = recorded.state == State::Pausing && recorded.pauses_cold;
        if is_live && !is_cold && sight == Sight::Stopped {
            assert_eq!(decide(recorded, sight), Decision::End(State::Stopped));
        }
    }
}
