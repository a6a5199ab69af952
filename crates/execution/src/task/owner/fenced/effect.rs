//! What the contract's kill and snapshot do to a container, outside the owner.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use a3sbox_core::ExecutionManagerResult;
use a3sbox_oci::{OperationContext, ProcessId};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::manager_error;
use crate::BoxRecord;
use crate::local_execution::SnapshotSource;
use crate::task::ledger::Operation;
use crate::task::owner::init::{SIGKILL, settle_freeze};
use crate::task::view::ProcessView;
use crate::task::watcher::Engine;
use crate::task::{TaskError, TaskResult};

/// What a claimed snapshot does, by the names of its two effects.
pub(super) struct Freeze {
    pub(super) freeze: OperationContext,
    pub(super) thaw: OperationContext,
    /// A source that its user paused stays so.
    pub(super) is_paused: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Kill {
    pub(super) signal: i32,
    /// When to stop asking nicely; `None` is never.
    pub(super) patience: Option<Duration>,
    /// Only signal 9 reaches frozen processes.
    pub(super) is_frozen: bool,
}

/// Signals, thaws what the signal could not reach, and escalates. True when nothing ran any more.
pub(super) async fn deliver(
    engine: &Engine,
    record: &BoxRecord,
    operation: &Operation,
    kill: Kill,
    mut view: watch::Receiver<ProcessView>,
) -> TaskResult<bool> {
    let task = engine.task()?;
    let init = ProcessId::init();
    match task
        .signal(record, &operation.context, &init, kill.signal, true)
        .await
    {
        Ok(()) => {}
        Err(TaskError::NotFound(_)) => return Ok(true),
        Err(error) => return Err(error),
    }
    if kill.is_frozen
        && let Err(cause) = task.resume(record, &operation.part("thaw")?).await
    {
        debug!(execution_id = %record.id, %cause, "nothing was left to thaw");
    }
    let Some(patience) = kill.patience else {
        return Ok(false);
    };
    if timeout(patience, view.wait_for(|view| view.exit.is_some()))
        .await
        .is_ok()
    {
        return Ok(false);
    }
    match task
        .signal(record, &operation.part("escalate")?, &init, SIGKILL, true)
        .await
    {
        Ok(()) | Err(TaskError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Freeze, capture, thaw. The first value says that the container stays frozen against the claim.
pub(super) async fn capture(
    engine: &Engine,
    record: &Arc<BoxRecord>,
    source: &SnapshotSource,
    names: &Freeze,
    is_void: &Arc<AtomicBool>,
) -> (bool, ExecutionManagerResult<()>) {
    if names.is_paused {
        return (false, source.capture(record, Some(is_void)).await);
    }
    let frozen = async {
        let paused = engine.task()?.pause(record, &names.freeze).await;
        settle_freeze(engine, record, paused, true).await
    };
    let captured = match frozen.await {
        Ok(()) => source.capture(record, Some(is_void)).await,
        // Whether it is frozen is unknown: the thaw below is asked for all the same.
        Err(error @ (TaskError::Unavailable(_) | TaskError::DeadlineExceeded(_))) => {
            Err(manager_error(error))
        }
        Err(error) => return (false, Err(manager_error(error))),
    };
    let thawed = async {
        let resumed = engine.task()?.resume(record, &names.thaw).await;
        settle_freeze(engine, record, resumed, false).await
    };
    match thawed.await {
        Ok(()) => (false, captured),
        Err(cause) => {
            warn!(execution_id = %record.id, %cause, "a container stays frozen behind its snapshot");
            (true, captured.and(Err(manager_error(cause))))
        }
    }
}
