//! Kill: claimed with its signal and patience, so that another process can finish it.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManagerError, ExecutionManagerResult,
    KillExecutionOptions, KillOutcome,
};

use super::claims::mint;
use super::evidence::wrong_state;
use super::manager::LocalExecutionManager;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, RuntimeUpdate};

/// A shell reports a death by signal as this plus the number.
const SIGNAL_EXIT_BASE: i32 = 128;
const MILLIS_PER_SECOND: u64 = 1000;

impl LocalExecutionManager {
    pub(super) async fn kill_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        options: KillExecutionOptions,
    ) -> ExecutionManagerResult<KillOutcome> {
        check_options(options)?;
        let record = self.require_current(execution_id, generation)?;
        let state = record.state()?;
        match state {
            ManagedExecutionState::Stopped | ManagedExecutionState::Failed => {
                return Ok(KillOutcome::AlreadyStopped);
            }
            ManagedExecutionState::RestartStopping
            | ManagedExecutionState::RestartStarting
            | ManagedExecutionState::Removing => {
                return Err(wrong_state(execution_id, "kill", state));
            }
            ManagedExecutionState::Creating
            | ManagedExecutionState::Created
            | ManagedExecutionState::Starting
            | ManagedExecutionState::Running
            | ManagedExecutionState::Pausing
            | ManagedExecutionState::Paused
            | ManagedExecutionState::Resuming
            | ManagedExecutionState::UpdatingResources
            | ManagedExecutionState::Snapshotting
            | ManagedExecutionState::Killing => {}
        }
        if let Some(owner) = self.owner_of(&record, "kill")? {
            return owner.kill(generation, mint("kill")?, options).await;
        }
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let claimed = if state == ManagedExecutionState::Killing {
                manager.take_up_kill(record, options)?
            } else {
                let claim = RuntimeUpdate::KillClaim {
                    signal: options.signal,
                    timeout_secs: options.timeout_secs,
                };
                manager
                    .transition(&record, state, ManagedExecutionState::Killing, claim)
                    .await?
            };
            Ok(manager.kill_claimed(&claimed).await?.1)
        })
        .await
    }

    /// A repeated kill goes on with the claim, or with what this caller asks for instead: SIGKILL after a
    /// SIGTERM that was ignored.
    fn take_up_kill(
        &self,
        record: BoxRecord,
        options: KillExecutionOptions,
    ) -> ExecutionManagerResult<BoxRecord> {
        if options == KillExecutionOptions::default() {
            return Ok(record);
        }
        let expected = (ManagedExecutionState::Killing, record.generation()?);
        let claim = ManagedExecutionOperation::Kill {
            signal: options.signal,
            timeout_secs: options.timeout_secs,
        };
        Ok(self
            .store
            .update(&record.execution_id()?, expected, |stored| {
                if let Some(metadata) = &mut stored.managed_execution {
                    metadata.pending_operation = Some(claim);
                }
            })?)
    }

    /// The effect of a claimed kill and its end in the record.
    pub(super) async fn kill_claimed(
        &self,
        claimed: &BoxRecord,
    ) -> ExecutionManagerResult<(BoxRecord, KillOutcome)> {
        let termination = self.backend.kill_with_status(claimed).await?;
        let ended = self
            .end(
                claimed,
                ManagedExecutionState::Stopped,
                termination.exit_code,
            )
            .await;
        match ended {
            Ok(record) => Ok((record, termination.outcome)),
            // Two kills at once: the other one recorded the end.
            Err(conflict @ ExecutionManagerError::Conflict { .. }) => {
                let now = self.require(&claimed.execution_id()?)?;
                if now.state()?.is_terminal() {
                    Ok((now, termination.outcome))
                } else {
                    Err(conflict)
                }
            }
            Err(error) => Err(error),
        }
    }
}

fn check_options(options: KillExecutionOptions) -> ExecutionManagerResult<()> {
    if let Some(signal) = options.signal
        && (signal <= 0 || signal.checked_add(SIGNAL_EXIT_BASE).is_none())
    {
        return Err(ExecutionManagerError::InvalidRequest(format!(
            "signal {signal} has no representable exit code"
        )));
    }
    if let Some(secs) = options.timeout_secs
        && secs.checked_mul(MILLIS_PER_SECOND).is_none()
    {
        return Err(ExecutionManagerError::InvalidRequest(format!(
            "a timeout of {secs} s is not representable in milliseconds"
        )));
    }
    Ok(())
}
