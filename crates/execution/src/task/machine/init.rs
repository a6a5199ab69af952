//! The init process's machine as one total function.

use super::{Effect, InitEvent, InitState, Refusal, Verdict};

const fn no(text: &'static str) -> Verdict<InitState> {
    Verdict::Refuse(Refusal::Precondition(text))
}

/// The init process's machine.
#[expect(
    clippy::match_same_arms,
    reason = "one arm per verb keeps the table readable; merging by verdict would scatter it"
)]
#[expect(
    clippy::too_many_lines,
    reason = "one table; cutting it would hide which pairs are left"
)]
pub(crate) const fn next_init(state: InitState, event: InitEvent) -> Verdict<InitState> {
    use Effect as E;
    use InitEvent as Ev;
    use InitState as S;
    use Verdict::{Defer, Done, Go, Ignore, Join, Refuse};
    match (state, event) {
        // Nothing but its own report and the end reaches a container that has not been created.
        (S::Creating, Ev::CreateDone) => Go(S::Created, &[E::PublishCreated, E::Watch]),
        (S::Creating, Ev::CreateFailed) => Go(S::Gone, &[E::Answer]),
        (S::Creating, Ev::Exited) => Go(S::Stopped, &[E::HoldExit, E::PublishExited]),
        (S::Creating, Ev::Delete) => Go(S::Discarding, &[E::Discard]),
        (_, Ev::CreateDone | Ev::CreateFailed) => Ignore,

        (S::Created, Ev::Start) => Go(S::Starting, &[E::Start]),
        (S::Starting | S::StartingEnded, Ev::Start) => no("cannot start a running process"),
        (
            S::Running | S::Draining | S::Resuming | S::Updating | S::Snapshotting | S::Killing,
            Ev::Start,
        ) => no("cannot start a running process"),
        (S::Pausing | S::Paused | S::SnapshottingPaused, Ev::Start) => {
            no("cannot start a paused process")
        }
        (S::Stopped | S::Deleting, Ev::Start) => no("cannot start a stopped process"),

        (S::Starting, Ev::StartDone) => Go(S::Running, &[E::PublishStarted, E::Answer]),
        (S::StartingEnded, Ev::StartDone) => Go(
            S::Draining,
            &[E::PublishStarted, E::Answer, E::KillLeftovers],
        ),
        (S::Starting, Ev::StartFailed) => Go(S::Created, &[E::Answer]),
        (S::StartingEnded, Ev::StartFailed) => Go(S::Draining, &[E::Answer, E::KillLeftovers]),
        (_, Ev::StartDone | Ev::StartFailed) => Ignore,

        (S::Running, Ev::Pause) => Go(S::Pausing, &[E::Pause]),
        (
            S::Starting | S::StartingEnded | S::Resuming | S::Updating | S::Snapshotting,
            Ev::Pause,
        ) => Defer,
        (S::Created, Ev::Pause) => no("cannot pause task in created state"),
        (S::Pausing | S::Paused | S::SnapshottingPaused, Ev::Pause) => {
            no("cannot pause a paused container")
        }
        (S::Killing | S::Draining | S::Stopped | S::Deleting, Ev::Pause) => {
            no("cannot pause a stopped container")
        }
        (S::Pausing, Ev::PauseDone) => Go(S::Paused, &[E::PublishPaused, E::Answer]),
        (S::Pausing, Ev::PauseFailed) => Go(S::Running, &[E::Answer]),
        // A pause that a kill or the end overtook may have frozen what is left.
        (S::Killing | S::Draining | S::Stopped, Ev::PauseDone | Ev::PauseFailed) => {
            Go(state, &[E::Thaw, E::AnswerEnded])
        }
        (S::Deleting, Ev::PauseDone | Ev::PauseFailed) => Go(state, &[E::AnswerEnded]),
        (_, Ev::PauseDone | Ev::PauseFailed) => Ignore,

        (S::Paused, Ev::Resume) => Go(S::Resuming, &[E::Resume]),
        (S::Pausing | S::SnapshottingPaused, Ev::Resume) => Defer,
        (S::Created, Ev::Resume) => no("cannot resume task in created state"),
        (
            S::Starting
            | S::StartingEnded
            | S::Running
            | S::Resuming
            | S::Updating
            | S::Snapshotting,
            Ev::Resume,
        ) => no("cannot resume a running process"),
        (S::Killing | S::Draining | S::Stopped | S::Deleting, Ev::Resume) => {
            no("cannot resume a stopped container")
        }
        (S::Resuming, Ev::ResumeDone) => Go(S::Running, &[E::PublishResumed, E::Answer]),
        (S::Resuming, Ev::ResumeFailed) => Go(S::Paused, &[E::Answer]),
        (
            S::Killing | S::Draining | S::Stopped | S::Deleting,
            Ev::ResumeDone | Ev::ResumeFailed,
        ) => Go(state, &[E::AnswerEnded]),
        (_, Ev::ResumeDone | Ev::ResumeFailed) => Ignore,

        // containerd's kill is a signal: it waits for nothing and changes no state.
        (
            S::Created
            | S::Starting
            | S::StartingEnded
            | S::Running
            | S::Pausing
            | S::Paused
            | S::Resuming
            | S::Updating
            | S::Snapshotting
            | S::SnapshottingPaused
            | S::Killing
            | S::Draining,
            Ev::Kill | Ev::KillAll,
        ) => Go(state, &[E::Signal]),
        (S::Stopped, Ev::KillAll) => Go(state, &[E::Signal]),
        (S::Stopped | S::Deleting | S::Discarding, Ev::Kill | Ev::KillAll) => {
            Refuse(Refusal::AlreadyFinished)
        }

        (S::Created | S::Starting | S::Running | S::Updating, Ev::ExecAdd) => {
            Go(state, &[E::Proceed])
        }
        (S::Pausing | S::Resuming | S::Snapshotting, Ev::ExecAdd) => Defer,
        (S::Paused | S::SnapshottingPaused, Ev::ExecAdd) => no("cannot exec in a paused state"),
        (S::StartingEnded | S::Killing | S::Draining | S::Stopped | S::Deleting, Ev::ExecAdd) => {
            no("cannot exec in a stopped state")
        }
        (S::Created | S::Running | S::Updating, Ev::ExecStart) => Go(state, &[E::Proceed]),
        (S::Starting | S::Pausing | S::Resuming | S::Snapshotting, Ev::ExecStart) => Defer,
        (S::Paused | S::SnapshottingPaused, Ev::ExecStart) => no("cannot exec in a paused state"),
        (S::StartingEnded | S::Killing | S::Draining | S::Stopped | S::Deleting, Ev::ExecStart) => {
            Refuse(Refusal::InitNotRunning)
        }

        (
            S::Created
            | S::Starting
            | S::Running
            | S::Pausing
            | S::Paused
            | S::Resuming
            | S::Snapshotting
            | S::SnapshottingPaused,
            Ev::Update,
        ) => Go(state, &[E::Update]),
        // Two updates at once would leave the order of their values to chance.
        (S::Updating, Ev::Update) => Defer,
        (S::StartingEnded | S::Killing | S::Draining | S::Stopped | S::Deleting, Ev::Update) => {
            no("cannot update a stopped container")
        }
        (S::Running | S::Paused, Ev::Checkpoint) => Go(state, &[E::Checkpoint]),
        (
            S::Starting
            | S::Pausing
            | S::Resuming
            | S::Updating
            | S::Snapshotting
            | S::SnapshottingPaused,
            Ev::Checkpoint,
        ) => Defer,
        (S::Created, Ev::Checkpoint) => no("cannot checkpoint a task in created state"),
        (
            S::StartingEnded | S::Killing | S::Draining | S::Stopped | S::Deleting,
            Ev::Checkpoint,
        ) => no("cannot checkpoint a stopped container"),
        (
            S::Created
            | S::Starting
            | S::Running
            | S::Pausing
            | S::Paused
            | S::Resuming
            | S::Updating
            | S::Snapshotting
            | S::SnapshottingPaused
            | S::Killing,
            Ev::Resize,
        ) => Go(state, &[E::Resize]),
        // A client's first resize may come after a short life has ended.
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::Resize) => Done,
        (
            S::Created
            | S::Starting
            | S::Running
            | S::Pausing
            | S::Paused
            | S::Resuming
            | S::Updating
            | S::Snapshotting
            | S::SnapshottingPaused
            | S::Killing,
            Ev::CloseStdin,
        ) => Go(state, &[E::CloseStdin]),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::CloseStdin) => Done,

        (S::Created, Ev::Delete) => Go(S::Discarding, &[E::Discard]),
        (S::Stopped, Ev::Delete) => Go(S::Deleting, &[E::Delete]),
        (S::Discarding | S::Deleting, Ev::Delete) => Join,
        (S::Pausing | S::Paused | S::SnapshottingPaused, Ev::Delete) => {
            no("cannot delete a paused process")
        }
        (
            S::Starting
            | S::StartingEnded
            | S::Running
            | S::Resuming
            | S::Updating
            | S::Snapshotting
            | S::Killing
            | S::Draining,
            Ev::Delete,
        ) => no("cannot delete a running process"),
        (S::Discarding | S::Deleting, Ev::DeleteDone) => {
            Go(S::Gone, &[E::PublishDeleted, E::Answer])
        }
        (S::Discarding, Ev::DeleteFailed) => Go(S::Created, &[E::Answer]),
        (S::Deleting, Ev::DeleteFailed) => Go(S::Stopped, &[E::Answer]),
        (_, Ev::DeleteDone | Ev::DeleteFailed) => Ignore,

        (S::Created | S::Running | S::Resuming | S::Updating | S::Killing, Ev::Exited) => {
            Go(S::Draining, &[E::HoldExit, E::KillLeftovers])
        }
        (S::Starting, Ev::Exited) => Go(S::StartingEnded, &[E::HoldExit]),
        // A pause that is under way thaws when it reports; see `PauseDone`.
        (S::Pausing, Ev::Exited) => Go(S::Draining, &[E::HoldExit, E::KillLeftovers]),
        (S::Paused, Ev::Exited) => Go(S::Draining, &[E::HoldExit, E::Thaw, E::KillLeftovers]),
        (S::Snapshotting | S::SnapshottingPaused, Ev::Exited) => Go(
            S::Draining,
            &[E::HoldExit, E::CancelCapture, E::Thaw, E::KillLeftovers],
        ),
        (S::Discarding, Ev::Exited) => Go(S::Deleting, &[E::HoldExit, E::PublishExited]),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::Exited) => Ignore,
        (S::Draining, Ev::Drained) => Go(S::Stopped, &[E::PublishExited]),
        (_, Ev::Drained) => Ignore,
        (S::Gone, Ev::Exited) => Ignore,

        (S::Creating | S::Discarding | S::Gone, Ev::FencedKill) => Refuse(Refusal::Conflict),
        (S::Running, Ev::FencedPause) => Go(S::Pausing, &[E::Pause]),
        (S::Paused, Ev::FencedResume) => Go(S::Resuming, &[E::Resume]),
        (S::Running, Ev::FencedUpdate) => Go(S::Updating, &[E::UpdateClaimed]),
        (S::Running, Ev::FencedSnapshot) => Go(S::Snapshotting, &[E::Capture]),
        (S::Paused, Ev::FencedSnapshot) => Go(S::SnapshottingPaused, &[E::Capture]),
        (_, Ev::FencedPause | Ev::FencedResume | Ev::FencedUpdate | Ev::FencedSnapshot) => {
            Refuse(Refusal::Conflict)
        }

        (S::Created | S::Running | S::Pausing | S::Resuming | S::Updating, Ev::FencedKill) => {
            Go(S::Killing, &[E::Kill])
        }
        (S::Paused, Ev::FencedKill) => Go(S::Killing, &[E::Kill, E::Thaw]),
        // A kill does not wait for a snapshot: it thaws and ends the container.
        (S::Snapshotting | S::SnapshottingPaused, Ev::FencedKill) => {
            Go(S::Killing, &[E::Kill, E::CancelCapture, E::Thaw])
        }
        // The start settles in its own way, and the exit is told behind it.
        (S::Starting | S::StartingEnded | S::Killing | S::Draining, Ev::FencedKill) => {
            Go(state, &[E::Kill])
        }
        (S::Stopped | S::Deleting, Ev::FencedKill) => Done,

        (S::Updating, Ev::FencedUpdateDone | Ev::FencedUpdateFailed) => {
            Go(S::Running, &[E::Answer])
        }
        (S::Snapshotting, Ev::FencedSnapshotDone | Ev::FencedSnapshotFailed) => {
            Go(S::Running, &[E::Answer])
        }
        (S::Snapshotting, Ev::FencedSnapshotFrozen) => {
            Go(S::Paused, &[E::PublishPaused, E::Answer])
        }
        (
            S::SnapshottingPaused,
            Ev::FencedSnapshotDone | Ev::FencedSnapshotFailed | Ev::FencedSnapshotFrozen,
        ) => Go(S::Paused, &[E::Answer]),
        // What the end overtook; a capture that could not thaw leaves that to the end.
        (S::Killing | S::Draining | S::Stopped, Ev::FencedSnapshotFrozen) => {
            Go(state, &[E::Thaw, E::AnswerEnded])
        }
        (
            S::Killing | S::Draining | S::Stopped | S::Deleting,
            Ev::FencedUpdateDone
            | Ev::FencedUpdateFailed
            | Ev::FencedSnapshotDone
            | Ev::FencedSnapshotFailed
            | Ev::FencedSnapshotFrozen,
        ) => Go(state, &[E::AnswerEnded]),
        (
            _,
            Ev::FencedUpdateDone
            | Ev::FencedUpdateFailed
            | Ev::FencedSnapshotDone
            | Ev::FencedSnapshotFailed
            | Ev::FencedSnapshotFrozen,
        ) => Ignore,

        (S::Creating | S::Discarding | S::Gone, _) => Refuse(Refusal::NotCreated),
    }
}
