//! One span per operation, with the fields that every log line of this project has.
//!
//! Ids and numbers alone: no argument, no environment, no byte of a stream is ever a field.

use a3sbox_core::{ExecutionGeneration, ExecutionId, OperationId};
use tracing::Span;
use tracing::field::Empty;

use crate::store::BoxRecord;

/// The span of a verb on an execution. What is not known yet is filled in on the way.
pub(super) fn operation(
    verb: &'static str,
    execution_id: &ExecutionId,
    generation: Option<ExecutionGeneration>,
    operation_id: Option<&OperationId>,
) -> Span {
    let span = tracing::info_span!(
        "operation",
        verb,
        %execution_id,
        namespace = Empty,
        container_id = Empty,
        generation = generation.map(ExecutionGeneration::get),
        operation_id = Empty,
    );
    if let Some(operation_id) = operation_id {
        span.record("operation_id", operation_id.as_str());
    }
    span
}

/// The span of a verb that names an operation and no execution.
pub(super) fn of_operation(verb: &'static str, operation_id: &OperationId) -> Span {
    tracing::info_span!(
        "operation",
        verb,
        namespace = Empty,
        container_id = Empty,
        %operation_id,
    )
}

/// Names the container of the record in the current span; an execution without a task has none.
pub(super) fn name_container(record: &BoxRecord) {
    let task = record
        .managed_execution
        .as_ref()
        .and_then(|metadata| metadata.task.as_ref());
    if let Some(task) = task {
        let span = Span::current();
        span.record("namespace", task.key.namespace.as_str());
        span.record("container_id", task.key.container_id.as_str());
    }
}

/// Names the operation that a verb minted.
pub(super) fn name_operation(operation_id: &OperationId) {
    Span::current().record("operation_id", operation_id.as_str());
}
