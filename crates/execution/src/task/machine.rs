//! What each verb and each report does in each state: two pure, total functions.
//!
//! ```text
//!            create           start              pause            resume
//!  Creating ───────► Created ───────► Starting ─► Running ─► Pausing ─► Paused ─► Resuming ─► Running
//!                      │  │exit          │exit       │exit      │exit      │exit      │exit
//!               delete │  └───────────┐  ▼           ▼          ▼          ▼          ▼
//!                      │              │ StartingEnded ──────────────────────────────► Draining
//!                      ▼  exit        ▼                                   execs ended │
//!                  Discarding ─────► Deleting ◄── delete ── Stopped ◄─────────────────┘
//!                      └──────► Gone ◄──┘
//! ```
//!
//! The live path and recovery both go through [`next_init`] and [`next_exec`]; there is no clock, no file
//! and no log here. Texts are those of containerd's runc shim (`process/init_state.go`,
//! `process/exec_state.go`, `process/utils.go`, `task/service.go`), which ctr, nerdctl and kubelet know.

use serde::{Deserialize, Serialize};

use super::TaskError;

/// State of the init process, and with it of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitState {
    /// Reserved; whether the runtime has the container is not yet known.
    Creating,
    Created,
    /// The start was asked for and has not settled.
    Starting,
    /// The exit was seen before the start settled; it is told after it.
    StartingEnded,
    Running,
    Pausing,
    Paused,
    Resuming,
    /// The init process has ended; its exit waits for those of the execs.
    Draining,
    Stopped,
    /// A container that was never started is being deleted.
    Discarding,
    /// A stopped container is being deleted.
    Deleting,
    Gone,
}

/// What can happen to the init process: a request, the report of an effect, or an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum InitEvent {
    CreateDone,
    CreateFailed,
    Start,
    StartDone,
    StartFailed,
    Pause,
    PauseDone,
    PauseFailed,
    Resume,
    ResumeDone,
    ResumeFailed,
    /// A signal for the init process.
    Kill,
    /// A signal for every process of the container.
    KillAll,
    ExecAdd,
    ExecStart,
    Update,
    Checkpoint,
    Resize,
    CloseStdin,
    Delete,
    DeleteDone,
    DeleteFailed,
    Exited,
    /// The exits of the execs were told, or waited for long enough.
    Drained,
}

/// State of an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    /// Declared, or its start failed; nothing runs.
    Declared,
    Starting,
    Running,
    Stopped,
    /// A declared exec is being forgotten.
    Discarding,
    /// A stopped exec is being forgotten.
    Deleting,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ExecEvent {
    Start,
    StartDone,
    StartFailed,
    Kill,
    Resize,
    CloseStdin,
    Delete,
    DeleteDone,
    DeleteFailed,
    Exited,
}

/// What the owner does for a verdict, in order. The effects up to `Delete` call the runtime and report
/// back; the others are the owner's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    Start,
    Pause,
    Resume,
    /// Resume without a caller: nothing of an ended container may stay frozen.
    Thaw,
    Signal,
    Update,
    Checkpoint,
    Resize,
    CloseStdin,
    /// Delete a container that was never started, by force.
    Discard,
    Delete,
    /// Kill what outlives the init process of a shared pid namespace.
    KillLeftovers,
    /// Begin waiting for the exit.
    Watch,
    /// Add the exec, or go on to the exec's own machine.
    Proceed,
    /// Keep for the start: a terminal's size or the end of the input of an exec that is only declared.
    Remember,
    HoldExit,
    GrowGeneration,
    PublishCreated,
    PublishStarted,
    PublishPaused,
    PublishResumed,
    PublishExited,
    PublishDeleted,
    /// The caller gets the effect's own result.
    Answer,
    /// The caller is told that the container ended meanwhile.
    AnswerEnded,
}

