//! The runtime contract: what the execution manager calls and what every runtime implements, in this
//! process, behind a local socket, or inside a guest.
//!
//! What an implementation owes:
//! - **Journal.** The same operation id with an equal request returns the recorded outcome without a second
//!   effect; with another request it is `Conflict`. For `exec` the key is the process id and the whole request.
//! - **Fence.** A target with a generation acts only on that one, else `FailedPrecondition`.
//! - **Evidence.** A record's digests are those of what was submitted; driver and isolation are those really
//!   used. They stay for the generation.
//! - `wait` and `wait_process` never invent a status.

use async_trait::async_trait;

use crate::capability::RuntimeInfo;
use crate::error::{Error, Result};
use crate::request::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, CreateRequest,
    DeleteProcessRequest, DeleteRequest, EventsRequest, ExecRequest, FileRequest,
    FilesystemRequest, KillRequest, ListRequest, PidsRequest, ProcessesRequest, ReadOutputRequest,
    ResizeRequest, RestoreRequest, SignalProcessRequest, StartRequest, StateRequest, StatsRequest,
    UpdateRequest, WaitProcessRequest, WaitRequest, WriteStdinRequest,
};
use crate::response::{
    ContainerRecord, ContainerStats, EventBatch, ExitStatus, FileResponse, FilesystemResponse,
    OutputChunk, ProcessRecord, RuntimePid,
};

/// A container runtime. A verb that a runtime lacks answers `Unsupported` and is absent from its
/// [`RuntimeInfo::operations`].
#[async_trait]
pub trait OciRuntimeService: Send + Sync {
    /// What this runtime can do here and now.
    async fn features(&self) -> Result<RuntimeInfo>;

    /// Makes a container and stops before its process runs. `AlreadyExists` for an id in use.
    async fn create(&self, request: CreateRequest) -> Result<ContainerRecord>;

    /// `NotFound` means that no such container exists.
    async fn state(&self, request: StateRequest) -> Result<ContainerRecord>;

    /// Lets the configured process run; on a running container it answers the current record.
    async fn start(&self, request: StartRequest) -> Result<ContainerRecord>;

    async fn kill(&self, request: KillRequest) -> Result<ContainerRecord>;

    /// Takes a container away; see [`crate::DeleteMode`].
    async fn delete(&self, request: DeleteRequest) -> Result<()>;

    /// Runs a further process. The id must not be `init`.
    async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
        let _ = request;
        Err(Error::unsupported("exec"))
    }

    /// `DeadlineExceeded` while the process runs and the wait budget ended; `FailedPrecondition` when it
    /// ended and its status will never be known.
    async fn wait(&self, request: WaitRequest) -> Result<ExitStatus> {
        let _ = request;
        Err(Error::unsupported("wait"))
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<ContainerRecord>> {
        let _ = request;
        Err(Error::unsupported("list"))
    }

    /// Needs status running; sets the paused annotation.
    async fn pause(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        let _ = request;
        Err(Error::unsupported("pause"))
    }

    /// Needs status running; removes the paused annotation.
    async fn resume(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        let _ = request;
        Err(Error::unsupported("resume"))
    }

    /// Needs a container that runs and is not paused.
    async fn update(&self, request: UpdateRequest) -> Result<ContainerRecord> {
        let _ = request;
        Err(Error::unsupported("update"))
    }

    /// The processes that this runtime was asked to run.
    async fn processes(&self, request: ProcessesRequest) -> Result<Vec<ProcessRecord>> {
        let _ = request;
        Err(Error::unsupported("processes"))
    }

    async fn stats(&self, request: StatsRequest) -> Result<ContainerStats> {
        let _ = request;
        Err(Error::unsupported("stats"))
    }

    async fn events(&self, request: EventsRequest) -> Result<EventBatch> {
        let _ = request;
        Err(Error::unsupported("events"))
    }

    /// Chunks after the cursor; an empty answer means nothing new within the wait.
    async fn read_output(&self, request: ReadOutputRequest) -> Result<Vec<OutputChunk>> {
        let _ = request;
        Err(Error::unsupported("read-output"))
    }

    async fn write_stdin(&self, request: WriteStdinRequest) -> Result<()> {
        let _ = request;
        Err(Error::unsupported("write-stdin"))
    }

    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<()> {
        let _ = request;
        Err(Error::unsupported("close-stdin"))
    }

    async fn resize(&self, request: ResizeRequest) -> Result<()> {
        let _ = request;
        Err(Error::unsupported("resize"))
    }

    async fn signal_process(&self, request: SignalProcessRequest) -> Result<()> {
        let _ = request;
        Err(Error::unsupported("signal-process"))
    }

    /// As [`Self::wait`], for any process.
    async fn wait_process(&self, request: WaitProcessRequest) -> Result<ExitStatus> {
        let _ = request;
        Err(Error::unsupported("wait-process"))
    }

    async fn file(&self, request: FileRequest) -> Result<FileResponse> {
        let _ = request;
        Err(Error::unsupported("file"))
    }

    async fn filesystem(&self, request: FilesystemRequest) -> Result<FilesystemResponse> {
        let _ = request;
        Err(Error::unsupported("filesystem"))
    }

    async fn checkpoint(&self, request: CheckpointRequest) -> Result<ContainerRecord> {
        let _ = request;
        Err(Error::unsupported("checkpoint"))
    }

    async fn restore(&self, request: RestoreRequest) -> Result<ContainerRecord> {
        let _ = request;
        Err(Error::unsupported("restore"))
    }

    /// Every process of a container, by the process ids of the place where the runtime runs.
    async fn pids(&self, request: PidsRequest) -> Result<Vec<RuntimePid>> {
        let _ = request;
        Err(Error::unsupported("pids"))
    }

    /// Forgets a process that ended or was never started; `FailedPrecondition` while it runs.
    async fn delete_process(&self, request: DeleteProcessRequest) -> Result<()> {
        let _ = request;
        Err(Error::unsupported("delete-process"))
    }
}
