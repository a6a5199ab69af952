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
//!
//!  Running ─ update ─► Updating ─► Running          Running ─ snapshot ─► Snapshotting ─► Running
//!  Paused ─ snapshot ─► SnapshottingPaused ─► Paused     all that live ─ kill ─► Killing ─ exit ─► Draining
//! ```
//!
//! Both faces are in it: the task's verbs, which kubelet repeats and which therefore wait for what is under
//! way, and the contract's ([`InitEvent::FencedPause`] and the like), which are refused instead. The live
//! path and recovery go through [`next_init`] and [`next_exec`]; there is no clock, no file and no log here.
//! The generation is not theirs: it follows from the durable state ([`crate::ManagedExecutionState::step_to`]).
//! The whole tables are in `docs/state-machine.md`, made from this code. Texts are those of containerd's
//! runc shim (`process/init_state.go`, `process/exec_state.go`, `process/utils.go`, `task/service.go`), which
//! ctr, nerdctl and kubelet know.

mod exec;
mod init;

use serde::{Deserialize, Serialize};

use super::TaskError;
use crate::ManagedExecutionState;

pub(crate) use exec::next_exec;
pub(crate) use init::next_init;

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
    /// A resource update of a program's is under way.
    Updating,
    /// A running container is frozen, captured and thawed.
    Snapshotting,
    /// A paused container is captured; it stays paused.
    SnapshottingPaused,
    /// A program's kill was claimed; the exit is still to come.
    Killing,
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
    /// The verbs of the contract: fenced by the caller's generation before the machine is asked, never
    /// deferred, and a conflict where the state does not fit.
    FencedPause,
    FencedResume,
    FencedUpdate,
    FencedUpdateDone,
    FencedUpdateFailed,
    FencedSnapshot,
    FencedSnapshotDone,
    FencedSnapshotFailed,
    /// The container could not be thawed behind the capture.
    FencedSnapshotFrozen,
    FencedKill,
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
    /// The claimed resource update of a program.
    UpdateClaimed,
    /// Freeze, capture and thaw under a snapshot's claim.
    Capture,
    /// A program's kill: signal, patience, SIGKILL.
    Kill,
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
    /// What is captured from now on is no moment of the container: it is not published.
    CancelCapture,
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
    /// A fenced verb in a state that it does not fit, or against a claim that is under way.
    Conflict,
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
            // A program's call is answered with the verb and the state; this is for the journal alone.
            Self::Conflict => TaskError::FailedPrecondition(
                "the state does not fit: failed precondition".to_owned(),
            ),
            Self::Precondition(text) => TaskError::WrongState(text.to_owned()),
        }
    }
}

impl InitState {
    /// The process's fate is settled: nothing of it runs any more.
    pub(crate) const fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Deleting | Self::Gone)
    }

    /// The durable state that stands for this one, where `recorded` is what is recorded so far. A drain
    /// keeps it, since the exit is not yet told, and so does a discard, which may fail and leave the
    /// container created.
    pub(crate) const fn durable(self, recorded: ManagedExecutionState) -> ManagedExecutionState {
        use ManagedExecutionState as M;
        match self {
            Self::Creating => M::Creating,
            Self::Created => M::Created,
            Self::Starting | Self::StartingEnded => M::Starting,
            Self::Running => M::Running,
            Self::Pausing => M::Pausing,
            Self::Paused => M::Paused,
            Self::Resuming => M::Resuming,
            Self::Updating => M::UpdatingResources,
            Self::Snapshotting | Self::SnapshottingPaused => M::Snapshotting,
            Self::Killing => M::Killing,
            Self::Draining | Self::Discarding => recorded,
            Self::Stopped | Self::Deleting | Self::Gone => M::Stopped,
        }
    }
}

impl ExecState {
    /// Its exit is still to come.
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

#[cfg(test)]
mod doc;
#[cfg(test)]
mod tests;
