//! Inspect: look, and bring what is seen to its end.
//!
//! A created runtime of a record that is starting is started, a stopped one is taken away. Its exit
//! status is reported as the runtime saw it, or not at all.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult, ExecutionState};
use a3sbox_oci::oci_spec::runtime::ContainerState;
use a3sbox_oci::{ContainerRecord, DeleteMode, DeleteRequest, ErrorCode, ExitStatus, WaitRequest};

use super::error::runtime_error;
use super::evidence::exit_code;
use super::identity::operation_context;
use super::record::Execution;
use super::{OciLocalExecutionBackend, OciRuntimeBinding};
use crate::{BoxRecord, LocalExecutionObservation};

const DELETE: &str = "delete";

impl OciLocalExecutionBackend {
    pub(super) async fn inspect_execution(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        let execution = Execution::new(record, &self.endpoint)?;
        let Some(container) = self.find_container(&execution).await? else {
            if execution.binding().is_some() {
                self.provider.cleanup(record).await?;
            }
            return Err(ExecutionManagerError::NotFound(execution.execution_id));
        };
        let binding = self.adopt(&execution, &container).await?;
        match *container.state.status() {
            ContainerState::Created if execution.is_starting() => {
                let container = self.start_created(&execution, &binding).await?;
                self.observe_started(&execution, &binding, &container).await
            }
            ContainerState::Running => {
                self.provider
                    .ensure_log_projection(record, &binding)
                    .await?;
                self.observe_started(&execution, &binding, &container).await
            }
            ContainerState::Stopped => self.observe_stopped(&execution, &binding).await,
            ContainerState::Created => Ok(without_handle(ExecutionState::Created)),
            ContainerState::Creating => Ok(without_handle(ExecutionState::Creating)),
        }
    }

    async fn observe_started(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
        container: &ContainerRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        if *container.state.status() == ContainerState::Stopped {
            return self.observe_stopped(execution, binding).await;
        }
        let state = if container.is_paused() {
            ExecutionState::Paused
        } else {
            ExecutionState::Running
        };
        let handle = self.handle(execution, binding, container).await?;
        Ok(LocalExecutionObservation {
            state,
            handle: Some(handle),
            exit_code: None,
        })
    }

    async fn observe_stopped(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        let exit_code = self.settle_stopped(execution, binding).await?;
        Ok(LocalExecutionObservation {
            state: ExecutionState::Stopped,
            handle: None,
            exit_code,
        })
    }

    /// Takes a stopped container away and gives its exit code, if anybody saw it.
    pub(super) async fn settle_stopped(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<Option<i32>> {
        let request = WaitRequest {
            target: binding.target.clone(),
            timeout_ms: Some(0),
        };
        let status = match self.client.wait(request).await {
            Ok(status) => Some(status),
            Err(error) if error.code == ErrorCode::FailedPrecondition => None,
            Err(error) => return Err(runtime_error(error)),
        };
        self.settle(execution, binding, status.as_ref()).await
    }

    /// The end of a stopped container whose wait was answered; `None` is a status nobody knows.
    pub(super) async fn settle(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
        status: Option<&ExitStatus>,
    ) -> ExecutionManagerResult<Option<i32>> {
        let exit_code = status.map(exit_code).transpose()?;
        if status.is_some() {
            self.provider
                .ensure_log_projection(execution.record, binding)
                .await?;
            self.provider
                .wait_log_projection_drained(execution.record, binding)
                .await?;
        } else {
            self.provider
                .wait_log_projection_stopped_after_owner_loss(execution.record, binding)
                .await?;
        }
        self.delete_stopped(execution, binding).await?;
        self.provider.cleanup(execution.record).await?;
        Ok(exit_code)
    }

    async fn delete_stopped(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        let mode = DeleteMode::StoppedOnly;
        let context = operation_context(
            execution.execution_id.as_str(),
            execution.generation(),
            DELETE,
            mode,
        )?;
        let request = DeleteRequest {
            context,
            target: binding.target.clone(),
            mode,
        };
        match self.client.delete(request).await {
            Ok(()) => Ok(()),
            Err(error) if error.code == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(runtime_error(error)),
        }
    }
}

const fn without_handle(state: ExecutionState) -> LocalExecutionObservation {
    LocalExecutionObservation {
        state,
        handle: None,
        exit_code: None,
    }
}
