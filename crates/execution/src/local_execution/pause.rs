//! Pause: a claim with an identity of its own, completed or rolled back by what the runtime shows.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionManagerError, ExecutionManagerResult,
};

use super::claims::mint;
use super::evidence::{lease, unknown_outcome, wrong_state};
use super::manager::LocalExecutionManager;
use crate::store::{BoxRecord, ManagedExecutionState, RuntimeUpdate};
use crate::task::FencedVerb;

impl LocalExecutionManager {
    pub(super) async fn pause_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        keep_memory: bool,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let record = self.require_current(execution_id, generation)?;
        if let Some(owner) = self.owner_of(&record, "pause")? {
            if !keep_memory {
                return Err(ExecutionManagerError::Unavailable(
                    "a containerd task is paused in place and keeps its memory".to_owned(),
                ));
            }
            let paused = owner
                .fenced(generation, mint("pause")?, FencedVerb::Pause)
                .await?;
            return lease(&paused.record);
        }
        let state = record.state()?;
        if state != ManagedExecutionState::Running {
            return Err(wrong_state(execution_id, "pause", state));
        }
        let claim = RuntimeUpdate::PauseClaim {
            keep_memory,
            operation_id: mint("pause")?,
        };
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let claimed = manager
                .transition(&record, state, ManagedExecutionState::Pausing, claim)
                .await?;
            lease(&manager.pause_claimed(claimed, keep_memory).await?)
        })
        .await
    }

    async fn pause_claimed(
        &self,
        claimed: BoxRecord,
        keep_memory: bool,
    ) -> ExecutionManagerResult<BoxRecord> {
        match self.backend.pause(&claimed, keep_memory).await {
            Ok(handle) => {
                let update = if keep_memory {
                    RuntimeUpdate::Handle(Box::new(handle))
                } else {
                    RuntimeUpdate::ColdPause
                };
                self.transition(
                    &claimed,
                    ManagedExecutionState::Pausing,
                    ManagedExecutionState::Paused,
                    update,
                )
                .await
            }
            Err(error) => match self.settle_by_look(claimed).await {
                Ok(settled) if settled.state()? == ManagedExecutionState::Paused => Ok(settled),
                Ok(_) => Err(error),
                Err(look) => Err(unknown_outcome(&error, &look)),
            },
        }
    }
}