/// Why a verb is refused without any effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    NotCreated,
    InitNotRunning,
    AlreadyFinished,
    ProcessNotCreated,
    ProcessGone,
    /// `cannot <verb> a <state> process`, and the like.
    Precondition(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<S> {
    Go(S, &'static [Effect]),
    Refuse(Refusal),
    /// Ask again when the transition under way has settled.
    Defer,
    /// The same work is under way: share its answer.
    Join,
    /// The verb is already satisfied.
    Done,
    /// A report that says nothing new.
    Ignore,
}

impl Refusal {
    /// The text and class for a caller; `container` is the original container id.
    pub(crate) fn into_error(self, container: &str) -> TaskError {
        match self {
            Self::NotCreated => TaskError::NotFound("container not created: not found".to_owned()),
            Self::InitNotRunning => TaskError::FailedPrecondition(format!(
                "container {container} init process is not running: failed precondition"
            )),
            Self::AlreadyFinished => {
                TaskError::NotFound("process already finished: not found".to_owned())
            }
            Self::ProcessNotCreated => {
                TaskError::FailedPrecondition("process not created: failed precondition".to_owned())
            }
            Self::ProcessGone => {
                TaskError::NotFound("cannot delete a deleted process: not found".to_owned())
            }
            Self::Precondition(text) => TaskError::WrongState(text.to_owned()),
        }
    }
}

impl InitState {
    /// The process's fate is settled: nothing of it runs any more.
    pub(crate) const fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Deleting | Self::Gone)
    }
}

impl ExecState {
    /// Its exit is still to come.
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

const fn no(text: &'static str) -> Verdict<InitState> {
    Verdict::Refuse(Refusal::Precondition(text))
}

/// The init process's machine.
#[expect(
    clippy::match_same_arms,
    reason = "one arm per verb keeps the table readable; merging by verdict would scatter it"
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
        (S::Running | S::Draining | S::Resuming, Ev::Start) => no("cannot start a running process"),
        (S::Pausing | S::Paused, Ev::Start) => no("cannot start a paused process"),
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
        (S::Starting | S::StartingEnded | S::Resuming, Ev::Pause) => Defer,
        (S::Created, Ev::Pause) => no("cannot pause task in created state"),
        (S::Pausing | S::Paused, Ev::Pause) => no("cannot pause a paused container"),
        (S::Draining | S::Stopped | S::Deleting, Ev::Pause) => {
            no("cannot pause a stopped container")
        }
        (S::Pausing, Ev::PauseDone) => {
            Go(S::Paused, &[E::GrowGeneration, E::PublishPaused, E::Answer])
        }
        (S::Pausing, Ev::PauseFailed) => Go(S::Running, &[E::Answer]),
        // A pause that failed because the process ended may have frozen what is left.
        (S::Draining | S::Stopped, Ev::PauseDone | Ev::PauseFailed) => {
            Go(state, &[E::Thaw, E::AnswerEnded])
        }
        (S::Deleting, Ev::PauseDone | Ev::PauseFailed) => Go(state, &[E::AnswerEnded]),
        (_, Ev::PauseDone | Ev::PauseFailed) => Ignore,

        (S::Paused, Ev::Resume) => Go(S::Resuming, &[E::Resume]),
        (S::Pausing, Ev::Resume) => Defer,
        (S::Created, Ev::Resume) => no("cannot resume task in created state"),
        (S::Starting | S::StartingEnded | S::Running | S::Resuming, Ev::Resume) => {
            no("cannot resume a running process")
        }
        (S::Draining | S::Stopped | S::Deleting, Ev::Resume) => {
            no("cannot resume a stopped container")
        }
        (S::Resuming, Ev::ResumeDone) => Go(
            S::Running,
            &[E::GrowGeneration, E::PublishResumed, E::Answer],
        ),
        (S::Resuming, Ev::ResumeFailed) => Go(S::Paused, &[E::Answer]),
        (S::Draining | S::Stopped | S::Deleting, Ev::ResumeDone | Ev::ResumeFailed) => {
            Go(state, &[E::AnswerEnded])
        }
        (_, Ev::ResumeDone | Ev::ResumeFailed) => Ignore,

