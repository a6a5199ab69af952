//! The names under which the runtime knows an execution and each effect on it.
//!
//! Every name is derived: a repeated intent, even from another process on the same records, carries the
//! same name and is answered from the runtime's journal. So nothing here may depend on process, time or
//! the order of a map, and no context has a deadline.

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionIsolation, ExecutionManagerResult};
use a3sbox_oci::{
    ContainerId, ContainerTarget, IsolationClass, IsolationRequest, OperationContext, OperationId,
    ProcessId,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::error::{internal, invalid, runtime_error};

/// Starts every container id and operation id of ours.
const NAME_PREFIX: &str = "a3s-box-";
const CREATE: &str = "create";
const START: &str = "start";
const EXEC_PROCESS: &str = "exec-process";

/// The isolation that the runtime is asked for; which driver gives it is the runtime's choice.
pub(super) fn oci_isolation_request(isolation: ExecutionIsolation) -> IsolationRequest {
    match isolation {
        ExecutionIsolation::Microvm => IsolationRequest::DedicatedVm,
        ExecutionIsolation::Sandbox => IsolationRequest::SharedHostKernel,
    }
}

pub(super) fn runtime_container_id(
    execution_id: &ExecutionId,
) -> ExecutionManagerResult<ContainerId> {
    ContainerId::new(format!("{NAME_PREFIX}{execution_id}")).map_err(|error| {
        invalid(format!(
            "execution id {execution_id} cannot name a container: {error}"
        ))
    })
}

/// The operation of one intent: `seed` says whose, `operation` which verb, `payload` on what.
pub(super) fn operation_context(
    seed: &str,
    generation: ExecutionGeneration,
    operation: &str,
    payload: impl Serialize,
) -> ExecutionManagerResult<OperationContext> {
    operation_id(seed, generation, operation, payload).map(OperationContext::new)
}

pub(super) fn create_operation_context(
    seed: &str,
    generation: ExecutionGeneration,
    runtime_container_id: &ContainerId,
    isolation: IsolationClass,
) -> ExecutionManagerResult<OperationContext> {
    operation_context(seed, generation, CREATE, (runtime_container_id, isolation))
}

pub(super) fn start_operation_context(
    seed: &str,
    generation: ExecutionGeneration,
    target: &ContainerTarget,
    isolation: IsolationClass,
) -> ExecutionManagerResult<OperationContext> {
    operation_context(seed, generation, START, (target, isolation))
}

/// The process that one exec intent starts; only its seed and container decide, so that a repeat with
/// other content meets the first one.
pub(super) fn exec_process_id(
    seed: &str,
    generation: ExecutionGeneration,
    target: &ContainerTarget,
) -> ExecutionManagerResult<ProcessId> {
    let name = operation_id(seed, generation, EXEC_PROCESS, target)?;
    ProcessId::new(name.as_str()).map_err(runtime_error)
}

fn operation_id(
    seed: &str,
    generation: ExecutionGeneration,
    operation: &str,
    payload: impl Serialize,
) -> ExecutionManagerResult<OperationId> {
    let payload = serde_json::to_vec(&payload)
        .map_err(|error| internal(format!("cannot encode the payload of {operation}: {error}")))?;
    let mut hash = Sha256::new();
    hash.update(seed.as_bytes());
    hash.update([0]);
    hash.update(generation.get().to_be_bytes());
    hash.update([0]);
    hash.update(operation.as_bytes());
    hash.update([0]);
    hash.update(&payload);
    OperationId::new(format!(
        "{NAME_PREFIX}{operation}-{}",
        lower_hex(&hash.finalize())
    ))
    .map_err(runtime_error)
}

pub(super) fn lower_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        })
        .map(char::from)
        .collect()
}
