//! The trait of execution managers.

use async_trait::async_trait;

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::event::{ExecutionEventBatch, ExecutionEventsRequest};
use crate::execution::{
    ExecutionLease, ExecutionReservation, ExecutionStatus, KillExecutionOptions, KillOutcome,
    ReconcileOutcome, RestartExecutionOptions,
};
use crate::generation::ExecutionGeneration;
use crate::ids::{ExecutionId, ExecutionSnapshotId, OperationId};
use crate::log::LogEntry;
use crate::process::ExecutionProcessInventory;
use crate::request::CreateExecutionRequest;
use crate::resources::ExecutionResourceUpdate;
use crate::snapshot::ExecutionSnapshot;
use crate::stats::ExecutionStats;

/// The verbs on executions.
///
/// A generation that is not the current one is refused with `Conflict` before anything happens; an
/// unknown or removed execution with `NotFound`, except where a verb says otherwise. A verb that a
/// manager does not have answers `Unavailable`.
#[async_trait]
pub trait ExecutionManager: Send + Sync {
    /// Reserves an execution durably. Idempotent by operation id: equal content gives the same
    /// execution, other content is `Conflict`.
    async fn create(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionReservation> {
        let _ = (request, operation_id);
        Err(absent("create"))
    }

    /// Starts a reserved execution; a running one gives its lease again.
    async fn start(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let _ = (execution_id, generation);
        Err(absent("start"))
    }

    /// `create` and `start` in one. Idempotent by operation id, as `create` is.
    async fn create_and_start(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let reservation = self.create(request, operation_id).await?;
        self.start(&reservation.execution_id, reservation.generation)
            .await
    }

    /// What is true now, after a look at the backend.
    async fn inspect(&self, execution_id: &ExecutionId) -> ExecutionManagerResult<ExecutionStatus>;

    /// The whole recorded console log, in order.
    async fn read_logs(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<Vec<LogEntry>> {
        let _ = (execution_id, generation);
        Err(absent("read_logs"))
    }

    /// The processes that are known by an id.
    async fn list_processes(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        let _ = (execution_id, generation);
        Err(absent("list_processes"))
    }

    /// One sample of resource use.
    async fn stats(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionStats> {
        let _ = (execution_id, generation);
        Err(absent("stats"))
    }

    /// Events after a cursor, waiting for some when the request says so.
    async fn events(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        let _ = (execution_id, generation, request);
        Err(absent("events"))
    }

    /// Changes limits of a live execution. Idempotent by operation id.
    async fn update_resources(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let _ = (execution_id, generation, operation_id, update);
        Err(absent("update_resources"))
    }

    /// Captures the filesystem. The answer has the stable state restored afterwards and the generation
    /// valid from then on.
    async fn create_filesystem_snapshot(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<ExecutionSnapshot> {
        let _ = (execution_id, generation, snapshot_id);
        Err(absent("create_filesystem_snapshot"))
    }

    /// `None` for an unknown id.
    async fn filesystem_snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        let _ = snapshot_id;
        Err(absent("filesystem_snapshot_size"))
    }

    /// Whether one was deleted.
    async fn delete_filesystem_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<bool> {
        let _ = snapshot_id;
        Err(absent("delete_filesystem_snapshot"))
    }

    /// Stops the execution's processes in place; the lease has the generation valid from then on.
    async fn pause(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        keep_memory: bool,
    ) -> ExecutionManagerResult<ExecutionLease>;

    /// Undoes a pause; the lease has the generation valid from then on.
    async fn resume(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease>;

    /// `restart_with_options` with the default options.
    async fn restart(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.restart_with_options(
            execution_id,
            generation,
            operation_id,
            RestartExecutionOptions::default(),
        )
        .await
    }

    /// Stops and starts again, one generation later. A completed operation id gives the lease that its
    /// restart led to and restarts nothing, although the caller's generation is stale by then.
    async fn restart_with_options(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let _ = (execution_id, generation, operation_id, options);
        Err(absent("restart_with_options"))
    }

    /// Ends the execution and keeps its record; a stopped one is `AlreadyStopped`.
    async fn kill(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<KillOutcome>;

    /// `kill`, with a signal and a patience of the caller's where the manager can honour them.
    async fn kill_with_options(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        options: KillExecutionOptions,
    ) -> ExecutionManagerResult<KillOutcome> {
        let _ = options;
        self.kill(execution_id, generation).await
    }

    /// Takes the record away. Demands `Created`, `Stopped` or `Failed`, never kills; `Ok(false)` when it
    /// was removed already.
    async fn remove(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<bool> {
        let _ = (execution_id, generation);
        Err(absent("remove"))
    }

    /// What became of a create that may have been interrupted.
    async fn reconcile(
        &self,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ReconcileOutcome>;
}

fn absent(verb: &str) -> ExecutionManagerError {
    ExecutionManagerError::Unavailable(format!("this manager has no {verb}"))
}

#[cfg(test)]
mod tests;
