//! Resume: the mirror of pause.

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionManagerResult};

use super::claims::mint;
use super::evidence::{lease, unknown_outcome, wrong_state};
use super::manager::LocalExecutionManager;
use crate::store::{BoxRecord, ManagedExecutionState, RuntimeUpdate};
use crate::task::FencedVerb;

impl LocalExecutionManager {
    pub(super) async fn resume_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let record = self.require_current(execution_id, generation)?;
        if let Some(owner) = self.owner_of(&record, "resume")? {
            let resumed = owner
                .fenced(generation, mint("resume")?, FencedVerb::Resume)
                .await?;
            return lease(&resumed.record);
        }
        let state = record.state()?;
        if state != ManagedExecutionState::Paused {
            return Err(wrong_state(execution_id, "resume", state));
        }
        let claim = RuntimeUpdate::ResumeClaim(mint("resume")?);
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let claimed = manager
                .transition(&record, state, ManagedExecutionState::Resuming, claim)
                .await?;
            lease(&manager.resume_claimed(claimed).await?)
        })
        .await
    }

    async fn resume_claimed(&self, claimed: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        match self.backend.resume(&claimed).await {
            Ok(handle) => {
                self.transition(
                    &claimed,
                    ManagedExecutionState::Resuming,
                    ManagedExecutionState::Running,
                    RuntimeUpdate::Handle(Box::new(handle)),
                )
                .await
            }
            Err(error) => match self.settle_by_look(claimed).await {
                Ok(settled) if settled.state()? == ManagedExecutionState::Running => Ok(settled),
                Ok(_) => Err(error),
                Err(look) => Err(unknown_outcome(&error, &look)),
            },
        }
    }
}
