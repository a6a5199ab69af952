//! The runtime's errors as the manager's callers see them.

use a3sbox_core::{ExecutionId, ExecutionManagerError};
use a3sbox_oci::{Error, ErrorCode};

/// Maps by code and keeps the service's own words.
pub(super) fn runtime_error(error: Error) -> ExecutionManagerError {
    match error.code {
        ErrorCode::InvalidArgument => ExecutionManagerError::InvalidRequest(error.message),
        _ => ExecutionManagerError::Unavailable(error.message),
    }
}

/// [`runtime_error`] for the verbs on which "no such container" is an answer about the execution.
pub(super) fn runtime_error_for(execution_id: &ExecutionId, error: Error) -> ExecutionManagerError {
    match error.code {
        ErrorCode::NotFound => ExecutionManagerError::NotFound(execution_id.clone()),
        _ => runtime_error(error),
    }
}

pub(super) fn internal(message: impl Into<String>) -> ExecutionManagerError {
    ExecutionManagerError::Internal(message.into())
}

pub(super) fn invalid(message: impl Into<String>) -> ExecutionManagerError {
    ExecutionManagerError::InvalidRequest(message.into())
}
