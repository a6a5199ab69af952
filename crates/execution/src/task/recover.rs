//! What a container's owner left behind when it died, taken to its end.
//!
//! Look, decide by the same machine as the live path, act. Every step can run twice: a recovery that is
//! interrupted is repeated from the start. No status is invented: it was recorded, or the runtime saw it,
//! or this recovery killed the process itself; else it is unknown, with the reason.

use a3sbox_oci::ProcessId;
use chrono::Utc;
use tokio::time::timeout;
use tracing::{Instrument as _, info, warn};

use super::backend::{TaskEnd, TaskInit, TaskObservation};
use super::hub::TaskHub;
use super::ledger::{Ledger, Verb, store_error};
use super::machine::{InitEvent, InitState, Verdict, next_init};
use super::owner::exit_of;
use super::record::TaskRecord;
use super::types::{TaskDeleted, TaskExit, TaskKey};
use super::watcher::{Engine, SIGKILLED};
use super::{TaskError, TaskResult};
use crate::process::{boot_id, is_another_boot};
use crate::store::OwnerLock;

const SIGKILL: i32 = 9;

/// Where the record and the runtime together say the init process is. Pure: the observation is turned
/// into the reports that the dead owner would have got.
pub(crate) fn reconcile(recorded: InitState, observed: &TaskObservation) -> InitState {
    use InitEvent as Ev;
    use InitState as S;
    let missed: &[Ev] = match (recorded, observed) {
        (S::Creating, TaskObservation::Absent) => &[Ev::CreateFailed],
        (S::Creating, TaskObservation::Created(_)) => &[Ev::CreateDone],
        (S::Creating, TaskObservation::Running { .. }) => {
            &[Ev::CreateDone, Ev::Start, Ev::StartDone]
        }
        (S::Creating, TaskObservation::Stopped) => &[Ev::CreateDone, Ev::Exited, Ev::Drained],
        (S::Created, TaskObservation::Running { .. }) => &[Ev::Start, Ev::StartDone],
        (S::Starting, TaskObservation::Running { .. }) => &[Ev::StartDone],
        (S::Starting | S::StartingEnded, TaskObservation::Created(_)) => &[Ev::StartFailed],
        (S::Starting | S::StartingEnded, TaskObservation::Stopped | TaskObservation::Absent) => {
            &[Ev::StartDone, Ev::Exited, Ev::Drained]
        }
        (S::Pausing, TaskObservation::Running { paused: true, .. }) => &[Ev::PauseDone],
        (S::Pausing, TaskObservation::Running { .. }) => &[Ev::PauseFailed],
        (S::Resuming, TaskObservation::Running { paused: false, .. }) => &[Ev::ResumeDone],
        (S::Resuming, TaskObservation::Running { .. }) => &[Ev::ResumeFailed],
        (S::Updating, TaskObservation::Running { .. }) => &[Ev::FencedUpdateFailed],
        (S::Snapshotting, TaskObservation::Running { paused: true, .. }) => {
            &[Ev::FencedSnapshotFrozen]
        }
        (S::Snapshotting | S::SnapshottingPaused, TaskObservation::Running { .. }) => {
            &[Ev::FencedSnapshotFailed]
        }
        (S::Draining, _) => &[Ev::Drained],
        (S::Discarding | S::Deleting, TaskObservation::Absent) => &[Ev::DeleteDone],
        (S::Discarding | S::Deleting, _) => &[Ev::DeleteFailed],
        (_, TaskObservation::Stopped | TaskObservation::Absent) => &[Ev::Exited, Ev::Drained],
        _ => &[],
    };
    missed
        .iter()
        .fold(recorded, |state, event| match next_init(state, *event) {
            Verdict::Go(next, _) => next,
            _ => state,
        })
}

