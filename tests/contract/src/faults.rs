//! A runtime service that counts, and that loses, refuses or falsifies answers on demand.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use a3sbox_oci::{
    AttachmentCapabilities, CheckpointRequest, CloseStdinRequest, ContainerOperationRequest,
    ContainerRecord, ContainerStats, CreateRequest, DeleteProcessRequest, DeleteRequest, Error,
    ErrorCode, EventBatch, EventsRequest, ExecRequest, ExitStatus, FileRequest, FileResponse,
    FilesystemRequest, FilesystemResponse, KillRequest, ListRequest, OciRuntimeService,
    OperationId, OutputChunk, PidsRequest, ProcessRecord, ProcessesRequest, ReadOutputRequest,
    ResizeRequest, RestoreRequest, Result, RuntimeInfo, RuntimeOperation, RuntimePid,
    SignalProcessRequest, StartRequest, StateRequest, StatsRequest, UpdateRequest,
    WaitProcessRequest, WaitRequest, WriteStdinRequest, async_trait,
};

#[derive(Default)]
struct State {
    calls: Vec<RuntimeOperation>,
    loses: Vec<RuntimeOperation>,
    refuses: Vec<RuntimeOperation>,
    hides: Vec<RuntimeOperation>,
    hides_attachments: bool,
    config_digest: Option<String>,
    attachments_digest: Option<String>,
    updates: Vec<OperationId>,
    execs: Vec<ExecRequest>,
}

/// The switches of a [`Faulty`] service and what it has seen.
#[derive(Default)]
pub struct Faults(Mutex<State>);

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The next call has its effect, and its answer is lost.
    pub fn lose_answer(&self, operation: RuntimeOperation) {
        self.state().loses.push(operation);
    }

    /// The next call fails before it has any effect.
    pub fn refuse(&self, operation: RuntimeOperation) {
        self.state().refuses.push(operation);
    }

    /// The service no longer advertises the operation.
    pub fn hide(&self, operation: RuntimeOperation) {
        self.state().hides.push(operation);
    }

    /// The service advertises no attachment schema.
    pub fn hide_attachments(&self) {
        self.state().hides_attachments = true;
    }

    /// Creates answer with this digest of the config.
    pub fn answer_config_digest(&self, digest: &str) {
        self.state().config_digest = Some(digest.to_owned());
    }

    /// Creates answer with this digest of the attachments.
    pub fn answer_attachments_digest(&self, digest: &str) {
        self.state().attachments_digest = Some(digest.to_owned());
    }

    /// How many calls of a verb reached the service's door.
    pub fn calls(&self, operation: RuntimeOperation) -> usize {
        self.state()
            .calls
            .iter()
            .filter(|call| **call == operation)
            .count()
    }

    /// The operation ids of all updates, in order.
    pub fn updates(&self) -> Vec<OperationId> {
        self.state().updates.clone()
    }

    /// All execs, in order.
    pub fn execs(&self) -> Vec<ExecRequest> {
        self.state().execs.clone()
    }

    fn before(&self, operation: RuntimeOperation) -> Result<()> {
        let mut state = self.state();
        state.calls.push(operation);
        if take(&mut state.refuses, operation) {
            return Err(Error::new(ErrorCode::Unavailable, "refused by the test"));
        }
        Ok(())
    }

    fn after<T>(&self, operation: RuntimeOperation, answer: Result<T>) -> Result<T> {
        // Only an effect that happened can lose its answer: an error is passed on as it is.
        let answer = answer?;
        if take(&mut self.state().loses, operation) {
            return Err(Error::new(ErrorCode::Unavailable, "the answer was lost").retryable(true));
        }
        Ok(answer)
    }
}

fn take(switches: &mut Vec<RuntimeOperation>, operation: RuntimeOperation) -> bool {
    match switches.iter().position(|one| *one == operation) {
        Some(at) => {
            switches.remove(at);
            true
        }
        None => false,
    }
}

