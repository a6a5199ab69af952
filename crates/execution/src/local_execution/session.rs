//! What sessions and observers ask of the record before the backend is called.

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionManagerResult};

use super::evidence::{internal, wrong_state};
use super::manager::LocalExecutionManager;
use crate::store::{BoxRecord, ManagedExecutionState};

impl LocalExecutionManager {
    /// The record of a running execution in the caller's generation.
    pub(super) fn require_running(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        verb: &str,
    ) -> ExecutionManagerResult<BoxRecord> {
        let record = self.require_current(execution_id, generation)?;
        match record.state()? {
            ManagedExecutionState::Running => check_binding(execution_id, record),
            state => Err(wrong_state(execution_id, verb, state)),
        }
    }

    /// As [`Self::require_running`], for what a frozen execution can answer too.
    pub(super) fn require_observable(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        verb: &str,
    ) -> ExecutionManagerResult<BoxRecord> {
        let record = self.require_current(execution_id, generation)?;
        match record.state()? {
            ManagedExecutionState::Running | ManagedExecutionState::Paused => {
                check_binding(execution_id, record)
            }
            state => Err(wrong_state(execution_id, verb, state)),
        }
    }
}

/// The store checked the binding against the id; a live OCI execution must have one.
fn check_binding(
    execution_id: &ExecutionId,
    record: BoxRecord,
) -> ExecutionManagerResult<BoxRecord> {
    let has_socket = !record.exec_socket_path.as_os_str().is_empty();
    if record.metadata()?.oci_runtime.is_none() && !has_socket {
        return Err(internal(format!(
            "live execution {execution_id} has neither a runtime binding nor a socket"
        )));
    }
    Ok(record)
}
