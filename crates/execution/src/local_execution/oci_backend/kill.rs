//! Kill: signal, wait, escalate, and take away what stopped.

use std::time::Duration;

use a3sbox_core::{ExecutionManagerResult, KillOutcome};
use a3sbox_oci::oci_spec::runtime::ContainerState;
use a3sbox_oci::{
    ContainerOperationRequest, ContainerRecord, ErrorCode, ExitStatus, KillRequest, Signal,
    StateRequest, WaitRequest,
};

use super::error::{invalid, runtime_error};
use super::identity::operation_context;
use super::record::Execution;
use super::signal::signal_number;
use super::{OciLocalExecutionBackend, OciRuntimeBinding};
use crate::{BoxRecord, LocalExecutionTermination, ManagedExecutionOperation};

/// Sent when neither the claim nor the record names a signal; no process can refuse it.
pub(super) const DEFAULT_KILL_SIGNAL: i32 = 9;
/// Sent by a restart that names no signal: the process may end in its own way first.
const DEFAULT_RESTART_SIGNAL: i32 = 15;
/// How long a restart waits before it escalates, when neither it nor the record says.
const DEFAULT_RESTART_TIMEOUT_SECS: u64 = 10;
/// Pause between two waits when the runtime answers that the container still runs.
const WAIT_INTERVAL: Duration = Duration::from_millis(50);
const KILL: &str = "kill";
const KILL_THAW: &str = "kill-thaw";

/// How to end a container.
#[derive(Debug, Clone, Copy)]
struct Ending {
    signal: i32,
    /// When to stop asking nicely; `None` is never.
    timeout_secs: Option<u64>,
}

/// Answer of the runtime's wait.
#[derive(Debug)]
enum Waited {
    Ended(Option<ExitStatus>),
    StillRunning,
}

impl OciLocalExecutionBackend {
    pub(super) async fn kill_execution(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        let execution = Execution::new(record, &self.endpoint)?;
        let (signal, timeout_secs) = match &execution.metadata.pending_operation {
            Some(ManagedExecutionOperation::Kill {
                signal,
                timeout_secs,
            }) => (*signal, *timeout_secs),
            _ => (None, None),
        };
        let signal = kill_signal(record, signal)?;
        self.end(
            &execution,
            Ending {
                signal,
                timeout_secs,
            },
        )
        .await
    }

    pub(super) async fn stop_execution_for_restart(
        &self,
        record: &BoxRecord,
        timeout_secs: Option<u64>,
    ) -> ExecutionManagerResult<KillOutcome> {
        let execution = Execution::new(record, &self.endpoint)?;
        let ending = Ending {
            signal: stop_signal(record)?.unwrap_or(DEFAULT_RESTART_SIGNAL),
            timeout_secs: timeout_secs
                .or(record.stop_timeout)
                .or(Some(DEFAULT_RESTART_TIMEOUT_SECS)),
        };
        Ok(self.end(&execution, ending).await?.outcome)
    }

    async fn end(
        &self,
        execution: &Execution<'_>,
        ending: Ending,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        let timeout_ms = ending
            .timeout_secs
            .map(|secs| {
                secs.checked_mul(1000)
                    .ok_or_else(|| invalid("the kill timeout is too long"))
            })
            .transpose()?;
        let Some(container) = self.find_container(execution).await? else {
            return self.already_gone(execution).await;
        };
        let binding = self.adopt(execution, &container).await?;
        if *container.state.status() == ContainerState::Stopped {
            let exit_code = self.settle_stopped(execution, &binding).await?;
            return Ok(LocalExecutionTermination {
                outcome: KillOutcome::AlreadyStopped,
                exit_code,
            });
        }
        self.provider
            .ensure_log_projection(execution.record, &binding)
            .await?;
        // A process that was never started has no handlers and, as the first of its pid namespace,
        // ignores every signal that can be ignored.
        let is_unstarted = *container.state.status() != ContainerState::Running;
        let signal = if is_unstarted {
            DEFAULT_KILL_SIGNAL
        } else {
            ending.signal
        };
        if !self.send_signal(execution, &binding, signal).await? {
            return self.already_gone(execution).await;
        }
        self.let_signal_arrive(execution, &binding, &container, signal)
            .await?;
        let status = self
            .wait_for_end(execution, &binding, signal, timeout_ms)
            .await?;
        let exit_code = self.settle(execution, &binding, status.as_ref()).await?;
        Ok(LocalExecutionTermination {
            outcome: KillOutcome::Killed,
            exit_code,
        })
    }