/// A service behind switches.
pub struct Faulty {
    inner: Arc<dyn OciRuntimeService>,
    faults: Arc<Faults>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").finish_non_exhaustive()
    }
}

impl Faulty {
    pub fn new(inner: Arc<dyn OciRuntimeService>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

macro_rules! decorate {
    ($($method:ident($request:ty) -> $answer:ty, $operation:ident;)*) => {
        #[async_trait]
        impl OciRuntimeService for Faulty {
            async fn features(&self) -> Result<RuntimeInfo> {
                let mut info = self.inner.features().await?;
                let state = self.faults.state();
                info.operations.retain(|operation| !state.hides.contains(operation));
                if state.hides_attachments {
                    info.attachments = no_attachments();
                }
                Ok(info)
            }

            async fn create(&self, request: CreateRequest) -> Result<ContainerRecord> {
                self.faults.before(RuntimeOperation::Create)?;
                let mut answer = self.inner.create(request).await?;
                let digests = {
                    let state = self.faults.state();
                    (state.config_digest.clone(), state.attachments_digest.clone())
                };
                if let Some(digest) = digests.0 {
                    answer.config_digest = digest;
                }
                if digests.1.is_some() {
                    answer.attachments_digest = digests.1;
                }
                self.faults.after(RuntimeOperation::Create, Ok(answer))
            }

            async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
                self.faults.state().execs.push(request.clone());
                self.faults.before(RuntimeOperation::Exec)?;
                let answer = self.inner.exec(request).await;
                self.faults.after(RuntimeOperation::Exec, answer)
            }

            async fn update(&self, request: UpdateRequest) -> Result<ContainerRecord> {
                self.faults.state().updates.push(request.context.operation_id.clone());
                self.faults.before(RuntimeOperation::Update)?;
                let answer = self.inner.update(request).await;
                self.faults.after(RuntimeOperation::Update, answer)
            }

            $(
                async fn $method(&self, request: $request) -> Result<$answer> {
                    self.faults.before(RuntimeOperation::$operation)?;
                    let answer = self.inner.$method(request).await;
                    self.faults.after(RuntimeOperation::$operation, answer)
                }
            )*
        }
    };
}

decorate! {
    state(StateRequest) -> ContainerRecord, State;
    start(StartRequest) -> ContainerRecord, Start;
    kill(KillRequest) -> ContainerRecord, Kill;
    delete(DeleteRequest) -> (), Delete;
    wait(WaitRequest) -> ExitStatus, Wait;
    list(ListRequest) -> Vec<ContainerRecord>, List;
    pause(ContainerOperationRequest) -> ContainerRecord, Pause;
    resume(ContainerOperationRequest) -> ContainerRecord, Resume;
    processes(ProcessesRequest) -> Vec<ProcessRecord>, Processes;
    stats(StatsRequest) -> ContainerStats, Stats;
    events(EventsRequest) -> EventBatch, Events;
    read_output(ReadOutputRequest) -> Vec<OutputChunk>, ReadOutput;
    write_stdin(WriteStdinRequest) -> (), WriteStdin;
    close_stdin(CloseStdinRequest) -> (), CloseStdin;
    resize(ResizeRequest) -> (), Resize;
    signal_process(SignalProcessRequest) -> (), SignalProcess;
    wait_process(WaitProcessRequest) -> ExitStatus, WaitProcess;
    file(FileRequest) -> FileResponse, File;
    filesystem(FilesystemRequest) -> FilesystemResponse, Filesystem;
    checkpoint(CheckpointRequest) -> ContainerRecord, Checkpoint;
    restore(RestoreRequest) -> ContainerRecord, Restore;
    pids(PidsRequest) -> Vec<RuntimePid>, Pids;
    delete_process(DeleteProcessRequest) -> (), DeleteProcess;
}

fn no_attachments() -> AttachmentCapabilities {
    serde_json::from_value(serde_json::json!({ "schemas": [], "extensions": {} })).unwrap()
}
