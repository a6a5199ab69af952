//! What a transition writes beside the new state. Pure: no clock of its own, no file.

use a3sbox_core::{ExecutionId, ExecutionResourceUpdate, ExecutionSnapshotId, OperationId};
use chrono::{DateTime, Utc};

use super::error::{StoreError, StoreResult};
use super::operation::{
    ManagedExecutionOperation, ManagedResourceUpdateCompletion, ManagedRestartCompletion,
};
use super::record::{BoxRecord, ManagedExecutionMetadata};
use super::state::{GenerationStep, IllegalTransition, ManagedExecutionState};
use crate::local_execution::LocalExecutionHandle;

/// Completed resource updates that a record keeps beside the last one. A late retry of an older one is a new
/// operation here; the runtime's own journal refuses it while it knows the id.
const KEPT_EARLIER_UPDATES: usize = 16;

/// The data of one transition, applied in its transaction.
#[derive(Debug, Clone)]
pub enum RuntimeUpdate {
    /// Nothing but the state. A start or remove claims itself.
    None,
    /// A live execution as its backend reports it after a pause or resume.
    Handle(Box<LocalExecutionHandle>),
    StartHandle(Box<LocalExecutionHandle>),
    /// The execution ended; `None` when nobody saw how.
    Terminal(Option<i32>),
    /// As [`Self::Terminal`], by a kill of the user's.
    KillTerminal(Option<i32>),
    /// A pause that kept no memory: nothing runs.
    ColdPause,
    PauseClaim {
        keep_memory: bool,
        operation_id: OperationId,
    },
    ResumeClaim(OperationId),
    ResourceUpdateClaim {
        operation_id: OperationId,
        update: ExecutionResourceUpdate,
    },
    /// Merges the claimed update into the record.
    ResourceUpdateComplete,
    SnapshotClaim {
        snapshot_id: ExecutionSnapshotId,
        source_state: ManagedExecutionState,
        operation_id: OperationId,
    },
    KillClaim {
        signal: Option<i32>,
        timeout_secs: Option<u64>,
    },
    RestartClaim {
        operation_id: OperationId,
        stop_timeout_secs: Option<u64>,
    },
    /// The old run is gone, the new one begins.
    RestartAdvance,
    RestartHandle(Box<LocalExecutionHandle>),
    RestartTerminal(Option<i32>),
}

/// Moves `record` from `from` to `to`. The caller has checked that it is in `from`.
pub(crate) fn apply_transition(
    record: &mut BoxRecord,
    execution_id: &ExecutionId,
    from: ManagedExecutionState,
    to: ManagedExecutionState,
    update: RuntimeUpdate,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    let step = from
        .step_to(to)
        .map_err(|source| illegal(execution_id, source))?;
    let metadata = metadata_of(record, execution_id)?;
    let claimed = metadata.pending_operation.take();
    metadata.pending_operation = pending_after(to, &update, claimed.clone());
    if step == GenerationStep::Advance {
        metadata.generation = following(metadata, execution_id)?;
    }
    record.status = to.as_status().to_owned();
    match update {
        RuntimeUpdate::None
        | RuntimeUpdate::PauseClaim { .. }
        | RuntimeUpdate::ResumeClaim(_)
        | RuntimeUpdate::ResourceUpdateClaim { .. }
        | RuntimeUpdate::SnapshotClaim { .. }
        | RuntimeUpdate::KillClaim { .. }
        | RuntimeUpdate::RestartClaim { .. } => {}
        RuntimeUpdate::Handle(handle) => {
            let started_at = record.started_at.unwrap_or(handle.started_at);
            set_handle(record, execution_id, *handle)?;
            record.started_at = Some(started_at);
            metadata_of(record, execution_id)?.paused_with_memory = true;
        }
        RuntimeUpdate::StartHandle(handle) => {
            set_handle(record, execution_id, *handle)?;
            begin_run(record, execution_id)?;
        }
        RuntimeUpdate::RestartHandle(handle) => {
            let started_at = handle.started_at;
            set_handle(record, execution_id, *handle)?;
            begin_run(record, execution_id)?;
            complete_restart(record, execution_id, claimed, started_at)?;
        }
        RuntimeUpdate::RestartAdvance => {
            clear_live(record, execution_id)?;
            record.exit_code = None;
            record.started_at = None;
            record.restart_count = record.restart_count.saturating_add(1);
        }
        RuntimeUpdate::ColdPause => {
            clear_live(record, execution_id)?;
            metadata_of(record, execution_id)?.paused_with_memory = false;
        }
        RuntimeUpdate::ResourceUpdateComplete => {
            complete_resource_update(record, execution_id, claimed)?;
        }
        RuntimeUpdate::Terminal(exit_code) | RuntimeUpdate::RestartTerminal(exit_code) => {
            end(record, execution_id, exit_code, now)?;
        }
        RuntimeUpdate::KillTerminal(exit_code) => {
            end(record, execution_id, exit_code, now)?;
            record.stopped_by_user = true;
        }
    }
    Ok(())
}

