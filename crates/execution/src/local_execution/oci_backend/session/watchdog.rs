//! The end of a command's time, whoever still waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use a3sbox_core::ExecutionGeneration;
use a3sbox_oci::{
    ErrorCode, ExecRequest, ExitStatus, ProcessTarget, RuntimeClient, Signal, SignalProcessRequest,
    WaitProcessRequest,
};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::super::identity::operation_context;

const EXEC_TIMEOUT: &str = "exec-timeout";
const KILL_SIGNAL: i32 = 9;
/// A dispatch may still be on its way at the deadline: how long the process may be unknown.
const UNKNOWN_PROCESS_GRACE: Duration = Duration::from_secs(10);
/// Pause between two looks at an unknown process; it doubles from the first to the second.
const UNKNOWN_PROCESS_PAUSE_MIN: Duration = Duration::from_millis(10);
const UNKNOWN_PROCESS_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Kills one process at its deadline unless it is disarmed. Dropping it changes nothing: a caller that
/// hung up still gets its command ended.
#[derive(Debug)]
pub(super) struct Watchdog {
    deadline: Instant,
    fired: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Watchdog {
    pub(super) fn arm(
        client: RuntimeClient,
        request: ExecRequest,
        generation: ExecutionGeneration,
        timeout: Duration,
    ) -> Self {
        let now = Instant::now();
        // A timeout that is longer than the clock can count never passes.
        let deadline = now
            .checked_add(timeout)
            .unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
        let fired = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(enforce(
            client,
            request,
            generation,
            deadline,
            Arc::clone(&fired),
        ));
        Self {
            deadline,
            fired,
            task: task.abort_handle(),
        }
    }

    pub(super) fn disarm(&self) {
        self.task.abort();
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether this process ended by the kill of its watchdog.
    pub(super) fn ended(&self, status: &ExitStatus) -> bool {
        self.fired.load(Ordering::Acquire) && status.signal == Some(KILL_SIGNAL)
    }
}

async fn enforce(
    client: RuntimeClient,
    request: ExecRequest,
    generation: ExecutionGeneration,
    deadline: Instant,
    fired: Arc<AtomicBool>,
) {
    tokio::time::sleep_until(deadline).await;
    let process = ProcessTarget {
        container: request.container.clone(),
        process_id: request.process_id.clone(),
    };
    if !is_running(&client, &process, deadline + UNKNOWN_PROCESS_GRACE).await {
        return;
    }
    // The process id is shared by every exec of the same request id. Only the one whose identical exec
    // is answered owns the process that runs under it.
    match client.exec(request).await {
        Ok(record) if record.target == process => {}
        Ok(_) => return,
        Err(error) => {
            tracing::debug!(process_id = %process.process_id, %error, "a timeout found no process of its own");
            return;
        }
    }
    let (Ok(signal), Ok(context)) = (
        Signal::new(KILL_SIGNAL),
        operation_context(
            process.process_id.as_str(),
            generation,
            EXEC_TIMEOUT,
            &process,
        ),
    ) else {
        return;
    };
    // Before the effect: the end must not be seen without its reason.
    fired.store(true, Ordering::Release);
    let sent = client.signal_process(SignalProcessRequest {
        context,
        process: process.clone(),
        signal,
    });
    if let Err(error) = sent.await {
        tracing::warn!(process_id = %process.process_id, %error, "cannot kill a process at its timeout");
    }
}

/// False when the process has ended, or is not known even after the grace.
async fn is_running(client: &RuntimeClient, process: &ProcessTarget, give_up: Instant) -> bool {
    let mut pause = UNKNOWN_PROCESS_PAUSE_MIN;
    loop {
        let request = WaitProcessRequest {
            process: process.clone(),
            timeout_ms: Some(0),
        };
        match client.wait_process(request).await {
            Ok(_) => return false,
            Err(error) => match error.code {
                ErrorCode::DeadlineExceeded => return true,
                ErrorCode::NotFound | ErrorCode::Unavailable if Instant::now() < give_up => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(UNKNOWN_PROCESS_PAUSE_MAX);
                }
                _ => return false,
            },
        }
    }
}
