//! The contract's face of the driver: each verb finds its container, and hands over.

use std::sync::Arc;

use a3sbox_oci::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, ContainerRecord,
    ContainerStats, CreateRequest, DeleteProcessRequest, DeleteRequest, Error, ErrorCode,
    EventBatch, EventsRequest, ExecRequest, ExitStatus, FileRequest, FileResponse,
    FilesystemRequest, FilesystemResponse, IsolationClass, KillRequest, ListRequest,
    OciRuntimeService, OutputChunk, PidsRequest, ProcessRecord, ProcessesRequest,
    ReadOutputRequest, ResizeRequest, RestoreRequest, Result, RuntimeInfo, RuntimePid,
    SignalProcessRequest, StartRequest, StateRequest, StatsRequest, UpdateRequest, ValidateRequest,
    WaitProcessRequest, WaitRequest, WriteStdinRequest, async_trait,
};
use tokio::sync::OnceCell;

use crate::config::RuntimeConfig;
use crate::error::RuntimeError;
use crate::events::EventLog;
use crate::native::{
    self, Driver, checkpoint, create, delete, exec, features, files, kill, pause, processes,
    reaper, start, stats, stream, to_the_end, update,
};
use crate::owner::{Container, Registry, record, wrong_state};
use crate::sys;

/// The runtime service of the node's own kernel.
#[derive(Debug)]
pub struct NativeRuntimeService {
    driver: Arc<Driver>,
    info: OnceCell<RuntimeInfo>,
}

impl NativeRuntimeService {
    /// Opens the service on its root and adopts the containers that are there.
    ///
    /// Makes this process a subreaper: the processes of containers become its children, and only so does
    /// it learn how they end. Needs a tokio runtime with I/O and time, the one that the service then runs in.
    ///
    /// Fails when the root cannot be made or read. A single container that cannot be adopted is logged and
    /// left alone.
    pub async fn open(config: RuntimeConfig) -> Result<Arc<Self>> {
        if !config.root.is_absolute() {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!("runtime root {} is not absolute", config.root.display()),
            ));
        }
        a3sbox_durable::folder::create_all(&config.root).map_err(RuntimeError::from)?;
        sys::become_subreaper().map_err(RuntimeError::io("become a subreaper"))?;
        if config.sweep_orphans {
            reaper::start_sweeping().map_err(RuntimeError::io("watch for orphans"))?;
        }
        let driver = Arc::new(Driver {
            config,
            registry: Registry::default(),
            events: Arc::new(EventLog::new()),
            boot_id: record::boot_id(),
        });
        native::adopt::all(&driver).await?;
        Ok(Arc::new(Self {
            driver,
            info: OnceCell::new(),
        }))
    }

    /// Waits until what deleted containers left running on the side, their logging binaries, has ended by
    /// its own deadlines. For the end of the process.
    pub async fn settled(&self) {
        crate::stdio::loggers_settled().await;
    }

    fn find(&self, target: &a3sbox_oci::ContainerTarget) -> Result<Arc<Container>> {
        self.driver.registry.find(target)
    }
}

#[async_trait]
impl OciRuntimeService for NativeRuntimeService {
    async fn features(&self) -> Result<RuntimeInfo> {
        self.info
            .get_or_try_init(|| features::features(&self.driver))
            .await
            .cloned()
    }

    async fn create(&self, request: CreateRequest) -> Result<ContainerRecord> {
        request.validate()?;
        create::create(&self.driver, request).await
    }

    async fn state(&self, request: StateRequest) -> Result<ContainerRecord> {
        Ok(self.find(&request.target)?.record())
    }

    async fn start(&self, request: StartRequest) -> Result<ContainerRecord> {
        let container = self.find(&request.target)?;
        to_the_end(start::start(container, request)).await
    }

    async fn kill(&self, request: KillRequest) -> Result<ContainerRecord> {
        let container = self.find(&request.target)?;
        kill::kill(&container, &request)
    }

    async fn delete(&self, request: DeleteRequest) -> Result<()> {
        delete::delete(self.driver.clone(), request).await
    }

