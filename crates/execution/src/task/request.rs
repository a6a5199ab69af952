//! What callers ask of an owner, and what effects and watchers report to it.

use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_core::{
    ExecutionGeneration, ExecutionManagerError, ExecutionManagerResult, ExecutionResourceUpdate,
    ExecutionSnapshotId, KillExecutionOptions, OperationId,
};
use a3sbox_oci::oci_spec::runtime::{LinuxResources, Process};
use a3sbox_oci::{ProcessId, StdioUris, TerminalSize};
use tokio::sync::oneshot;

use super::backend::{TaskEnd, TaskInit, TaskRuntimeEvents};
use super::ledger::Operation;
use super::machine::{ExecEvent, InitEvent};
use super::types::{TaskCheckpoint, TaskDeleted};
use super::{TaskError, TaskResult};
use crate::BoxRecord;

pub(crate) type Reply<T> = oneshot::Sender<TaskResult<T>>;

/// One call in an owner's queue. A caller that went away is a closed reply; the effect goes on.
#[derive(Debug)]
pub(crate) enum Request {
    Start {
        reply: Reply<u32>,
    },
    ExecAdd {
        exec_id: String,
        process: Box<Process>,
        stdio: StdioUris,
        reply: Reply<()>,
    },
    ExecStart {
        exec_id: String,
        reply: Reply<u32>,
    },
    Signal {
        process: Option<String>,
        signal: i32,
        all: bool,
        reply: Reply<()>,
    },
    Delete {
        process: Option<String>,
        reply: Reply<TaskDeleted>,
    },
    Pause {
        reply: Reply<()>,
    },
    Resume {
        reply: Reply<()>,
    },
    Update {
        resources: Box<LinuxResources>,
        reply: Reply<()>,
    },
    Resize {
        process: Option<String>,
        size: TerminalSize,
        reply: Reply<()>,
    },
    CloseStdin {
        process: Option<String>,
        reply: Reply<()>,
    },
    Checkpoint {
        request: Box<TaskCheckpoint>,
        reply: Reply<()>,
    },
    Fenced(Box<FencedCall>),
}

/// A verb of the contract, with the generation that its caller decided on.
#[derive(Debug)]
pub(crate) struct FencedCall {
    pub(crate) generation: ExecutionGeneration,
    pub(crate) operation_id: OperationId,
    pub(crate) verb: FencedVerb,
    pub(crate) reply: FencedReply,
}

#[derive(Debug)]
pub(crate) enum FencedVerb {
    Pause,
    Resume,
    Update(ExecutionResourceUpdate),
    Snapshot {
        snapshot_id: ExecutionSnapshotId,
        /// Where snapshots are published.
        home: PathBuf,
    },
    Kill(KillExecutionOptions),
}

/// The record behind the verb, and whether there was nothing left to do.
#[derive(Debug, Clone)]
pub(crate) struct FencedAnswer {
    pub(crate) record: Arc<BoxRecord>,
    pub(crate) is_already: bool,
}

pub(crate) type FencedReply = oneshot::Sender<ExecutionManagerResult<FencedAnswer>>;

/// Who waits for an effect that both faces have.
#[derive(Debug)]
pub(crate) enum Caller {
    Task(Reply<()>),
    Fenced(FencedReply),
}

impl FencedVerb {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Update(_) => "update",
            Self::Snapshot { .. } => "snapshot",
            Self::Kill(_) => "kill",
        }
    }

    pub(crate) const fn event(&self) -> InitEvent {
        match self {
            Self::Pause => InitEvent::FencedPause,
            Self::Resume => InitEvent::FencedResume,
            Self::Update(_) => InitEvent::FencedUpdate,
            Self::Snapshot { .. } => InitEvent::FencedSnapshot,
            Self::Kill(_) => InitEvent::FencedKill,
        }
    }
}

impl Request {
    /// The event for the init process's machine; `None` for a verb on an exec, which its own machine
    /// decides.
    pub(crate) fn init_event(&self) -> Option<InitEvent> {
        Some(match self {
            Self::Start { .. } => InitEvent::Start,
            Self::ExecAdd { .. } => InitEvent::ExecAdd,
            Self::ExecStart { .. } => InitEvent::ExecStart,
            Self::Signal {
                process: None,
                all: true,
                ..
            } => InitEvent::KillAll,
            Self::Signal { process: None, .. } => InitEvent::Kill,
            Self::Delete { process: None, .. } => InitEvent::Delete,
            Self::Pause { .. } => InitEvent::Pause,
            Self::Resume { .. } => InitEvent::Resume,
            Self::Update { .. } => InitEvent::Update,
            Self::Resize { process: None, .. } => InitEvent::Resize,
            Self::CloseStdin { process: None, .. } => InitEvent::CloseStdin,
            Self::Checkpoint { .. } => InitEvent::Checkpoint,
            Self::Fenced(call) => call.verb.event(),
            Self::Signal { .. }
            | Self::Delete { .. }
            | Self::Resize { .. }
            | Self::CloseStdin { .. } => return None,
        })
    }

