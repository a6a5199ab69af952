//! Verbs on the sandbox as a whole.

use a3sbox_core::{
    ExecutionSnapshot, ExecutionSnapshotId, ExecutionState, OperationId, RestartExecutionOptions,
};
use uuid::Uuid;

use super::handle::Sandbox;
use crate::client::{Result, invalid};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxRestartOptions {
    /// A restart under an id that has completed is not done again; a fresh id when none.
    pub operation_id: Option<OperationId>,
    /// How long the workload may take to stop; its own policy when none.
    pub stop_timeout_seconds: Option<u64>,
}

impl SandboxRestartOptions {
    #[must_use]
    pub fn operation_id(mut self, operation_id: OperationId) -> Self {
        self.operation_id = Some(operation_id);
        self
    }

    #[must_use]
    pub fn stop_timeout_seconds(mut self, seconds: u64) -> Self {
        self.stop_timeout_seconds = Some(seconds);
        self
    }
}

impl Sandbox {
    /// Asks the manager. A sandbox that is not there any more is not running.
    pub async fn is_running(&self) -> Result<bool> {
        let shared = &self.shared;
        if shared.known().closed {
            return Ok(false);
        }
        match shared.client.inspect_execution(&shared.execution_id).await {
            Ok(status) => {
                shared.learn(status.generation, status.state);
                Ok(status.state == ExecutionState::Running)
            }
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stops the processes in place, with or without keeping their memory.
    pub async fn pause(&self, keep_memory: bool) -> Result<()> {
        let shared = &self.shared;
        let generation = shared.running("pause")?;
        let lease = shared
            .client
            .pause_execution(&shared.execution_id, generation, keep_memory)
            .await?;
        shared.learn(lease.generation, ExecutionState::Paused);
        Ok(())
    }

    pub async fn resume(&self) -> Result<()> {
        let shared = &self.shared;
        let generation = shared.open()?;
        let lease = shared
            .client
            .resume_execution(&shared.execution_id, generation)
            .await?;
        shared.learn(lease.generation, ExecutionState::Running);
        Ok(())
    }

    /// Ends the workload and keeps the record, so that logs can be read and a restart is possible.
    /// Repeatable. A sandbox that removes itself is gone afterwards, and the handle is closed.
    pub async fn stop(&self) -> Result<()> {
        let shared = &self.shared;
        let known = shared.known();
        if known.closed || is_ended(known.state) {
            return Ok(());
        }
        let id = &shared.execution_id;
        let ended = match shared.client.kill_execution(id, known.generation).await {
            Ok(_) => shared.client.inspect_execution(id).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(status) => shared.learn(status.generation, status.state),
            Err(error) if error.is_gone() => shared.close(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Stops and starts again, one generation later; starts a stopped one.
    pub async fn restart(&self, options: SandboxRestartOptions) -> Result<()> {
        let shared = &self.shared;
        let generation = shared.open()?;
        let operation_id = match options.operation_id {
            Some(operation_id) => operation_id,
            None => OperationId::new(format!("sdk-restart-{}", Uuid::new_v4()))?,
        };
        let lease = shared
            .client
            .restart_execution(
                &shared.execution_id,
                generation,
                &operation_id,
                RestartExecutionOptions {
                    stop_timeout_secs: options.stop_timeout_seconds,
                },
            )
            .await?;
        shared.learn(lease.generation, ExecutionState::Running);
        Ok(())
    }

    /// Takes the record of an ended sandbox away and closes the handle. Repeatable.
    pub async fn remove(&self) -> Result<()> {
        let shared = &self.shared;
        let known = shared.known();
        if known.closed {
            return Ok(());
        }
        if known.state != ExecutionState::Created && !is_ended(known.state) {
            return invalid(format!(
                "sandbox {} is {:?}: stop it before it is removed",
                shared.execution_id, known.state
            ));
        }
        // Whether this call removed it or an earlier one did, it is gone now.
        shared
            .client
            .remove_execution(&shared.execution_id, known.generation)
            .await
            .map(drop)
            .or_else(|error| if error.is_gone() { Ok(()) } else { Err(error) })?;
        shared.close();
        Ok(())
    }

    /// `stop`, then `remove`. Repeatable.
    pub async fn kill(&self) -> Result<()> {
        self.stop().await?;
        self.remove().await
    }

    /// Captures the filesystem; the sandbox is afterwards in the state that the answer names.
    pub async fn create_filesystem_snapshot(
        &self,
        snapshot_id: ExecutionSnapshotId,
    ) -> Result<ExecutionSnapshot> {
        let shared = &self.shared;
        let generation = shared.in_state(
            "a filesystem snapshot",
            &[ExecutionState::Running, ExecutionState::Paused],
        )?;
        let snapshot = shared
            .client
            .create_execution_snapshot(&shared.execution_id, generation, &snapshot_id)
            .await?;
        shared.learn(snapshot.lease.generation, snapshot.state);
        Ok(snapshot)
    }
}

fn is_ended(state: ExecutionState) -> bool {
    matches!(state, ExecutionState::Stopped | ExecutionState::Failed)
}
