//! Inspect: the truth after a look.

use a3sbox_core::{ExecutionId, ExecutionManagerResult, ExecutionState, ExecutionStatus};

use super::evidence::status;
use super::manager::LocalExecutionManager;
use super::observe::Seen;
use crate::store::{BoxRecord, ManagedExecutionState};

impl LocalExecutionManager {
    pub(super) async fn inspect_execution(
        &self,
        execution_id: &ExecutionId,
    ) -> ExecutionManagerResult<ExecutionStatus> {
        let record = self.require(execution_id)?;
        let state = record.state()?;
        if let Some(state) = self.task_truth(&record).await? {
            return status(&record, state.observed());
        }
        // A verb that is under way here tells for itself.
        if self.active.contains(execution_id) {
            return status(&record, state.observed());
        }
        match state {
            ManagedExecutionState::Created
            | ManagedExecutionState::Stopped
            | ManagedExecutionState::Failed
            | ManagedExecutionState::Removing => status(&record, state.observed()),
            ManagedExecutionState::Running | ManagedExecutionState::Paused => {
                self.inspect_live(record).await
            }
            ManagedExecutionState::Creating
            | ManagedExecutionState::Starting
            | ManagedExecutionState::Pausing
            | ManagedExecutionState::Resuming
            | ManagedExecutionState::UpdatingResources
            | ManagedExecutionState::Snapshotting
            | ManagedExecutionState::Killing
            | ManagedExecutionState::RestartStopping
            | ManagedExecutionState::RestartStarting => {
                let settled = self.settle(record).await?;
                status(&settled, settled.state()?.observed())
            }
        }
    }

    /// What the runtime says wins over the record, which changes only by a verb or an end.
    async fn inspect_live(&self, record: BoxRecord) -> ExecutionManagerResult<ExecutionStatus> {
        match self.look(&record).await? {
            Seen::Live { is_paused, handle } => {
                let record = self.keep_binding(record, &handle)?;
                let state = if is_paused {
                    ExecutionState::Paused
                } else {
                    ExecutionState::Running
                };
                status(&record, state)
            }
            Seen::Pending => status(&record, ExecutionState::Creating),
            Seen::Ended { state, exit_code } => {
                let ended = self.end(&record, state, exit_code).await?;
                status(&ended, state.observed())
            }
            Seen::Absent | Seen::AnotherBoot => {
                let stopped = ManagedExecutionState::Stopped;
                let ended = self.end(&record, stopped, None).await?;
                status(&ended, stopped.observed())
            }
        }
    }
}