    async fn already_gone(
        &self,
        execution: &Execution<'_>,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        self.provider.cleanup(execution.record).await?;
        Ok(LocalExecutionTermination {
            outcome: KillOutcome::AlreadyStopped,
            exit_code: None,
        })
    }

    /// Signals all processes. False when there is no such container any more.
    async fn send_signal(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
        number: i32,
    ) -> ExecutionManagerResult<bool> {
        let signal = Signal::new(number).map_err(runtime_error)?;
        let context = operation_context(
            execution.execution_id.as_str(),
            execution.generation(),
            KILL,
            number,
        )?;
        let request = KillRequest {
            context,
            target: binding.target.clone(),
            signal,
            all: true,
        };
        let error = match self.client.kill(request).await {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        if error.code == ErrorCode::NotFound {
            return Ok(false);
        }
        // It may have ended by itself, or of the very signal whose answer was lost.
        match self
            .client
            .state(StateRequest {
                target: binding.target.clone(),
            })
            .await
        {
            Ok(now) if *now.state.status() == ContainerState::Stopped => Ok(true),
            Err(gone) if gone.code == ErrorCode::NotFound => Ok(false),
            _ => Err(runtime_error(error)),
        }
    }

    /// Only signal 9 reaches frozen processes; any other one would wait for a thaw that never comes.
    async fn let_signal_arrive(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
        container: &ContainerRecord,
        signal: i32,
    ) -> ExecutionManagerResult<()> {
        if !container.is_paused() || signal == DEFAULT_KILL_SIGNAL {
            return Ok(());
        }
        let context = operation_context(
            execution.execution_id.as_str(),
            execution.generation(),
            KILL_THAW,
            &binding.target,
        )?;
        let request = ContainerOperationRequest {
            context,
            target: binding.target.clone(),
        };
        match self.client.resume(request).await {
            Ok(_) => Ok(()),
            // Ended meanwhile, which the wait that follows will tell.
            Err(error) if error.code == ErrorCode::FailedPrecondition => Ok(()),
            Err(error) => Err(runtime_error(error)),
        }
    }

    /// The status of the end, `None` when nobody knows it. Escalates once the timeout is over.
    async fn wait_for_end(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
        signal: i32,
        timeout_ms: Option<u64>,
    ) -> ExecutionManagerResult<Option<ExitStatus>> {
        if signal != DEFAULT_KILL_SIGNAL && timeout_ms.is_some() {
            if let Waited::Ended(status) = self.wait_container(binding, timeout_ms).await? {
                return Ok(status);
            }
            self.send_signal(execution, binding, DEFAULT_KILL_SIGNAL)
                .await?;
        }
        loop {
            if let Waited::Ended(status) = self.wait_container(binding, None).await? {
                return Ok(status);
            }
            tokio::time::sleep(WAIT_INTERVAL).await;
        }
    }

    async fn wait_container(
        &self,
        binding: &OciRuntimeBinding,
        timeout_ms: Option<u64>,
    ) -> ExecutionManagerResult<Waited> {
        let request = WaitRequest {
            target: binding.target.clone(),
            timeout_ms,
        };
        match self.client.wait(request).await {
            Ok(status) => Ok(Waited::Ended(Some(status))),
            Err(error) => match error.code {
                ErrorCode::DeadlineExceeded => Ok(Waited::StillRunning),
                // Stopped without a status, or gone with it.
                ErrorCode::FailedPrecondition | ErrorCode::NotFound => Ok(Waited::Ended(None)),
                _ => Err(runtime_error(error)),
            },
        }
    }
}

/// The signal of a kill: the caller's, else the record's, else the one that no process can refuse.
pub(crate) fn kill_signal(record: &BoxRecord, asked: Option<i32>) -> ExecutionManagerResult<i32> {
    match asked {
        Some(signal) => Ok(signal),
        None => Ok(stop_signal(record)?.unwrap_or(DEFAULT_KILL_SIGNAL)),
    }
}

fn stop_signal(record: &BoxRecord) -> ExecutionManagerResult<Option<i32>> {
    record.stop_signal.as_deref().map(signal_number).transpose()
}