        (
            S::Created
            | S::Starting
            | S::StartingEnded
            | S::Running
            | S::Pausing
            | S::Paused
            | S::Resuming
            | S::Draining,
            Ev::Kill | Ev::KillAll,
        ) => Go(state, &[E::Signal]),
        (S::Stopped, Ev::KillAll) => Go(state, &[E::Signal]),
        (S::Stopped | S::Deleting | S::Discarding, Ev::Kill | Ev::KillAll) => {
            Refuse(Refusal::AlreadyFinished)
        }

        (S::Created | S::Starting | S::Running, Ev::ExecAdd) => Go(state, &[E::Proceed]),
        (S::Pausing | S::Resuming, Ev::ExecAdd) => Defer,
        (S::Paused, Ev::ExecAdd) => no("cannot exec in a paused state"),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::ExecAdd) => {
            no("cannot exec in a stopped state")
        }
        (S::Created | S::Running, Ev::ExecStart) => Go(state, &[E::Proceed]),
        (S::Starting | S::Pausing | S::Resuming, Ev::ExecStart) => Defer,
        (S::Paused, Ev::ExecStart) => no("cannot exec in a paused state"),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::ExecStart) => {
            Refuse(Refusal::InitNotRunning)
        }

        (
            S::Created | S::Starting | S::Running | S::Pausing | S::Paused | S::Resuming,
            Ev::Update,
        ) => Go(state, &[E::Update]),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::Update) => {
            no("cannot update a stopped container")
        }
        (S::Running | S::Paused, Ev::Checkpoint) => Go(state, &[E::Checkpoint]),
        (S::Starting | S::Pausing | S::Resuming, Ev::Checkpoint) => Defer,
        (S::Created, Ev::Checkpoint) => no("cannot checkpoint a task in created state"),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::Checkpoint) => {
            no("cannot checkpoint a stopped container")
        }
        (
            S::Created | S::Starting | S::Running | S::Pausing | S::Paused | S::Resuming,
            Ev::Resize,
        ) => Go(state, &[E::Resize]),
        // A client's first resize may come after a short life has ended.
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::Resize) => Done,
        (
            S::Created | S::Starting | S::Running | S::Pausing | S::Paused | S::Resuming,
            Ev::CloseStdin,
        ) => Go(state, &[E::CloseStdin]),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::CloseStdin) => Done,

        (S::Created, Ev::Delete) => Go(S::Discarding, &[E::Discard]),
        (S::Stopped, Ev::Delete) => Go(S::Deleting, &[E::Delete]),
        (S::Discarding | S::Deleting, Ev::Delete) => Join,
        (S::Pausing | S::Paused, Ev::Delete) => no("cannot delete a paused process"),
        (S::Starting | S::StartingEnded | S::Running | S::Resuming | S::Draining, Ev::Delete) => {
            no("cannot delete a running process")
        }
        (S::Discarding | S::Deleting, Ev::DeleteDone) => {
            Go(S::Gone, &[E::PublishDeleted, E::Answer])
        }
        (S::Discarding, Ev::DeleteFailed) => Go(S::Created, &[E::Answer]),
        (S::Deleting, Ev::DeleteFailed) => Go(S::Stopped, &[E::Answer]),
        (_, Ev::DeleteDone | Ev::DeleteFailed) => Ignore,

        (S::Created | S::Running | S::Resuming, Ev::Exited) => {
            Go(S::Draining, &[E::HoldExit, E::KillLeftovers])
        }
        (S::Starting, Ev::Exited) => Go(S::StartingEnded, &[E::HoldExit]),
        // A pause that is under way thaws when it reports; see `PauseDone`.
        (S::Pausing, Ev::Exited) => Go(S::Draining, &[E::HoldExit, E::KillLeftovers]),
        (S::Paused, Ev::Exited) => Go(S::Draining, &[E::HoldExit, E::Thaw, E::KillLeftovers]),
        (S::Discarding, Ev::Exited) => Go(S::Deleting, &[E::HoldExit, E::PublishExited]),
        (S::StartingEnded | S::Draining | S::Stopped | S::Deleting, Ev::Exited) => Ignore,
        (S::Draining, Ev::Drained) => Go(S::Stopped, &[E::PublishExited]),
        (_, Ev::Drained) => Ignore,

        (S::Gone, Ev::Exited) => Ignore,
        (S::Creating | S::Discarding | S::Gone, _) => Refuse(Refusal::NotCreated),
    }
}

