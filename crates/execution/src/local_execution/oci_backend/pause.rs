//! Pause and resume in place: the runtime generation stays, the flag toggles.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult, OperationId};
use a3sbox_oci::{ContainerOperationRequest, RuntimeOperation};

use super::OciLocalExecutionBackend;
use super::capabilities::require;
use super::error::runtime_error_for;
use super::evidence::validate_running;
use super::identity::operation_context;
use super::record::Execution;
use crate::{BoxRecord, LocalExecutionHandle, ManagedExecutionOperation};

const PAUSE: &str = "pause";
const RESUME: &str = "resume";

impl OciLocalExecutionBackend {
    pub(super) async fn pause_execution(
        &self,
        record: &BoxRecord,
        keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        if !keep_memory {
            return Err(ExecutionManagerError::Unavailable(
                "this backend pauses in place and keeps the memory".to_owned(),
            ));
        }
        self.toggle(record, true).await
    }

    pub(super) async fn resume_execution(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.toggle(record, false).await
    }

    async fn toggle(
        &self,
        record: &BoxRecord,
        paused: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        let execution = Execution::new(record, &self.endpoint)?;
        let binding = execution.require_binding()?;
        let (operation, label) = if paused {
            (RuntimeOperation::Pause, PAUSE)
        } else {
            (RuntimeOperation::Resume, RESUME)
        };
        require(&self.client, &[operation]).await?;
        let seed = claimed_operation(&execution);
        let context = operation_context(
            seed.as_str(),
            execution.generation(),
            label,
            (&binding.target, paused),
        )?;
        let request = ContainerOperationRequest {
            context,
            target: binding.target.clone(),
        };
        let answer = if paused {
            self.client.pause(request).await
        } else {
            self.client.resume(request).await
        };
        let container =
            answer.map_err(|error| runtime_error_for(&execution.execution_id, error))?;
        validate_running(binding, &container, paused)?;
        self.handle(&execution, binding, &container).await
    }
}

/// The durable claim's identity: fresh for each attempt, kept when the attempt is taken up again. Claims
/// from before they had one fall back to the creation's.
fn claimed_operation<'a>(execution: &Execution<'a>) -> &'a OperationId {
    let claimed = match &execution.metadata.pending_operation {
        Some(ManagedExecutionOperation::Pause { operation_id, .. }) => operation_id.as_ref(),
        Some(
            ManagedExecutionOperation::Resume { operation_id }
            | ManagedExecutionOperation::Snapshot { operation_id, .. },
        ) => Some(operation_id),
        _ => None,
    };
    claimed.unwrap_or(&execution.metadata.operation_id)
}
