//! A look at the backend, reduced to what settling needs.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult, ExecutionState};

use super::backend::LocalExecutionHandle;
use super::manager::LocalExecutionManager;
use crate::process::{boot_id, is_another_boot};
use crate::store::{BoxRecord, ManagedExecutionState, RuntimeUpdate};

/// What the backend sees.
#[derive(Debug)]
pub(super) enum Seen {
    Live {
        is_paused: bool,
        handle: Box<LocalExecutionHandle>,
    },
    /// It is being created, or was created and not started.
    Pending,
    Ended {
        state: ManagedExecutionState,
        exit_code: Option<i32>,
    },
    Absent,
    /// The record is of another boot of this host; no runtime was asked.
    AnotherBoot,
}

/// Whether the host was started again since this record was made live. Where that is unknown, as for a
/// record of an older build, it was not.
pub(super) fn was_rebooted(record: &BoxRecord) -> bool {
    let recorded = record
        .managed_execution
        .as_ref()
        .and_then(|metadata| metadata.boot_id.as_deref());
    is_another_boot(recorded, boot_id())
}

impl LocalExecutionManager {
    pub(super) async fn look(&self, record: &BoxRecord) -> ExecutionManagerResult<Seen> {
        if was_rebooted(record) {
            return Ok(Seen::AnotherBoot);
        }
        let observation = match self.backend.inspect(record).await {
            Ok(observation) => observation,
            Err(ExecutionManagerError::NotFound(_)) => return Ok(Seen::Absent),
            Err(error) => return Err(error),
        };
        observation.validate()?;
        Ok(match (observation.state, observation.handle) {
            (ExecutionState::Running, Some(handle)) => Seen::Live {
                is_paused: false,
                handle: Box::new(handle),
            },
            (ExecutionState::Paused, Some(handle)) => Seen::Live {
                is_paused: true,
                handle: Box::new(handle),
            },
            (ExecutionState::Stopped, _) => Seen::Ended {
                state: ManagedExecutionState::Stopped,
                exit_code: observation.exit_code,
            },
            (ExecutionState::Failed, _) => Seen::Ended {
                state: ManagedExecutionState::Failed,
                exit_code: observation.exit_code,
            },
            // Validation refused a live state without a handle.
            (
                ExecutionState::Created
                | ExecutionState::Creating
                | ExecutionState::Running
                | ExecutionState::Paused,
                _,
            ) => Seen::Pending,
        })
    }

    /// Records that an execution has ended. `None` when nobody saw how.
    pub(super) async fn end(
        &self,
        record: &BoxRecord,
        state: ManagedExecutionState,
        exit_code: Option<i32>,
    ) -> ExecutionManagerResult<BoxRecord> {
        let from = record.state()?;
        let update = match from {
            ManagedExecutionState::Killing => RuntimeUpdate::KillTerminal(exit_code),
            ManagedExecutionState::RestartStarting => RuntimeUpdate::RestartTerminal(exit_code),
            _ => RuntimeUpdate::Terminal(exit_code),
        };
        self.transition(record, from, state, update).await
    }
}