    /// The exec that the request is about, and the event for its machine.
    pub(crate) fn exec_event(&self) -> Option<(&str, ExecEvent)> {
        Some(match self {
            Self::ExecStart { exec_id, .. } => (exec_id, ExecEvent::Start),
            Self::Signal {
                process: Some(exec_id),
                ..
            } => (exec_id, ExecEvent::Kill),
            Self::Delete {
                process: Some(exec_id),
                ..
            } => (exec_id, ExecEvent::Delete),
            Self::Resize {
                process: Some(exec_id),
                ..
            } => (exec_id, ExecEvent::Resize),
            Self::CloseStdin {
                process: Some(exec_id),
                ..
            } => (exec_id, ExecEvent::CloseStdin),
            _ => return None,
        })
    }

    pub(crate) fn refuse(self, error: TaskError) {
        match self {
            Self::Start { reply } | Self::ExecStart { reply, .. } => answer(reply, Err(error)),
            Self::Delete { reply, .. } => answer(reply, Err(error)),
            Self::ExecAdd { reply, .. }
            | Self::Signal { reply, .. }
            | Self::Pause { reply }
            | Self::Resume { reply }
            | Self::Update { reply, .. }
            | Self::Resize { reply, .. }
            | Self::CloseStdin { reply, .. }
            | Self::Checkpoint { reply, .. } => answer(reply, Err(error)),
            Self::Fenced(call) => {
                let refusal = ExecutionManagerError::Internal(error.to_string());
                let _ = call.reply.send(Err(refusal));
            }
        }
    }

    /// Answers a verb that is already satisfied.
    pub(crate) fn succeed(self) {
        match self {
            Self::CloseStdin { reply, .. } | Self::Resize { reply, .. } => answer(reply, Ok(())),
            other => other.refuse(TaskError::Internal(
                "a verb was satisfied by nothing".to_owned(),
            )),
        }
    }
}

/// Hands an answer to a caller; one that hung up does not need it.
pub(crate) fn answer<T>(reply: Reply<T>, result: TaskResult<T>) {
    let _ = reply.send(result);
}

/// What came back. The owner takes reports before requests.
#[derive(Debug)]
pub(crate) enum Report {
    Started {
        operation: Operation,
        reply: Reply<u32>,
        result: TaskResult<TaskInit>,
    },
    ExecStarted {
        operation: Operation,
        exec_id: String,
        process_id: ProcessId,
        reply: Reply<u32>,
        result: TaskResult<u32>,
    },
    Paused {
        operation: Operation,
        caller: Caller,
        result: TaskResult<()>,
    },
    Resumed {
        operation: Operation,
        caller: Caller,
        result: TaskResult<()>,
    },
    /// A claimed resource update.
    Updated {
        operation: Operation,
        update: ExecutionResourceUpdate,
        reply: FencedReply,
        result: ExecutionManagerResult<()>,
    },
    /// A snapshot; `is_frozen` when the container could not be thawed behind the capture.
    Captured {
        operation: Operation,
        reply: FencedReply,
        is_frozen: bool,
        result: ExecutionManagerResult<()>,
    },
    /// A program's kill was delivered, and escalated where it had to be. True when nothing ran any more.
    Killed {
        operation: Operation,
        reply: FencedReply,
        result: TaskResult<bool>,
    },
    Deleted {
        operation: Operation,
        result: TaskResult<()>,
    },
    ExecDeleted {
        operation: Operation,
        exec_id: String,
        result: TaskResult<()>,
    },
    /// An effect that changes no state. `reply` is `None` when nobody asked.
    Settled {
        operation: Operation,
        checkpoint: Option<PathBuf>,
        reply: Option<Reply<()>>,
        result: TaskResult<()>,
    },
    /// `exec_id` is `None` for the init process.
    Exited {
        exec_id: Option<String>,
        process_id: ProcessId,
        end: TaskEnd,
        events: TaskRuntimeEvents,
    },
    RuntimeEvents(TaskRuntimeEvents),
}
