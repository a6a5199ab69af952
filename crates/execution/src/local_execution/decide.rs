//! What an interrupted or doubted record becomes, from what is recorded and what is seen. Pure and total.
//!
//! Nothing is repeated that may have had its effect, except where the backend deduplicates by the claim's
//! own identity ([`Decision::Redo`]). Nothing is adopted that does not prove to be the recorded runtime:
//! a runtime whose evidence drifted is an error of the look and never gets here, and one that a reboot took
//! is [`Sight::AnotherBoot`]. No exit code is invented: an end that nobody saw has none.

use super::observe::Seen;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState};

use ManagedExecutionState as State;

/// What the backend sees, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    Running,
    Paused,
    /// Being created, or created and not started.
    Pending,
    Stopped,
    Failed,
    /// The runtime proves that it has no such container.
    Absent,
    /// The record was made live in another boot of this host: nothing of it can run, whatever a runtime
    /// remembers.
    AnotherBoot,
}

/// What of a record the decision hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) state: State,
    /// The execution is paused without its memory: no runtime is its normal case.
    pub(crate) is_cold: bool,
    /// The claim: a pause that keeps no memory.
    pub(crate) pauses_cold: bool,
    /// The claim: a snapshot of a source that its user paused.
    pub(crate) source_is_paused: bool,
    /// The claim: the snapshot's freeze took effect.
    pub(crate) freezer_applied: bool,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The record is right as it is.
    Keep,
    /// The record is right; a binding that it lacks is stored.
    Confirm,
    CompleteStart,
    StartAgain,
    /// The claim's effect again, under the claim's identity.
    Redo,
    /// The claimed transition took effect.
    Complete(State),
    CompleteColdPause,
    /// It took none.
    RollBack(State),
    FreezeAndCapture,
    CaptureAndThaw,
    CaptureAndRelease,
    /// It was thawed behind its freeze: what is published counts, nothing is captured any more.
    ReleaseThawed,
    /// It ended, with the code that was seen, or none.
    End(State),
    /// Record and runtime contradict each other: nothing is changed.
    Contradiction,
    NeverStarted,
}

/// Whether anything must be seen to decide about a record in this state.
pub(crate) const fn needs_look(state: State) -> bool {
    match state {
        State::Created
        | State::Stopped
        | State::Failed
        | State::Removing
        | State::UpdatingResources
        | State::Killing
        | State::RestartStopping => false,
        State::Creating
        | State::Starting
        | State::Running
        | State::Pausing
        | State::Paused
        | State::Resuming
        | State::Snapshotting
        | State::RestartStarting => true,
    }
}

pub(crate) const fn decide(recorded: Recorded, sight: Sight) -> Decision {
    use Decision as D;
    match (recorded.state, sight) {
        (State::Created | State::Stopped | State::Failed | State::Removing, _) => D::Keep,

        (State::UpdatingResources | State::Killing, Sight::AnotherBoot) => D::End(State::Stopped),
        // The stop of a restart is not its end; the start behind it is due whatever became of the runtime.
        (State::UpdatingResources | State::Killing | State::RestartStopping, _) => D::Redo,

        (State::RestartStarting, Sight::Running | Sight::Paused) => D::CompleteStart,
        (State::RestartStarting, Sight::Absent | Sight::AnotherBoot) => D::StartAgain,
        (State::Starting, Sight::Running | Sight::Paused) => D::CompleteStart,
        (State::Creating, Sight::Running | Sight::Paused) => D::Keep,
        (State::Creating | State::Starting | State::RestartStarting, Sight::Pending) => D::Keep,
        (State::Creating | State::Starting, Sight::Absent | Sight::AnotherBoot) => {
            D::End(State::Failed)
        }

        (State::Running, Sight::Running) | (State::Paused, Sight::Paused) => D::Confirm,
        (State::Running, Sight::Paused) | (State::Paused, Sight::Running) => D::Contradiction,
        (State::Running | State::Paused, Sight::Pending) => D::Contradiction,
        (State::Paused, Sight::Absent | Sight::AnotherBoot) if recorded.is_cold => D::Keep,

        (State::Pausing, Sight::Paused) => D::Complete(State::Paused),
        (State::Pausing, Sight::Running) => D::RollBack(State::Running),
        (State::Pausing, Sight::Stopped | Sight::Failed | Sight::Absent | Sight::AnotherBoot)
            if recorded.pauses_cold =>
        {
            D::CompleteColdPause
        }

        (State::Resuming, Sight::Running) => D::Complete(State::Running),
        (State::Resuming, Sight::Paused) => D::RollBack(State::Paused),
        // A cold pause that is not resumed yet has no runtime.
        (State::Resuming, Sight::Absent | Sight::AnotherBoot) if recorded.is_cold => {
            D::RollBack(State::Paused)
        }

        (State::Snapshotting, Sight::Paused) if recorded.source_is_paused => D::CaptureAndRelease,
        (State::Snapshotting, Sight::Paused) => D::CaptureAndThaw,
        (State::Snapshotting, Sight::Running)
            if !recorded.source_is_paused && !recorded.freezer_applied =>
        {
            D::FreezeAndCapture
        }
        (State::Snapshotting, Sight::Running) => D::ReleaseThawed,

        (State::Pausing | State::Resuming | State::Snapshotting, Sight::Pending) => D::NeverStarted,
        (_, Sight::Stopped) => D::End(State::Stopped),
        (_, Sight::Failed) => D::End(State::Failed),
        (
            State::Running | State::Paused | State::Pausing | State::Resuming | State::Snapshotting,
            Sight::Absent | Sight::AnotherBoot,
        ) => D::End(State::Stopped),
    }
}

impl Recorded {
    pub(super) fn of(record: &BoxRecord, state: State) -> Self {
        let metadata = record.managed_execution.as_ref();
        let claim = metadata.and_then(|metadata| metadata.pending_operation.as_ref());
        let (source_is_paused, freezer_applied) = match claim {
            Some(ManagedExecutionOperation::Snapshot {
                source_state,
                freezer_applied,
                ..
            }) => (*source_state == State::Paused, *freezer_applied),
            _ => (false, false),
        };
        Self {
            state,
            is_cold: metadata.is_some_and(|metadata| !metadata.paused_with_memory),
            pauses_cold: matches!(
                claim,
                Some(ManagedExecutionOperation::Pause {
                    keep_memory: false,
                    ..
                })
            ),
            source_is_paused,
            freezer_applied,
        }
    }
}

impl Sight {
    pub(super) const fn of(seen: &Seen) -> Self {
        match seen {
            Seen::Live {
                is_paused: true, ..
            } => Self::Paused,
            Seen::Live {
                is_paused: false, ..
            } => Self::Running,
            Seen::Pending => Self::Pending,
            Seen::Ended {
                state: State::Failed,
                ..
            } => Self::Failed,
            Seen::Ended { .. } => Self::Stopped,
            Seen::Absent => Self::Absent,
            Seen::AnotherBoot => Self::AnotherBoot,
        }
    }
}

#[cfg(test)]
mod tests;
