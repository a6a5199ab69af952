//! Identities of claims.

use a3sbox_core::{ExecutionManagerResult, OperationId};

use super::span::name_operation;

/// A fresh operation id: each attempt of a pause, resume or snapshot is an operation of its own.
pub(super) fn mint(verb: &str) -> ExecutionManagerResult<OperationId> {
    let operation_id = OperationId::new(format!("{verb}-{}", uuid::Uuid::new_v4()))?;
    name_operation(&operation_id);
    Ok(operation_id)
}
