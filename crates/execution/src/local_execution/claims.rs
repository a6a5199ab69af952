//! Identities of claims.

use a3sbox_core::{ExecutionManagerResult, OperationId};

/// A fresh operation id: each attempt of a pause, resume or snapshot is an operation of its own.
pub(super) fn mint(verb: &str) -> ExecutionManagerResult<OperationId> {
    OperationId::new(format!("{verb}-{}", uuid::Uuid::new_v4()))
}
