//! Start: claim, let the backend act once, complete; after an error, look.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionLease, ExecutionManagerError, ExecutionManagerResult,
};

use super::backend::LocalExecutionHandle;
use super::evidence::{lease, unknown_outcome, wrong_state};
use super::manager::LocalExecutionManager;
use super::observe::Seen;
use super::owner::not_ours;
use crate::store::{BoxRecord, ManagedExecutionState, RuntimeUpdate};

impl LocalExecutionManager {
    pub(super) async fn start_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let record = self.require_current(execution_id, generation)?;
        match record.state()? {
            ManagedExecutionState::Running => return lease(&record),
            _ if record.metadata()?.task.is_some() => return Err(not_ours(&record, "start")),
            ManagedExecutionState::Created => {}
            // An interrupted start: what the backend has of it is taken up, nothing is started twice.
            ManagedExecutionState::Starting if !self.active.contains(execution_id) => {
                return self.take_up_start(record).await;
            }
            state => return Err(wrong_state(execution_id, "start", state)),
        }
        let manager = self.clone();
        let working = self.active.enter(execution_id);
        Self::to_the_end(async move {
            let _working = working;
            let claimed = manager
                .transition(
                    &record,
                    ManagedExecutionState::Created,
                    ManagedExecutionState::Starting,
                    RuntimeUpdate::None,
                )
                .await?;
            lease(&manager.start_claimed(claimed).await?)
        })
        .await
    }

    async fn take_up_start(&self, record: BoxRecord) -> ExecutionManagerResult<ExecutionLease> {
        let settled = self.settle(record).await?;
        match settled.state()? {
            ManagedExecutionState::Running => lease(&settled),
            state => Err(wrong_state(&settled.execution_id()?, "start", state)),
        }
    }

    /// The effect of a claimed start, first or after a restart's stop.
    pub(super) async fn start_claimed(
        &self,
        claimed: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let error = match self.backend.start(&claimed).await {
            Ok(handle) => {
                let completed = self.complete_start(&claimed, Box::new(handle)).await;
                if let Err(ExecutionManagerError::Conflict { .. }) = completed {
                    self.end_overtaken_start(&claimed).await;
                }
                return completed;
            }
            Err(error) => error,
        };
        match self.look(&claimed).await {
            Ok(Seen::Live { handle, .. }) => self.complete_start(&claimed, handle).await,
            // The runtime may still bring it up: reconcile asks again.
            Ok(Seen::Pending) => Err(error),
            Ok(Seen::Ended { state, exit_code }) => {
                self.record_failed_start(&claimed, state, exit_code).await;
                Err(error)
            }
            Ok(Seen::Absent | Seen::AnotherBoot) => {
                self.record_failed_start(&claimed, ManagedExecutionState::Failed, None)
                    .await;
                Err(error)
            }
            Err(look) => Err(unknown_outcome(&error, &look)),
        }
    }

    pub(super) async fn complete_start(
        &self,
        claimed: &BoxRecord,
        handle: Box<LocalExecutionHandle>,
    ) -> ExecutionManagerResult<BoxRecord> {
        let from = claimed.state()?;
        let update = match from {
            ManagedExecutionState::RestartStarting => RuntimeUpdate::RestartHandle(handle),
            _ => RuntimeUpdate::StartHandle(handle),
        };
        self.transition(claimed, from, ManagedExecutionState::Running, update)
            .await
    }

    /// A kill ended the execution before the runtime had it: what came up behind the kill must not stay.
    async fn end_overtaken_start(&self, claimed: &BoxRecord) {
        let ended = async {
            let now = self.require(&claimed.execution_id()?)?;
            match now.state()? {
                ManagedExecutionState::Killing
                | ManagedExecutionState::Stopped
                | ManagedExecutionState::Failed => {
                    self.backend.kill_with_status(&now).await.map(|_| ())
                }
                _ => Ok(()),
            }
        };
        match ended.await {
            Ok(()) | Err(ExecutionManagerError::NotFound(_)) => {}
            Err(error) => tracing::error!(
                execution_id = %claimed.id,
                %error,
                "an execution that was killed while it started may still run"
            ),
        }
    }

    /// The start's own error is the one that the caller gets; a claim that stays is settled later.
    async fn record_failed_start(
        &self,
        claimed: &BoxRecord,
        state: ManagedExecutionState,
        exit_code: Option<i32>,
    ) {
        match self.end(claimed, state, exit_code).await {
            // A kill came first and records the end itself.
            Ok(_) | Err(ExecutionManagerError::Conflict { .. }) => {}
            Err(error) => tracing::warn!(
                execution_id = %claimed.id,
                %error,
                "the end of a failed start is not recorded; reconcile settles it"
            ),
        }
    }
}
