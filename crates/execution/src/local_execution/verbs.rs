//! The contract's traits, each method handed to the file of its verb.

use a3sbox_core::{
    CreateExecutionRequest, ExecOutput, ExecRequest, ExecutionEventBatch, ExecutionEventsRequest,
    ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionManager, ExecutionManagerResult,
    ExecutionProcess, ExecutionProcessInventory, ExecutionReservation, ExecutionResourceUpdate,
    ExecutionSessionManager, ExecutionSnapshot, ExecutionSnapshotId, ExecutionStats,
    ExecutionStatus, FileRequest, FileResponse, FilesystemRequest, FilesystemResponse,
    KillExecutionOptions, KillOutcome, LogEntry, OperationId, PtyRequest, ReconcileOutcome,
    RestartExecutionOptions,
};
use async_trait::async_trait;

use super::manager::LocalExecutionManager;
use super::span::{name_container, of_operation, operation};
use crate::store::BoxRecord;
use tracing::Instrument as _;

#[async_trait]
impl ExecutionManager for LocalExecutionManager {
    async fn create(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionReservation> {
        self.create_execution(request, operation_id)
            .instrument(of_operation("create", operation_id))
            .await
    }

    async fn start(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.start_execution(execution_id, generation)
            .instrument(operation("start", execution_id, Some(generation), None))
            .await
    }

    async fn inspect(&self, execution_id: &ExecutionId) -> ExecutionManagerResult<ExecutionStatus> {
        self.inspect_execution(execution_id).await
    }

    async fn read_logs(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<Vec<LogEntry>> {
        self.read_execution_logs(execution_id, generation).await
    }

    async fn list_processes(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        let record = self.require_observable(execution_id, generation, "list the processes of")?;
        self.backend.list_processes(&record).await
    }

    async fn stats(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionStats> {
        let record = self.require_observable(execution_id, generation, "measure")?;
        self.backend.stats(&record).await
    }

    async fn events(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        let record = self.require_observable(execution_id, generation, "follow")?;
        request.validate()?;
        self.backend.events(&record, request).await
    }

    async fn update_resources(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.update_execution(execution_id, generation, operation_id, update)
            .instrument(operation(
                "update",
                execution_id,
                Some(generation),
                Some(operation_id),
            ))
            .await
    }

    async fn create_filesystem_snapshot(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<ExecutionSnapshot> {
        self.snapshot_execution(execution_id, generation, snapshot_id)
            .instrument(operation("snapshot", execution_id, Some(generation), None))
            .await
    }

    async fn filesystem_snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        self.snapshot_size(snapshot_id)
    }

    async fn delete_filesystem_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<bool> {
        self.delete_snapshot(snapshot_id).await
    }

    async fn pause(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        keep_memory: bool,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.pause_execution(execution_id, generation, keep_memory)
            .instrument(operation("pause", execution_id, Some(generation), None))
            .await
    }

    async fn resume(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.resume_execution(execution_id, generation)
            .instrument(operation("resume", execution_id, Some(generation), None))
            .await
    }

    async fn restart_with_options(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.restart_execution(execution_id, generation, operation_id, options)
            .instrument(operation(
                "restart",
                execution_id,
                Some(generation),
                Some(operation_id),
            ))
            .await
    }

    async fn kill(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.kill_execution(execution_id, generation, KillExecutionOptions::default())
            .instrument(operation("kill", execution_id, Some(generation), None))
            .await
    }

    async fn kill_with_options(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        options: KillExecutionOptions,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.kill_execution(execution_id, generation, options)
            .instrument(operation("kill", execution_id, Some(generation), None))
            .await
    }

    async fn remove(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<bool> {
        self.remove_execution(execution_id, generation)
            .instrument(operation("remove", execution_id, Some(generation), None))
            .await
    }

    async fn reconcile(
        &self,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ReconcileOutcome> {
        self.reconcile_operation(operation_id)
            .instrument(of_operation("reconcile", operation_id))
            .await
    }
}

#[async_trait]
impl ExecutionSessionManager for LocalExecutionManager {
    async fn execute(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        let record = self.require_running(execution_id, generation, "run a command in")?;
        self.backend
            .execute(&record, request)
            .instrument(span_of("execute", &record, execution_id, generation))
            .await
    }

    async fn start_process(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        let record = self.require_running(execution_id, generation, "start a process in")?;
        self.backend
            .start_process(&record, request)
            .instrument(span_of("start_process", &record, execution_id, generation))
            .await
    }

    async fn start_pty(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        let record = self.require_running(execution_id, generation, "open a terminal in")?;
        self.backend
            .start_pty(&record, request)
            .instrument(span_of("start_pty", &record, execution_id, generation))
            .await
    }

    async fn transfer_file(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse> {
        let record = self.require_running(execution_id, generation, "transfer a file of")?;
        self.backend
            .transfer_file(&record, request)
            .instrument(span_of("transfer_file", &record, execution_id, generation))
            .await
    }

    async fn filesystem(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        let record = self.require_running(execution_id, generation, "reach the files of")?;
        self.backend
            .filesystem(&record, request)
            .instrument(span_of("filesystem", &record, execution_id, generation))
            .await
    }
}

/// The span of a session's call, whose record is read already.
fn span_of(
    verb: &'static str,
    record: &BoxRecord,
    execution_id: &ExecutionId,
    generation: ExecutionGeneration,
) -> tracing::Span {
    let span = operation(verb, execution_id, Some(generation), None);
    span.in_scope(|| name_container(record));
    span
}
