//! The runtime contract over the recorded state.

use a3sbox_oci::{
    CloseStdinRequest, ContainerOperationRequest, ContainerRecord, ContainerStats, CreateRequest,
    DeleteRequest, EventBatch, EventsRequest, ExecRequest, ExitStatus, FileRequest, FileResponse,
    FilesystemRequest, FilesystemResponse, KillRequest, OciRuntimeService, OutputChunk,
    ProcessRecord, ProcessesRequest, ReadOutputRequest, ResizeRequest, Result, RuntimeInfo,
    RuntimeOperation, SignalProcessRequest, StartRequest, StateRequest, StatsRequest,
    UpdateRequest, WaitProcessRequest, WaitRequest, WriteStdinRequest, async_trait,
};

use super::RecordingRuntime;

#[async_trait]
impl OciRuntimeService for RecordingRuntime {
    async fn features(&self) -> Result<RuntimeInfo> {
        self.report().decode()
    }

    async fn create(&self, request: CreateRequest) -> Result<ContainerRecord> {
        self.locked().create(request)
    }

    async fn state(&self, request: StateRequest) -> Result<ContainerRecord> {
        self.locked().state(&request)
    }

    async fn start(&self, request: StartRequest) -> Result<ContainerRecord> {
        self.locked().start(request)
    }

    async fn kill(&self, request: KillRequest) -> Result<ContainerRecord> {
        self.locked().kill(&request)
    }

    async fn delete(&self, request: DeleteRequest) -> Result<()> {
        self.locked().delete(&request)
    }

    async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
        self.locked().exec(request)
    }

    async fn wait(&self, request: WaitRequest) -> Result<ExitStatus> {
        self.locked().wait(&request)
    }

    async fn pause(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        self.locked().toggle(RuntimeOperation::Pause, request)
    }

    async fn resume(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        self.locked().toggle(RuntimeOperation::Resume, request)
    }

    async fn update(&self, request: UpdateRequest) -> Result<ContainerRecord> {
        self.locked().update(request)
    }

    async fn processes(&self, request: ProcessesRequest) -> Result<Vec<ProcessRecord>> {
        self.locked().processes(request)
    }

    async fn stats(&self, request: StatsRequest) -> Result<ContainerStats> {
        self.locked().stats(request)
    }

    async fn events(&self, request: EventsRequest) -> Result<EventBatch> {
        self.locked().events(request)
    }

    async fn read_output(&self, request: ReadOutputRequest) -> Result<Vec<OutputChunk>> {
        self.locked().read_output(request)
    }

    async fn write_stdin(&self, request: WriteStdinRequest) -> Result<()> {
        self.locked().write_stdin(request)
    }

    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<()> {
        self.locked().close_stdin(request)
    }

    async fn resize(&self, request: ResizeRequest) -> Result<()> {
        self.locked().resize(request)
    }

    async fn signal_process(&self, request: SignalProcessRequest) -> Result<()> {
        self.locked().signal_process(request)
    }

    async fn wait_process(&self, request: WaitProcessRequest) -> Result<ExitStatus> {
        self.locked().wait_process(request)
    }

    async fn file(&self, request: FileRequest) -> Result<FileResponse> {
        self.locked().file(request)
    }

    async fn filesystem(&self, request: FilesystemRequest) -> Result<FilesystemResponse> {
        self.locked().filesystem(request)
    }
}