/// The claim of the state that is entered; stable states have none.
fn pending_after(
    to: ManagedExecutionState,
    update: &RuntimeUpdate,
    claimed: Option<ManagedExecutionOperation>,
) -> Option<ManagedExecutionOperation> {
    use ManagedExecutionOperation as Op;
    let claim = match update {
        RuntimeUpdate::PauseClaim {
            keep_memory,
            operation_id,
        } => Some(Op::Pause {
            keep_memory: *keep_memory,
            operation_id: Some(operation_id.clone()),
        }),
        RuntimeUpdate::ResumeClaim(operation_id) => Some(Op::Resume {
            operation_id: operation_id.clone(),
        }),
        RuntimeUpdate::ResourceUpdateClaim {
            operation_id,
            update,
        } => Some(Op::UpdateResources {
            operation_id: operation_id.clone(),
            update: update.clone(),
        }),
        RuntimeUpdate::SnapshotClaim {
            snapshot_id,
            source_state,
            operation_id,
        } => Some(Op::Snapshot {
            snapshot_id: snapshot_id.clone(),
            source_state: *source_state,
            operation_id: operation_id.clone(),
            freezer_applied: false,
        }),
        RuntimeUpdate::KillClaim {
            signal,
            timeout_secs,
        } => Some(Op::Kill {
            signal: *signal,
            timeout_secs: *timeout_secs,
        }),
        RuntimeUpdate::RestartClaim {
            operation_id,
            stop_timeout_secs,
        } => Some(Op::Restart {
            operation_id: operation_id.clone(),
            stop_timeout_secs: *stop_timeout_secs,
        }),
        // The claim goes on in the second half of a restart.
        RuntimeUpdate::RestartAdvance => claimed,
        RuntimeUpdate::None
        | RuntimeUpdate::Handle(_)
        | RuntimeUpdate::StartHandle(_)
        | RuntimeUpdate::Terminal(_)
        | RuntimeUpdate::KillTerminal(_)
        | RuntimeUpdate::ColdPause
        | RuntimeUpdate::ResourceUpdateComplete
        | RuntimeUpdate::RestartHandle(_)
        | RuntimeUpdate::RestartTerminal(_) => match to {
            ManagedExecutionState::Starting | ManagedExecutionState::Creating => Some(Op::Start),
            ManagedExecutionState::Removing => Some(Op::Remove),
            _ => None,
        },
    };
    claim.filter(|operation| operation.belongs_to(to))
}

fn set_handle(
    record: &mut BoxRecord,
    execution_id: &ExecutionId,
    handle: LocalExecutionHandle,
) -> StoreResult<()> {
    handle
        .validate()
        .map_err(|error| invalid(record, error.to_string()))?;
    record.pid = handle.pid;
    record.pid_start_time = handle.pid_start_time;
    record.exec_socket_path = handle.exec_socket_path;
    record.console_log = handle.console_log;
    record.anonymous_volumes = handle.anonymous_volumes;
    record.started_at = Some(handle.started_at);
    metadata_of(record, execution_id)?.oci_runtime = handle.oci_runtime;
    Ok(())
}

