//! Reconcile: from a create's operation id to what became of it.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult, OperationId, ReconcileOutcome};

use super::evidence::{lease, reservation};
use super::manager::LocalExecutionManager;
use crate::store::{BoxRecord, ManagedExecutionState};

impl LocalExecutionManager {
    pub(super) async fn reconcile_operation(
        &self,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ReconcileOutcome> {
        let Some(record) = self.store.find_operation(operation_id)? else {
            return Ok(ReconcileOutcome::Absent);
        };
        let execution_id = record.execution_id()?;
        if let Some(state) = self.task_truth(&record).await? {
            let is_true = state == record.state()?;
            return match state {
                _ if is_true => as_recorded(&record),
                ManagedExecutionState::Stopped | ManagedExecutionState::Failed => {
                    Ok(ReconcileOutcome::Failed)
                }
                // What runs without its owner is its container's delete's to end, and nobody's to adopt.
                _ => Err(ExecutionManagerError::Unavailable(format!(
                    "execution {execution_id} has lost its owner and is {state}"
                ))),
            };
        }
        if self.active.contains(&execution_id) {
            return as_recorded(&record);
        }
        if record.state()? == ManagedExecutionState::Removing {
            self.finish_removal(&record).await?;
            return Ok(ReconcileOutcome::Absent);
        }
        as_recorded(&self.settle(record).await?)
    }
}

fn as_recorded(record: &BoxRecord) -> ExecutionManagerResult<ReconcileOutcome> {
    match record.state()? {
        ManagedExecutionState::Created => Ok(ReconcileOutcome::Created(reservation(record)?)),
        ManagedExecutionState::Creating
        | ManagedExecutionState::Starting
        | ManagedExecutionState::RestartStarting => Ok(ReconcileOutcome::Creating),
        ManagedExecutionState::Running | ManagedExecutionState::Paused => {
            Ok(ReconcileOutcome::Ready(lease(record)?))
        }
        ManagedExecutionState::Stopped
        | ManagedExecutionState::Failed
        | ManagedExecutionState::Removing => Ok(ReconcileOutcome::Failed),
        state @ (ManagedExecutionState::Pausing
        | ManagedExecutionState::Resuming
        | ManagedExecutionState::UpdatingResources
        | ManagedExecutionState::Snapshotting
        | ManagedExecutionState::Killing
        | ManagedExecutionState::RestartStopping) => Err(ExecutionManagerError::Unavailable(
            format!("execution {} is {state}", record.id),
        )),
    }
}
