//! Restart: stop, advance the generation, start; one claim over both halves.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionManagerError,
    ExecutionManagerResult, Fence, OperationId, RestartExecutionOptions,
};

use super::evidence::{internal, lease, wrong_state};
use super::manager::LocalExecutionManager;
use super::owner::not_ours;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, RuntimeUpdate};

impl LocalExecutionManager {
    pub(super) async fn restart_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let record = self.require(execution_id)?;
        if record.metadata()?.task.is_some() {
            Fence::new(execution_id, record.generation()?).admit(generation)?;
            return Err(not_ours(&record, "restart"));
        }
        // A completed or pending restart made the caller's generation stale: its identity comes first.
        if let Some(done) = completed(&record, execution_id, operation_id, options)? {
            return Ok(done);
        }
        let state = record.state()?;
        let is_pending = is_pending(&record, execution_id, operation_id, options)?;
        if is_pending && self.active.contains(execution_id) {
            return Err(wrong_state(execution_id, "restart", state));
        }
        if !is_pending {
            Fence::new(execution_id, record.generation()?).admit(generation)?;
            if state
                .step_to(ManagedExecutionState::RestartStopping)
                .is_err()
            {
                return Err(wrong_state(execution_id, "restart", state));
            }
        }
        let claim = RuntimeUpdate::RestartClaim {
            operation_id: operation_id.clone(),
            stop_timeout_secs: options.stop_timeout_secs,
        };
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        let execution_id = execution_id.clone();
        Self::to_the_end(async move {
            let _working = working;
            let restarted = if is_pending {
                manager.settle(record).await?
            } else {
                let claimed = manager
                    .transition(
                        &record,
                        state,
                        ManagedExecutionState::RestartStopping,
                        claim,
                    )
                    .await?;
                manager.restart_claimed(claimed).await?
            };
            match restarted.state()? {
                ManagedExecutionState::Running => lease(&restarted),
                state => Err(wrong_state(&execution_id, "restart", state)),
            }
        })
        .await
    }

    /// Both effects of a restart that is claimed and not stopped yet. The stop is repeated after a crash;
    /// a stopped execution stops once more without effect.
    pub(super) async fn restart_claimed(
        &self,
        claimed: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let Some(ManagedExecutionOperation::Restart {
            stop_timeout_secs, ..
        }) = claimed.metadata()?.pending_operation
        else {
            return Err(internal(format!(
                "execution {} has no pending restart",
                claimed.id
            )));
        };
        match self
            .backend
            .stop_for_restart(&claimed, stop_timeout_secs)
            .await
        {
            // It never ran, or is gone already: nothing is left to stop.
            Ok(_) | Err(ExecutionManagerError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let advanced = self
            .transition(
                &claimed,
                ManagedExecutionState::RestartStopping,
                ManagedExecutionState::RestartStarting,
                RuntimeUpdate::RestartAdvance,
            )
            .await?;
        self.start_claimed(advanced).await
    }
}

/// The lease of a completed restart with this identity.
fn completed(
    record: &BoxRecord,
    execution_id: &ExecutionId,
    operation_id: &OperationId,
    options: RestartExecutionOptions,
) -> ExecutionManagerResult<Option<ExecutionLease>> {
    let metadata = record.metadata()?;
    let Some(done) = metadata
        .last_restart
        .as_ref()
        .filter(|done| done.operation_id == *operation_id)
    else {
        return Ok(None);
    };
    if done.stop_timeout_secs != options.stop_timeout_secs {
        return Err(reused(execution_id));
    }
    Ok(Some(ExecutionLease {
        execution_id: execution_id.clone(),
        generation: done.generation,
        plan: metadata.plan.clone(),
        resources: metadata.request.config.resources.clone(),
        started_at: done.started_at,
    }))
}

fn is_pending(
    record: &BoxRecord,
    execution_id: &ExecutionId,
    wanted: &OperationId,
    options: RestartExecutionOptions,
) -> ExecutionManagerResult<bool> {
    match &record.metadata()?.pending_operation {
        Some(ManagedExecutionOperation::Restart {
            operation_id,
            stop_timeout_secs,
        }) if operation_id == wanted => {
            if *stop_timeout_secs == options.stop_timeout_secs {
                Ok(true)
            } else {
                Err(reused(execution_id))
            }
        }
        _ => Ok(false),
    }
}

fn reused(execution_id: &ExecutionId) -> ExecutionManagerError {
    ExecutionManagerError::Conflict {
        execution_id: execution_id.clone(),
        message: "the operation id was used for a restart with other options".to_owned(),
    }
}
