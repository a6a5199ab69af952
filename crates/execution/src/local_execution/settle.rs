//! Settle: what a claim left behind, and what the backend sees, become one truth.
//!
//! The only place that decides about an interrupted operation. Nothing is repeated that may have had its
//! effect, except where the backend deduplicates by the claim's own identity (resource update, kill).

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};

use super::backend::LocalExecutionHandle;
use super::evidence::internal;
use super::manager::LocalExecutionManager;
use super::observe::Seen;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, RuntimeUpdate};

use ManagedExecutionState as State;

impl LocalExecutionManager {
    /// Brings a record to a stable state, or to the state it is in while the backend is still creating.
    /// An error leaves the record as it was, unless it says that the execution has ended.
    pub(super) async fn settle(&self, record: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        let execution_id = record.execution_id()?;
        let working = self.active.enter(&execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            match record.state()? {
                State::Created | State::Stopped | State::Failed | State::Removing => Ok(record),
                State::Creating | State::Starting => manager.settle_start(record).await,
                State::RestartStarting => manager.settle_restart_start(record).await,
                State::Running | State::Paused => manager.confirm(record).await,
                State::Pausing => manager.settle_pause(record).await,
                State::Resuming => manager.settle_resume(record).await,
                State::UpdatingResources => manager.settle_update(record).await,
                State::Snapshotting => manager.settle_snapshot(record).await,
                State::Killing => Ok(manager.kill_claimed(&record).await?.0),
                State::RestartStopping => manager.restart_claimed(record).await,
            }
        })
        .await
    }

    async fn settle_start(&self, record: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        match self.look(&record).await? {
            Seen::Live { handle, .. } if record.state()? == State::Starting => {
                self.complete_start(&record, handle).await
            }
            Seen::Live { .. } | Seen::Pending => Ok(record),
            Seen::Ended { state, exit_code } => self.end(&record, state, exit_code).await,
            Seen::Absent => self.end(&record, State::Failed, None).await,
        }
    }

    /// Unlike a first start, a restart that never reached the runtime goes on: its stop had its effect.
    async fn settle_restart_start(&self, record: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        match self.look(&record).await? {
            Seen::Live { handle, .. } => self.complete_start(&record, handle).await,
            Seen::Pending => Ok(record),
            Seen::Ended { state, exit_code } => self.end(&record, state, exit_code).await,
            Seen::Absent => self.start_claimed(record).await,
        }
    }

    /// A stable live record is believed only when the backend agrees.
    async fn confirm(&self, record: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        let recorded = record.state()?;
        match self.look(&record).await? {
            Seen::Live { is_paused, handle } if is_paused == (recorded == State::Paused) => {
                self.keep_binding(record, &handle)
            }
            Seen::Live { is_paused, .. } => Err(ExecutionManagerError::Unavailable(format!(
                "execution {} is recorded as {recorded}, and its runtime is {}",
                record.id,
                if is_paused { "paused" } else { "running" }
            ))),
            Seen::Pending => Err(internal(format!(
                "execution {} is recorded as {recorded}, and its runtime was never started",
                record.id
            ))),
            Seen::Ended { state, exit_code } => self.end(&record, state, exit_code).await,
            // A cold pause has no runtime.
            Seen::Absent if !record.metadata()?.paused_with_memory => Ok(record),
            Seen::Absent => self.end(&record, State::Stopped, None).await,
        }
    }

    pub(super) async fn settle_pause(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let keeps_memory = !matches!(
            record.metadata()?.pending_operation,
            Some(ManagedExecutionOperation::Pause {
                keep_memory: false,
                ..
            })
        );
        let (to, update) = match self.look(&record).await? {
            Seen::Live {
                is_paused: true,
                handle,
            } => (State::Paused, RuntimeUpdate::Handle(handle)),
            Seen::Live {
                is_paused: false, ..
            } => (State::Running, RuntimeUpdate::None),
            Seen::Pending => return Err(never_started(&record)),
            Seen::Ended { .. } | Seen::Absent if !keeps_memory => {
                (State::Paused, RuntimeUpdate::ColdPause)
            }
            Seen::Ended { state, exit_code } => return self.end(&record, state, exit_code).await,
            Seen::Absent => return self.end(&record, State::Stopped, None).await,
        };
        self.transition(&record, State::Pausing, to, update).await
    }

    pub(super) async fn settle_resume(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let (to, update) = match self.look(&record).await? {
            Seen::Live {
                is_paused: false,
                handle,
            } => (State::Running, RuntimeUpdate::Handle(handle)),
            Seen::Live {
                is_paused: true, ..
            } => (State::Paused, RuntimeUpdate::None),
            Seen::Pending => return Err(never_started(&record)),
            Seen::Ended { state, exit_code } => return self.end(&record, state, exit_code).await,
            // A cold pause that is not resumed yet has no runtime.
            Seen::Absent if !record.metadata()?.paused_with_memory => {
                (State::Paused, RuntimeUpdate::None)
            }
            Seen::Absent => return self.end(&record, State::Stopped, None).await,
        };
        self.transition(&record, State::Resuming, to, update).await
    }

    /// Stores the binding that an adoption found for a record without one.
    pub(super) fn keep_binding(
        &self,
        record: BoxRecord,
        handle: &LocalExecutionHandle,
    ) -> ExecutionManagerResult<BoxRecord> {
        let metadata = record.metadata()?;
        if metadata.oci_runtime.is_some() || handle.oci_runtime.is_none() {
            return Ok(record);
        }
        let expected = (record.state()?, metadata.generation);
        let adopted = self
            .store
            .update(&record.execution_id()?, expected, |stored| {
                stored.pid = handle.pid;
                stored.pid_start_time = handle.pid_start_time;
                if let Some(metadata) = &mut stored.managed_execution {
                    metadata.oci_runtime.clone_from(&handle.oci_runtime);
                }
            })?;
        Ok(adopted)
    }
}

pub(super) fn never_started(record: &BoxRecord) -> ExecutionManagerError {
    internal(format!(
        "the runtime of execution {} was never started",
        record.id
    ))
}
