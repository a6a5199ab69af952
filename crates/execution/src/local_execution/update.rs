//! Resource update: one effect per operation id, whoever asks again.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionManagerError,
    ExecutionManagerResult, ExecutionResourceUpdate, OperationId,
};

use super::evidence::{internal, lease, unknown_outcome, wrong_state};
use super::manager::LocalExecutionManager;
use super::observe::Seen;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, RuntimeUpdate};
use crate::task::FencedVerb;

use ManagedExecutionState as State;

impl LocalExecutionManager {
    pub(super) async fn update_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let record = self.require_current(execution_id, generation)?;
        update.validate()?;
        let metadata = record.metadata()?;
        if let Some(done) = metadata.completed_update(operation_id) {
            return if done.update == update {
                lease(&record)
            } else {
                Err(reused(execution_id))
            };
        }
        if let Some(owner) = self.owner_of(&record, "update")? {
            self.backend
                .preflight_resource_update(&record, &update)
                .await?;
            let verb = FencedVerb::Update(update);
            let updated = owner.fenced(generation, operation_id.clone(), verb).await?;
            return lease(&updated.record);
        }
        let state = record.state()?;
        let is_pending = match &metadata.pending_operation {
            Some(ManagedExecutionOperation::UpdateResources {
                operation_id: pending,
                update: claimed,
            }) if pending == operation_id => {
                if *claimed != update {
                    return Err(reused(execution_id));
                }
                true
            }
            _ => false,
        };
        if !(state == State::Running || is_pending && !self.active.contains(execution_id)) {
            return Err(wrong_state(execution_id, "update", state));
        }
        if !is_pending {
            self.backend
                .preflight_resource_update(&record, &update)
                .await?;
        }
        let claim = RuntimeUpdate::ResourceUpdateClaim {
            operation_id: operation_id.clone(),
            update,
        };
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let claimed = if is_pending {
                record
            } else {
                manager
                    .transition(&record, State::Running, State::UpdatingResources, claim)
                    .await?
            };
            lease(&manager.settle_update(claimed).await?)
        })
        .await
    }

    /// The effect of a claimed update, first or again: the backend deduplicates by the operation id.
    pub(super) async fn settle_update(
        &self,
        claimed: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let Some(ManagedExecutionOperation::UpdateResources {
            operation_id,
            update,
        }) = &claimed.metadata()?.pending_operation
        else {
            return Err(internal(format!(
                "execution {} has no pending resource update",
                claimed.id
            )));
        };
        let error = match self
            .backend
            .update_resources(&claimed, operation_id, update)
            .await
        {
            Ok(()) => {
                return self
                    .transition(
                        &claimed,
                        State::UpdatingResources,
                        State::Running,
                        RuntimeUpdate::ResourceUpdateComplete,
                    )
                    .await;
            }
            Err(error) => error,
        };
        match self.look(&claimed).await {
            Ok(Seen::Ended { state, exit_code }) => {
                self.end(&claimed, state, exit_code).await?;
            }
            Ok(Seen::Absent | Seen::AnotherBoot) => {
                self.end(&claimed, State::Stopped, None).await?;
            }
            // Refused for good: no later attempt can do better, and nothing took effect.
            Ok(Seen::Live { .. }) if matches!(error, ExecutionManagerError::InvalidRequest(_)) => {
                self.transition(
                    &claimed,
                    State::UpdatingResources,
                    State::Running,
                    RuntimeUpdate::None,
                )
                .await?;
            }
            Ok(Seen::Live { .. } | Seen::Pending) => {}
            Err(look) => return Err(unknown_outcome(&error, &look)),
        }
        Err(error)
    }
}

fn reused(execution_id: &ExecutionId) -> ExecutionManagerError {
    ExecutionManagerError::Conflict {
        execution_id: execution_id.clone(),
        message: "the operation id was used for another resource update".to_owned(),
    }
}