fn begin_run(record: &mut BoxRecord, execution_id: &ExecutionId) -> StoreResult<()> {
    record.exit_code = None;
    record.stopped_by_user = false;
    let metadata = metadata_of(record, execution_id)?;
    metadata.finished_at = None;
    metadata.paused_with_memory = true;
    Ok(())
}

fn end(
    record: &mut BoxRecord,
    execution_id: &ExecutionId,
    exit_code: Option<i32>,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    clear_live(record, execution_id)?;
    record.exit_code = exit_code;
    metadata_of(record, execution_id)?.finished_at = Some(now);
    Ok(())
}

fn clear_live(record: &mut BoxRecord, execution_id: &ExecutionId) -> StoreResult<()> {
    record.pid = None;
    record.pid_start_time = None;
    metadata_of(record, execution_id)?.oci_runtime = None;
    Ok(())
}

fn complete_resource_update(
    record: &mut BoxRecord,
    execution_id: &ExecutionId,
    claimed: Option<ManagedExecutionOperation>,
) -> StoreResult<()> {
    let Some(ManagedExecutionOperation::UpdateResources {
        operation_id,
        update,
    }) = claimed
    else {
        return Err(invalid(record, "no resource update is pending".to_owned()));
    };
    metadata_of(record, execution_id)?;
    merge_resource_update(record, operation_id, update);
    Ok(())
}

/// Writes an update that took effect into request, limits and completion; a repeat of it is known by then.
pub(crate) fn merge_resource_update(
    record: &mut BoxRecord,
    operation_id: OperationId,
    update: ExecutionResourceUpdate,
) {
    let Some(metadata) = record.managed_execution.as_mut() else {
        return;
    };
    update.apply_to(&mut metadata.request.config.resource_limits);
    let before = metadata
        .last_resource_update
        .replace(ManagedResourceUpdateCompletion {
            operation_id,
            generation: metadata.generation,
            update,
        });
    let earlier = &mut metadata.earlier_resource_updates;
    earlier.extend(before);
    let surplus = earlier.len().saturating_sub(KEPT_EARLIER_UPDATES);
    earlier.drain(..surplus);
    record.resource_limits = metadata.request.config.resource_limits.clone();
}

fn complete_restart(
    record: &mut BoxRecord,
    execution_id: &ExecutionId,
    claimed: Option<ManagedExecutionOperation>,
    started_at: DateTime<Utc>,
) -> StoreResult<()> {
    let Some(ManagedExecutionOperation::Restart {
        operation_id,
        stop_timeout_secs,
    }) = claimed
    else {
        return Err(invalid(record, "no restart is pending".to_owned()));
    };
    let metadata = metadata_of(record, execution_id)?;
    metadata.last_restart = Some(ManagedRestartCompletion {
        operation_id,
        stop_timeout_secs,
        generation: metadata.generation,
        started_at,
    });
    Ok(())
}

fn following(
    metadata: &ManagedExecutionMetadata,
    execution_id: &ExecutionId,
) -> StoreResult<a3sbox_core::ExecutionGeneration> {
    metadata
        .generation
        .get()
        .checked_add(1)
        .and_then(|next| a3sbox_core::ExecutionGeneration::new(next).ok())
        .ok_or_else(|| StoreError::Conflict {
            execution_id: execution_id.clone(),
            message: "the generation cannot grow any more".to_owned(),
        })
}

fn metadata_of<'a>(
    record: &'a mut BoxRecord,
    execution_id: &ExecutionId,
) -> StoreResult<&'a mut ManagedExecutionMetadata> {
    record
        .managed_execution
        .as_mut()
        .ok_or_else(|| StoreError::Conflict {
            execution_id: execution_id.clone(),
            message: "the record has no managed metadata".to_owned(),
        })
}

fn illegal(execution_id: &ExecutionId, source: IllegalTransition) -> StoreError {
    StoreError::IllegalTransition {
        execution_id: execution_id.clone(),
        source,
    }
}

fn invalid(record: &BoxRecord, message: String) -> StoreError {
    StoreError::Invalid {
        path: record.id.clone().into(),
        message,
    }
}

#[cfg(test)]
mod tests;
