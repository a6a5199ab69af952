//! The task face: what containerd's Task API needs of an execution, beside the contract's verbs.
//!
//! Both faces reach one owner, one record, one fence and one journal. A task call fences on
//! "the current generation, as decided inside the owner", so a kubelet never meets a conflict.

mod backend;
mod error;
mod face;
mod fenced;
mod hub;
mod ledger;
mod limits;
mod machine;
mod owner;
mod record;
mod recover;
mod request;
mod types;
mod view;
mod watcher;

pub use backend::{
    TaskBackend, TaskEnd, TaskExec, TaskInit, TaskObservation, TaskProcess, TaskProvisioned,
    TaskRuntimeEvents,
};
pub use error::TaskError;
pub use machine::{ExecState, InitState};
pub use record::{ExecSlot, InitSlot, TaskRecord};
pub use types::*;

pub(crate) use backend::instant;
pub(crate) use hub::TaskHub;
pub(crate) use owner::{Handle as TaskOwner, manager_error};
pub(crate) use recover::reconcile;
pub(crate) use request::FencedVerb;

use a3sbox_oci::ContainerStats;
use a3sbox_oci::oci_spec::runtime::{LinuxResources, Process};
use async_trait::async_trait;

pub type TaskResult<T> = Result<T, TaskError>;

/// The verbs of containerd's Task API on executions that one shim owns.
///
/// `process` is the exec id; `None` is the init process. Every mutating verb writes its record before
/// it returns, and an effect that began is finished even when the caller hangs up.
#[async_trait]
pub trait TaskManager: Send + Sync {
    /// Task Create: reserves the execution and creates the container without starting it.
    async fn provision(&self, request: ProvisionRequest) -> TaskResult<TaskCreated>;
    /// Task Start of the init process; returns its pid.
    async fn release(&self, key: &TaskKey) -> TaskResult<u32>;
    /// Task Exec: declares an additional process; nothing runs yet.
    async fn exec_add(
        &self,
        key: &TaskKey,
        exec_id: &str,
        process: Process,
        stdio: a3sbox_oci::StdioUris,
    ) -> TaskResult<()>;
    /// Task Start of a declared process; returns its pid.
    async fn exec_start(&self, key: &TaskKey, exec_id: &str) -> TaskResult<u32>;
    /// Task Kill: delivers a signal and changes neither state nor generation.
    async fn signal(
        &self,
        key: &TaskKey,
        process: Option<&str>,
        signal: i32,
        all: bool,
    ) -> TaskResult<()>;
    /// Waits until the process has ended; answers at once, and always the same, afterwards.
    async fn wait(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<TaskExit>;
    /// Task Delete: the only place where the engine's delete runs.
    async fn delete(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<TaskDeleted>;
    async fn pause(&self, key: &TaskKey) -> TaskResult<()>;
    async fn resume(&self, key: &TaskKey) -> TaskResult<()>;
    async fn update(&self, key: &TaskKey, resources: LinuxResources) -> TaskResult<()>;
    async fn resize(
        &self,
        key: &TaskKey,
        process: Option<&str>,
        width: u16,
        height: u16,
    ) -> TaskResult<()>;
    /// Ends the process's standard input after the bytes already written; valid from Created on.
    async fn close_stdin(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<()>;
    /// Every process in the container, with the exec id where it is one that was asked for. Never empty:
    /// a container that ended has its init, by the pid that it had.
    async fn pids(&self, key: &TaskKey) -> TaskResult<Vec<TaskPid>>;
    async fn stats(&self, key: &TaskKey) -> TaskResult<ContainerStats>;
    async fn state(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<TaskState>;
    async fn checkpoint(&self, key: &TaskKey, request: TaskCheckpoint) -> TaskResult<()>;
    /// Takes over a container whose owner died: kills what is left of it, deletes it, cleans up and
    /// reports how its init process ended. A status is there only when somebody saw the exit, or when
    /// this call killed the process itself.
    ///
    /// Refused with `FailedPrecondition` while another owner is alive; `NotFound` without a record.
    async fn task_recover_and_delete(&self, key: &TaskKey) -> TaskResult<TaskDeleted>;
    /// Number of containers that this manager holds; zero lets the shim end.
    fn live(&self) -> usize;
    /// The single stream of events, in the order in which their causes were recorded. `None` when it
    /// was taken already.
    fn take_events(&self) -> Option<tokio::sync::mpsc::Receiver<TaskEvent>>;
}

#[cfg(test)]
pub(crate) mod tests;