    async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
        request.validate()?;
        let container = self.find(&request.container)?;
        exec::exec(self.driver.clone(), container, request).await
    }

    async fn wait(&self, request: WaitRequest) -> Result<ExitStatus> {
        let container = self.find(&request.target)?;
        let init = container
            .init()
            .ok_or_else(|| wrong_state("wait for", container.status()))?;
        init.wait(request.timeout_ms).await
    }

    async fn list(&self, request: ListRequest) -> Result<Vec<ContainerRecord>> {
        let is_asked_for =
            |class: IsolationClass| request.isolation.is_none_or(|asked| asked == class);
        Ok(self
            .driver
            .registry
            .all()
            .iter()
            .map(|container| container.record())
            .filter(|record| is_asked_for(record.isolation))
            .collect())
    }

    async fn pause(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        let container = self.find(&request.target)?;
        to_the_end(pause::pause(container, request)).await
    }

    async fn resume(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        let container = self.find(&request.target)?;
        to_the_end(pause::resume(container, request)).await
    }

    async fn update(&self, request: UpdateRequest) -> Result<ContainerRecord> {
        request.validate()?;
        let container = self.find(&request.target)?;
        to_the_end(update::update(container, request)).await
    }

    async fn processes(&self, request: ProcessesRequest) -> Result<Vec<ProcessRecord>> {
        Ok(processes::processes(&*self.find(&request.target)?))
    }

    async fn stats(&self, request: StatsRequest) -> Result<ContainerStats> {
        stats::stats(&*self.find(&request.target)?)
    }

    async fn events(&self, request: EventsRequest) -> Result<EventBatch> {
        request.validate()?;
        Ok(self.driver.events.read(&request).await)
    }

    async fn read_output(&self, request: ReadOutputRequest) -> Result<Vec<OutputChunk>> {
        request.validate()?;
        let container = self.find(&request.process.container)?;
        stream::read_output(&container, request).await
    }

    async fn write_stdin(&self, request: WriteStdinRequest) -> Result<()> {
        request.validate()?;
        let container = self.find(&request.process.container)?;
        stream::write_stdin(container, request).await
    }

    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<()> {
        let container = self.find(&request.process.container)?;
        stream::close_stdin(&container, &request)
    }

    async fn resize(&self, request: ResizeRequest) -> Result<()> {
        request.validate()?;
        let container = self.find(&request.process.container)?;
        stream::resize(&container, &request)
    }

    async fn signal_process(&self, request: SignalProcessRequest) -> Result<()> {
        let container = self.find(&request.process.container)?;
        kill::signal_process(&container, &request)
    }

    async fn wait_process(&self, request: WaitProcessRequest) -> Result<ExitStatus> {
        let container = self.find(&request.process.container)?;
        let slot = container.process(&request.process)?;
        slot.wait(request.timeout_ms).await
    }

    async fn file(&self, request: FileRequest) -> Result<FileResponse> {
        request.validate()?;
        let container = self.find(&request.target)?;
        to_the_end(files::file(container, request)).await
    }

    async fn filesystem(&self, request: FilesystemRequest) -> Result<FilesystemResponse> {
        request.validate()?;
        let container = self.find(&request.target)?;
        to_the_end(files::filesystem(container, request)).await
    }

    async fn checkpoint(&self, request: CheckpointRequest) -> Result<ContainerRecord> {
        request.validate()?;
        let container = self.find(&request.target)?;
        to_the_end(checkpoint::checkpoint(container, request)).await
    }

    async fn restore(&self, request: RestoreRequest) -> Result<ContainerRecord> {
        request.validate()?;
        create::restore(&self.driver, request).await
    }

    async fn pids(&self, request: PidsRequest) -> Result<Vec<RuntimePid>> {
        processes::pids(&*self.find(&request.target)?)
    }

    async fn delete_process(&self, request: DeleteProcessRequest) -> Result<()> {
        let container = self.find(&request.process.container)?;
        exec::delete_process(container, request).await
    }
}
