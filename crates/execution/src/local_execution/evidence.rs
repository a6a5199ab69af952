//! Records as the answers that callers get.

use a3sbox_core::{
    ExecutionId, ExecutionLease, ExecutionManagerError, ExecutionManagerResult,
    ExecutionReservation, ExecutionState, ExecutionStatus,
};

use crate::store::{BoxRecord, ManagedExecutionState};

pub(super) fn reservation(record: &BoxRecord) -> ExecutionManagerResult<ExecutionReservation> {
    let metadata = record.metadata()?;
    Ok(ExecutionReservation {
        execution_id: record.execution_id()?,
        generation: metadata.generation,
        plan: metadata.plan.clone(),
        resources: metadata.request.config.resources.clone(),
        created_at: record.created_at,
    })
}

pub(super) fn lease(record: &BoxRecord) -> ExecutionManagerResult<ExecutionLease> {
    let metadata = record.metadata()?;
    let started_at = record.started_at.ok_or_else(|| {
        ExecutionManagerError::Internal(format!("execution {} has no start time", record.id))
    })?;
    Ok(ExecutionLease {
        execution_id: record.execution_id()?,
        generation: metadata.generation,
        plan: metadata.plan.clone(),
        resources: metadata.request.config.resources.clone(),
        started_at,
    })
}

pub(super) fn status(
    record: &BoxRecord,
    state: ExecutionState,
) -> ExecutionManagerResult<ExecutionStatus> {
    let metadata = record.metadata()?;
    Ok(ExecutionStatus {
        execution_id: record.execution_id()?,
        generation: metadata.generation,
        state,
        plan: metadata.plan.clone(),
    })
}

/// The verb does not fit the state that the record is in.
pub(super) fn wrong_state(
    execution_id: &ExecutionId,
    verb: &str,
    state: ManagedExecutionState,
) -> ExecutionManagerError {
    ExecutionManagerError::Conflict {
        execution_id: execution_id.clone(),
        message: format!("cannot {verb} an execution that is {state}"),
    }
}

/// The effect failed and so did the look at what became of it.
pub(super) fn unknown_outcome(
    error: &ExecutionManagerError,
    look: &ExecutionManagerError,
) -> ExecutionManagerError {
    ExecutionManagerError::Unavailable(format!("{error}; what became of it is unknown: {look}"))
}

pub(super) fn internal(message: impl Into<String>) -> ExecutionManagerError {
    ExecutionManagerError::Internal(message.into())
}