/// Ends what `key` left behind. The lock is held until record and folder are gone.
pub(super) async fn recover_and_delete(
    hub: &TaskHub,
    key: &TaskKey,
    lock: OwnerLock,
) -> TaskResult<TaskDeleted> {
    let record = hub
        .store()
        .find_container(key)
        .map_err(store_error)?
        .ok_or_else(|| {
            TaskError::NotFound(format!(
                "container {} is not recorded: not found",
                key.container_id
            ))
        })?;
    let mut task = record
        .managed_execution
        .as_ref()
        .and_then(|managed| managed.task.clone())
        .ok_or_else(|| TaskError::Internal("the record has no task".to_owned()))?;
    let mut ledger = Ledger::open(hub.store().clone(), record)?;
    let unsettled = ledger.unsettled();
    let engine = hub.engine();
    let operation = ledger.intend(Verb::Recover, None)?;
    let limits = engine.deadlines;

    // What a runtime remembers of another boot is no process of this one: nothing is signalled.
    let was_rebooted = is_another_boot(boot_of(&ledger).as_deref(), boot_id());
    let observed = if was_rebooted {
        TaskObservation::Absent
    } else {
        hub.observe(&ledger.record()).await?
    };
    let state = reconcile(task.init.state, &observed);
    info!(
        namespace = %key.namespace, container_id = %key.container_id, recorded = ?task.init.state,
        ?observed, ?state, ?unsettled, "taking over a container of a dead owner"
    );
    let exit = settle_exit(&engine, &mut ledger, &task, &observed).await?;
    let pid = task.init.pid.unwrap_or(0);
    let was_created = !matches!(
        (state, &observed),
        (InitState::Gone, TaskObservation::Absent)
    ) || task.init.pid.is_some();
    if let Some(reason) = &exit.unknown_because {
        warn!(
            namespace = %key.namespace, container_id = %key.container_id, pid, reason,
            "the exit status is unknown"
        );
    }
    // What was found out outlives a crash of this recovery; a full disk does not keep it from ending.
    task.init.state = InitState::Stopped;
    task.init.exit = Some(exit.clone());
    for slot in task.execs.values_mut().filter(|slot| slot.state.is_live()) {
        slot.state = super::machine::ExecState::Stopped;
    }
    if let Err(cause) = ledger.commit(&task, None) {
        warn!(container_id = %key.container_id, %cause, "the recovered exit cannot be recorded");
    }
    timeout(
        limits.delete,
        engine
            .task()?
            .delete(&ledger.record(), &operation.context, true),
    )
    .instrument(operation.span(key, ledger.generation()))
    .await
    .unwrap_or_else(|_| Err(TaskError::DeadlineExceeded("the delete".to_owned())))?;
    ledger.remove()?;
    drop(lock);
    Ok(TaskDeleted {
        pid,
        exit: was_created.then_some(exit),
    })
}

fn boot_of(ledger: &Ledger) -> Option<String> {
    ledger.record().managed_execution.as_ref()?.boot_id.clone()
}

/// How the init process ended, after ending it when it had not.
async fn settle_exit(
    engine: &Engine,
    ledger: &mut Ledger,
    task: &TaskRecord,
    observed: &TaskObservation,
) -> TaskResult<TaskExit> {
    if let Some(exit) = &task.init.exit {
        return Ok(exit.clone());
    }
    match observed {
        TaskObservation::Absent => Ok(unknown(
            "the runtime has no such container, and nobody saw its end",
        )),
        TaskObservation::Stopped => Ok(end_within_deadline(engine, ledger)
            .await
            .map_or_else(|| unknown("the runtime did not say how it ended"), exit_of)),
        TaskObservation::Created(process) | TaskObservation::Running { process, .. } => {
            if !is_same(task, *process) {
                return Ok(unknown("its pid belongs to another process now"));
            }
            kill(engine, ledger).await
        }
    }
}

/// The observed process is the recorded one, as far as both are known.
///
/// This is the second look. The runtime reports a process as its own only by the pid *and* start time of
/// its own record, and signals through a pidfd that it took under that proof; a container whose pid was
/// not recorded here yet is therefore still its container, and has to be ended.
fn is_same(task: &TaskRecord, observed: TaskInit) -> bool {
    match (
        task.init.pid,
        task.init.pid_start_time,
        observed.pid,
        observed.pid_start_time,
    ) {
        (Some(pid), Some(start), Some(now), Some(now_start)) => pid == now && start == now_start,
        (Some(pid), _, Some(now), _) => pid == now,
        _ => true,
    }
}

async fn kill(engine: &Engine, ledger: &mut Ledger) -> TaskResult<TaskExit> {
    let operation = ledger.intend(Verb::Signal, None)?;
    let record = ledger.record();
    let init = ProcessId::init();
    let killed = timeout(
        engine.deadlines.signal,
        engine
            .task()?
            .signal(&record, &operation.context, &init, SIGKILL, true),
    )
    .await
    .unwrap_or_else(|_| Err(TaskError::DeadlineExceeded("the kill".to_owned())));
    ledger.conclude(&operation, killed.as_ref().err())?;
    let was_ours = match killed {
        Ok(()) => true,
        // It ended by itself between the look and the signal.
        Err(TaskError::NotFound(_)) => false,
        Err(error) => return Err(error),
    };
    match end_within_deadline(engine, ledger).await {
        Some(TaskEnd::Unknown { .. }) if was_ours => Ok(TaskExit {
            status: Some(SIGKILLED),
            exited_at: Utc::now(),
            unknown_because: None,
        }),
        Some(end) => Ok(exit_of(end)),
        None => Ok(unknown("it was killed, and its end was not seen in time")),
    }
}

/// `None` when the deadline passed first.
async fn end_within_deadline(engine: &Engine, ledger: &Ledger) -> Option<TaskEnd> {
    let record = ledger.record();
    let init = ProcessId::init();
    timeout(
        engine.deadlines.recovery_kill,
        engine.end_of(&record, &init),
    )
    .await
    .ok()
    .map(|(end, _)| end)
}

fn unknown(reason: &str) -> TaskExit {
    TaskExit {
        status: None,
        exited_at: Utc::now(),
        unknown_because: Some(reason.to_owned()),
    }
}