/// An exec's machine. Whether the container admits the verb is asked of [`next_init`] first.
pub(crate) const fn next_exec(state: ExecState, event: ExecEvent) -> Verdict<ExecState> {
    use Effect as E;
    use ExecEvent as Ev;
    use ExecState as S;
    use Verdict::{Defer, Done, Go, Ignore, Join, Refuse};
    match (state, event) {
        (S::Declared, Ev::Start) => Go(S::Starting, &[E::Start]),
        (S::Starting | S::Running, Ev::Start) => {
            Refuse(Refusal::Precondition("cannot start a running process"))
        }
        (S::Stopped | S::Deleting, Ev::Start) => {
            Refuse(Refusal::Precondition("cannot start a stopped process"))
        }
        (S::Starting, Ev::StartDone) => Go(S::Running, &[E::PublishStarted, E::Answer, E::Watch]),
        (S::Starting, Ev::StartFailed) => Go(S::Declared, &[E::Answer]),
        (_, Ev::StartDone | Ev::StartFailed) => Ignore,

        (S::Running, Ev::Kill) => Go(S::Running, &[E::Signal]),
        (S::Starting, Ev::Kill) => Defer,
        (S::Declared | S::Discarding, Ev::Kill) => Refuse(Refusal::ProcessNotCreated),
        (S::Stopped | S::Deleting, Ev::Kill) => Refuse(Refusal::AlreadyFinished),

        (S::Running, Ev::Resize) => Go(S::Running, &[E::Resize]),
        (S::Starting, Ev::Resize) => Defer,
        (S::Declared, Ev::Resize) => Go(S::Declared, &[E::Remember]),
        (S::Stopped | S::Deleting, Ev::Resize) => {
            Refuse(Refusal::Precondition("cannot resize a stopped container"))
        }
        (S::Running, Ev::CloseStdin) => Go(S::Running, &[E::CloseStdin]),
        (S::Starting, Ev::CloseStdin) => Defer,
        (S::Declared, Ev::CloseStdin) => Go(S::Declared, &[E::Remember]),
        (S::Stopped | S::Deleting, Ev::CloseStdin) => Done,

        (S::Declared, Ev::Delete) => Go(S::Discarding, &[E::Delete]),
        (S::Stopped, Ev::Delete) => Go(S::Deleting, &[E::Delete]),
        (S::Discarding | S::Deleting, Ev::Delete) => Join,
        (S::Starting, Ev::Delete) => Defer,
        (S::Running, Ev::Delete) => {
            Refuse(Refusal::Precondition("cannot delete a running process"))
        }
        (S::Discarding | S::Deleting, Ev::DeleteDone) => Go(S::Gone, &[E::Answer]),
        (S::Discarding, Ev::DeleteFailed) => Go(S::Declared, &[E::Answer]),
        (S::Deleting, Ev::DeleteFailed) => Go(S::Stopped, &[E::Answer]),
        (_, Ev::DeleteDone | Ev::DeleteFailed) => Ignore,

        (S::Running, Ev::Exited) => Go(S::Stopped, &[E::HoldExit, E::PublishExited]),
        (_, Ev::Exited) => Ignore,
        (S::Discarding | S::Gone, _) => Refuse(Refusal::ProcessGone),
    }
}

#[cfg(test)]
mod tests;
