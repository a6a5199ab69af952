//! One method per verb: each makes exactly one call and hands its answer or error on unchanged.

use a3sbox_core::{
    CreateExecutionRequest, ExecOutput, ExecRequest, ExecutionEventBatch, ExecutionEventsRequest,
    ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionProcessInventory,
    ExecutionReservation, ExecutionResourceUpdate, ExecutionSnapshot, ExecutionSnapshotId,
    ExecutionStats, ExecutionStatus, FileRequest, FileResponse, FilesystemRequest,
    FilesystemResponse, KillOutcome, LogEntry, OperationId, ReconcileOutcome,
    RestartExecutionOptions,
};

use super::error::Result;
use super::handle::A3sBoxClient;

/// Verbs of the execution manager.
impl A3sBoxClient {
    /// Reserves an execution; idempotent by operation id.
    pub async fn create_box(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> Result<ExecutionReservation> {
        Ok(self.executions().create(request, operation_id).await?)
    }

    /// Starts a reserved execution.
    pub async fn start_box(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<ExecutionLease> {
        Ok(self.executions().start(execution_id, generation).await?)
    }

    /// Creates and starts in one call of the manager.
    pub async fn run_box(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> Result<ExecutionLease> {
        Ok(self
            .executions()
            .create_and_start(request, operation_id)
            .await?)
    }

    /// What is true now.
    pub async fn inspect_execution(&self, execution_id: &ExecutionId) -> Result<ExecutionStatus> {
        Ok(self.executions().inspect(execution_id).await?)
    }

    /// Captures the filesystem.
    pub async fn create_execution_snapshot(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> Result<ExecutionSnapshot> {
        Ok(self
            .executions()
            .create_filesystem_snapshot(execution_id, generation, snapshot_id)
            .await?)
    }

    /// `None` for an unknown snapshot.
    pub async fn execution_snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> Result<Option<u64>> {
        Ok(self
            .executions()
            .filesystem_snapshot_size(snapshot_id)
            .await?)
    }

    /// Whether one was deleted.
    pub async fn delete_execution_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> Result<bool> {
        Ok(self
            .executions()
            .delete_filesystem_snapshot(snapshot_id)
            .await?)
    }

    /// The whole recorded log.
    pub async fn read_execution_logs(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<Vec<LogEntry>> {
        Ok(self
            .executions()
            .read_logs(execution_id, generation)
            .await?)
    }

    /// Stops the processes in place.
    pub async fn pause_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        keep_memory: bool,
    ) -> Result<ExecutionLease> {
        Ok(self
            .executions()
            .pause(execution_id, generation, keep_memory)
            .await?)
    }

    /// Undoes a pause.
    pub async fn resume_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<ExecutionLease> {
        Ok(self.executions().resume(execution_id, generation).await?)
    }

    /// Stops and starts again, one generation later.
    pub async fn restart_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> Result<ExecutionLease> {
        Ok(self
            .executions()
            .restart_with_options(execution_id, generation, operation_id, options)
            .await?)
    }

    /// Ends the execution and keeps its record.
    pub async fn kill_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<KillOutcome> {
        Ok(self.executions().kill(execution_id, generation).await?)
    }

    /// Takes the record of an ended execution away.
    pub async fn remove_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<bool> {
        Ok(self.executions().remove(execution_id, generation).await?)
    }

    /// What became of a create that may have been interrupted.
    pub async fn reconcile_operation(
        &self,
        operation_id: &OperationId,
    ) -> Result<ReconcileOutcome> {
        Ok(self.executions().reconcile(operation_id).await?)
    }

    /// The processes that are known by an id.
    pub async fn list_execution_processes(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<ExecutionProcessInventory> {
        Ok(self
            .executions()
            .list_processes(execution_id, generation)
            .await?)
    }

    /// One sample of resource use.
    pub async fn execution_stats(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> Result<ExecutionStats> {
        Ok(self.executions().stats(execution_id, generation).await?)
    }

    /// Events after a cursor.
    pub async fn execution_events(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecutionEventsRequest,
    ) -> Result<ExecutionEventBatch> {
        Ok(self
            .executions()
            .events(execution_id, generation, request)
            .await?)
    }

    /// Changes limits of a live execution.
    pub async fn update_execution_resources(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> Result<ExecutionLease> {
        Ok(self
            .executions()
            .update_resources(execution_id, generation, operation_id, update)
            .await?)
    }
}

/// Sessions. `Validation` on a client that has no session manager.
impl A3sBoxClient {
    /// Runs a command to its end.
    pub async fn execute_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> Result<ExecOutput> {
        Ok(self
            .sessions()?
            .execute(execution_id, generation, request)
            .await?)
    }

    /// Moves one whole file in or out.
    pub async fn transfer_execution_file(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FileRequest,
    ) -> Result<FileResponse> {
        Ok(self
            .sessions()?
            .transfer_file(execution_id, generation, request)
            .await?)
    }

    /// Looks at or changes the filesystem.
    pub async fn filesystem_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FilesystemRequest,
    ) -> Result<FilesystemResponse> {
        Ok(self
            .sessions()?
            .filesystem(execution_id, generation, request)
            .await?)
    }
}
