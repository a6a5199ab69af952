//! What the task face asks of an execution backend.
//!
//! Each call gets the record as it is stored, and a mutating one its operation context: the same context
//! means the same effect. A backend acts on the exact runtime generation of the record's binding.

use a3sbox_oci::oci_spec::runtime::{LinuxResources, Process};
use a3sbox_oci::{ContainerStats, OperationContext, ProcessId, StdioUris, TerminalSize};
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::types::TaskCheckpoint;
use super::{TaskError, TaskResult};
use crate::{BoxRecord, OciRuntimeBinding};

/// A container that was created and not started.
#[derive(Debug, Clone)]
pub struct TaskProvisioned {
    pub binding: OciRuntimeBinding,
    pub process: TaskInit,
    /// The container has no pid namespace of its own.
    pub kill_leftovers: bool,
}

/// The init process as the host sees it; both are `None` when another kernel runs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskInit {
    pub pid: Option<u32>,
    pub pid_start_time: Option<u64>,
}

/// An exec as it is started.
#[derive(Debug, Clone)]
pub struct TaskExec {
    pub process_id: ProcessId,
    pub process: Process,
    pub stdio: StdioUris,
    pub terminal_size: Option<TerminalSize>,
}

/// How a process ended, as the runtime saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    Seen {
        /// Exit code, or 128 + signal.
        status: u32,
        oom_killed: bool,
        exited_at: DateTime<Utc>,
    },
    /// It has ended and its status will never be known.
    Unknown { reason: String },
}

/// What the runtime says about a container, without changing anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskObservation {
    /// The runtime has no such container.
    Absent,
    Created(TaskInit),
    Running {
        process: TaskInit,
        paused: bool,
    },
    Stopped,
}

/// Runtime events after a cursor, reduced to what a task needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskRuntimeEvents {
    /// Sequence numbers of out-of-memory events, ascending.
    pub out_of_memory: Vec<u64>,
    /// Cursor for the next call.
    pub next: u64,
}

/// One process of a container; `process_id` is set for the init process and for execs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProcess {
    pub pid: u32,
    pub process_id: Option<ProcessId>,
}

/// The task face of an execution backend.
#[async_trait]
pub trait TaskBackend: Send + Sync {
    /// Prepares the bundle and creates the container. After an error nothing of it is left.
    async fn create(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
    ) -> TaskResult<TaskProvisioned>;

    /// Releases the init process.
    async fn start(&self, record: &BoxRecord, context: &OperationContext) -> TaskResult<TaskInit>;

    /// Starts an additional process and returns its pid, zero when this host does not see it.
    async fn exec(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        exec: TaskExec,
    ) -> TaskResult<u32>;

    /// Delivers a signal to the init process, to every process, or to one exec.
    async fn signal(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
        signal: i32,
        all: bool,
    ) -> TaskResult<()>;

    /// Waits without limit for the end of a process. `Unavailable` says nothing about the process.
    async fn wait(&self, record: &BoxRecord, process: &ProcessId) -> TaskResult<TaskEnd>;

    /// Deletes the container and what was prepared for it; a container that is gone is a success.
    async fn delete(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        force: bool,
    ) -> TaskResult<()>;

    /// Forgets an exec that ended or was never started; an unknown one is a success.
    async fn delete_process(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
    ) -> TaskResult<()>;

    async fn pause(&self, record: &BoxRecord, context: &OperationContext) -> TaskResult<()>;

    async fn resume(&self, record: &BoxRecord, context: &OperationContext) -> TaskResult<()>;

    async fn update(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        resources: LinuxResources,
    ) -> TaskResult<()>;

    async fn resize(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
        size: TerminalSize,
    ) -> TaskResult<()>;

    /// Ends the standard input after the bytes that are already in it.
    async fn close_stdin(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
    ) -> TaskResult<()>;

    async fn checkpoint(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        request: &TaskCheckpoint,
    ) -> TaskResult<()>;

    async fn pids(&self, record: &BoxRecord) -> TaskResult<Vec<TaskProcess>>;

    async fn stats(&self, record: &BoxRecord) -> TaskResult<ContainerStats>;

    /// Events after `after`, waiting up to `wait_ms` for the first one.
    async fn events(
        &self,
        record: &BoxRecord,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> TaskResult<TaskRuntimeEvents>;

    async fn inspect(&self, record: &BoxRecord) -> TaskResult<TaskObservation>;
}

impl From<a3sbox_oci::Error> for TaskError {
    fn from(error: a3sbox_oci::Error) -> Self {
        use a3sbox_oci::ErrorCode;
        let text = error.message;
        match error.code {
            ErrorCode::InvalidArgument => Self::InvalidArgument(text),
            ErrorCode::NotFound => Self::NotFound(text),
            ErrorCode::AlreadyExists => Self::AlreadyExists(text),
            ErrorCode::FailedPrecondition | ErrorCode::Conflict => Self::FailedPrecondition(text),
            ErrorCode::Unsupported => Self::Unsupported(text),
            ErrorCode::PermissionDenied => Self::PermissionDenied(text),
            ErrorCode::ResourceExhausted => Self::ResourceExhausted(text),
            ErrorCode::DeadlineExceeded => Self::DeadlineExceeded(text),
            ErrorCode::Unavailable => Self::Unavailable(text),
            _ => Self::Internal(text),
        }
    }
}

impl From<a3sbox_core::ExecutionManagerError> for TaskError {
    fn from(error: a3sbox_core::ExecutionManagerError) -> Self {
        use a3sbox_core::ExecutionManagerError as E;
        let text = error.to_string();
        match error {
            E::InvalidRequest(text) => Self::InvalidArgument(text),
            E::Unavailable(text) => Self::Unavailable(text),
            E::Internal(text) => Self::Internal(text),
            E::NotFound(_) => Self::NotFound(text),
            E::Conflict { .. } => Self::FailedPrecondition(text),
        }
    }
}

/// A timestamp of the runtime's; the present for one that no calendar holds.
pub(crate) fn instant(unix_ns: Option<u64>) -> DateTime<Utc> {
    unix_ns
        .and_then(|ns| i64::try_from(ns).ok())
        .map_or_else(Utc::now, DateTime::from_timestamp_nanos)
}
