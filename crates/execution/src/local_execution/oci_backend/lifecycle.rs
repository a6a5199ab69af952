//! Start: adopt what exists, else prepare, create, prove, start.
//!
//! A lost answer is never resent; the runtime is asked what it has. What was prepared on the host is
//! taken away only when it is proved that no runtime uses it.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_oci::oci_spec::runtime::ContainerState;
use a3sbox_oci::{
    ContainerRecord, ContainerTarget, CreateRequest, DeleteMode, DeleteRequest, ErrorCode,
    RuntimeInfo, StartRequest, StateRequest,
};
use chrono::Utc;

use super::capabilities::{features, require_launch};
use super::error::runtime_error;
use super::evidence::{
    bind, require_status, runtime_process_identity, validate_adopted, validate_created,
};
use super::host::HostResources;
use super::identity::{create_operation_context, operation_context, start_operation_context};
use super::record::Execution;
use super::{
    OciBundlePreparationContext, OciLocalExecutionBackend, OciPreparedExecution, OciRuntimeBinding,
};
use crate::{BoxRecord, LocalExecutionHandle};

/// Label of the delete that takes back a create whose evidence was wrong.
const DELETE_FAILED_LAUNCH: &str = "delete-failed-launch";

impl OciLocalExecutionBackend {
    /// Everything that can refuse a launch, without an effect.
    pub(super) async fn preflight_launch(
        &self,
        execution: &Execution<'_>,
    ) -> ExecutionManagerResult<(RuntimeInfo, OciBundlePreparationContext)> {
        let isolation = execution.isolation();
        let info = features(&self.client).await?;
        require_launch(&info, &isolation)?;
        let create_context = create_operation_context(
            execution.creation_seed(),
            execution.generation(),
            &execution.container_id,
            isolation.class(),
        )?;
        let context = OciBundlePreparationContext::new(
            execution.container_id.clone(),
            create_context,
            isolation,
            info.attachments.clone(),
        );
        self.provider.preflight(execution.record, &context)?;
        Ok((info, context))
    }

    pub(super) async fn start_execution(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        let execution = Execution::new(record, &self.endpoint)?;
        let (binding, container) = self.provision_execution(&execution).await?;
        let container = match *container.state.status() {
            ContainerState::Created => self.start_created(&execution, &binding).await?,
            ContainerState::Running => {
                self.provider
                    .ensure_log_projection(record, &binding)
                    .await?;
                container
            }
            ContainerState::Creating | ContainerState::Stopped => {
                return Err(ExecutionManagerError::Conflict {
                    execution_id: execution.execution_id.clone(),
                    message: format!(
                        "runtime container {} is already {}",
                        execution.container_id,
                        container.state.status()
                    ),
                });
            }
        };
        self.handle(&execution, &binding, &container).await
    }

    /// The runtime's container of an execution: the one that exists, else a fresh one, not started.
    pub(super) async fn provision_execution(
        &self,
        execution: &Execution<'_>,
    ) -> ExecutionManagerResult<(OciRuntimeBinding, ContainerRecord)> {
        if let Some(existing) = self.find_container(execution).await? {
            let binding = self.adopt(execution, &existing).await?;
            return Ok((binding, existing));
        }
        if execution.binding().is_some() {
            // Its create is in the runtime's journal: asking again would replay an answer about a
            // container that is gone.
            self.provider.cleanup(execution.record).await?;
            return Err(ExecutionManagerError::NotFound(
                execution.execution_id.clone(),
            ));
        }
        self.create_container(execution).await
    }

    /// `None` when the runtime proves that it has no such container.
    pub(super) async fn find_container(
        &self,
        execution: &Execution<'_>,
    ) -> ExecutionManagerResult<Option<ContainerRecord>> {
        match self
            .client
            .state(StateRequest {
                target: execution.target(),
            })
            .await
        {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.code == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(runtime_error(error)),
        }
    }

    /// The binding to a container that was found: the stored one, which it must fit, or a new one.
    pub(super) async fn adopt(
        &self,
        execution: &Execution<'_>,
        container: &ContainerRecord,
    ) -> ExecutionManagerResult<OciRuntimeBinding> {
        if let Some(binding) = execution.binding() {
            binding.validate_record(container)?;
            return Ok(binding.clone());
        }
        let info = features(&self.client).await?;
        validate_adopted(
            container,
            &execution.container_id,
            &execution.isolation(),
            &info,
        )?;
        bind(&self.endpoint, &execution.container_id, container)
    }

    async fn create_container(
        &self,
        execution: &Execution<'_>,
    ) -> ExecutionManagerResult<(OciRuntimeBinding, ContainerRecord)> {
        let (info, context) = self.preflight_launch(execution).await?;
        let host = HostResources::prepare(execution).await?;
        let prepared = match self.prepare(execution, &context).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.take_back_when_absent(execution, host).await;
                return Err(error);
            }
        };
        let request = CreateRequest {
            context: context.create_context().clone(),
            id: execution.container_id.clone(),
            bundle: prepared.bundle.clone(),
            isolation: context.isolation().clone(),
            attachments: prepared.attachments.clone(),
        };
        let container = match self.client.create(request).await {
            Ok(container) => container,
            Err(error) => {
                let error = runtime_error(error);
                match self.find_container(execution).await {
                    Ok(Some(container)) => container,
                    Ok(None) => {
                        self.take_back(execution, host).await;
                        return Err(error);
                    }
                    Err(unknown) => {
                        return Err(ExecutionManagerError::Unavailable(format!(
                            "{error}; whether the container was created is unknown: {unknown}"
                        )));
                    }
                }
            }
        };
        let proved = validate_created(
            &container,
            &execution.container_id,
            context.isolation(),
            &prepared,
            &info,
        )
        .and_then(|()| bind(&self.endpoint, &execution.container_id, &container));
        match proved {
            Ok(binding) => Ok((binding, container)),
            Err(error) => {
                if self.delete_failed_launch(execution, &container).await {
                    self.take_back(execution, host).await;
                }
                Err(error)
            }
        }
    }

    async fn prepare(
        &self,
        execution: &Execution<'_>,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        let prepared = self.provider.prepare(execution.record, context).await?;
        prepared.validate_for(execution.record, context)?;
        Ok(prepared)
    }

    /// Starts a created container under the one identity that its start has, whoever asks.
    pub(super) async fn start_created(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<ContainerRecord> {
        self.provider
            .ensure_log_projection(execution.record, binding)
            .await?;
        let context = start_operation_context(
            execution.creation_seed(),
            execution.generation(),
            &binding.target,
            binding.isolation,
        )?;
        let request = StartRequest {
            context,
            target: binding.target.clone(),
        };
        let container = match self.client.start(request).await {
            Ok(container) => container,
            Err(error) => {
                let error = runtime_error(error);
                match self
                    .client
                    .state(StateRequest {
                        target: binding.target.clone(),
                    })
                    .await
                {
                    Ok(container) if *container.state.status() == ContainerState::Running => {
                        container
                    }
                    _ => return Err(error),
                }
            }
        };
        binding.validate_record(&container)?;
        require_status(
            &container,
            &[ContainerState::Running, ContainerState::Stopped],
        )?;
        Ok(container)
    }

    /// What the manager keeps of a container that was started.
    pub(super) async fn handle(
        &self,
        execution: &Execution<'_>,
        binding: &OciRuntimeBinding,
        container: &ContainerRecord,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        let (pid, pid_start_time) = if *container.state.status() == ContainerState::Running {
            self.process_identity(binding, container).await?
        } else {
            (None, None)
        };
        Ok(LocalExecutionHandle {
            started_at: execution.record.started_at.unwrap_or_else(Utc::now),
            pid,
            pid_start_time,
            exec_socket_path: std::path::PathBuf::new(),
            console_log: execution.record.console_log.clone(),
            anonymous_volumes: execution.record.anonymous_volumes.clone(),
            oci_runtime: Some(binding.clone()),
        })
    }

    /// A process may end between the runtime's answer and the look at it; only when the runtime still
    /// calls it running is a missing process an error.
    async fn process_identity(
        &self,
        binding: &OciRuntimeBinding,
        container: &ContainerRecord,
    ) -> ExecutionManagerResult<(Option<u32>, Option<u64>)> {
        let error = match runtime_process_identity(binding, container) {
            Err(error @ ExecutionManagerError::Unavailable(_)) => error,
            settled => return settled,
        };
        match self
            .client
            .state(StateRequest {
                target: binding.target.clone(),
            })
            .await
        {
            Ok(now) if *now.state.status() == ContainerState::Stopped => Ok((None, None)),
            _ => Err(error),
        }
    }

    /// Takes away a container whose evidence is wrong; true when it is proved to be gone.
    async fn delete_failed_launch(
        &self,
        execution: &Execution<'_>,
        container: &ContainerRecord,
    ) -> bool {
        // An answer about another container or without a generation proves nothing about ours.
        let is_ours = container.state.id() == execution.container_id.as_str();
        let target = if is_ours && container.generation.0 > 0 {
            ContainerTarget::exact(execution.container_id.clone(), container.generation)
        } else {
            ContainerTarget::current(execution.container_id.clone())
        };
        let context = operation_context(
            execution.execution_id.as_str(),
            execution.generation(),
            DELETE_FAILED_LAUNCH,
            execution.isolation().class(),
        );
        let Ok(context) = context else { return false };
        let request = DeleteRequest {
            context,
            target,
            mode: DeleteMode::Force,
        };
        match self.client.delete(request).await {
            Ok(()) => true,
            Err(error) if error.code == ErrorCode::NotFound => true,
            Err(error) => {
                tracing::warn!(
                    container_id = %execution.container_id,
                    %error,
                    "cannot delete a container with wrong evidence; its preparation stays"
                );
                false
            }
        }
    }

    async fn take_back_when_absent(&self, execution: &Execution<'_>, host: HostResources) {
        match self.find_container(execution).await {
            Ok(None) => self.take_back(execution, host).await,
            Ok(Some(_)) => {}
            Err(error) => tracing::warn!(
                container_id = %execution.container_id,
                %error,
                "cannot prove that no container uses a failed preparation; it stays"
            ),
        }
    }

    /// No runtime uses the preparation. The launch's own error is the one that is reported.
    async fn take_back(&self, execution: &Execution<'_>, host: HostResources) {
        if let Err(error) = self.provider.cleanup(execution.record).await {
            tracing::warn!(
                container_id = %execution.container_id,
                %error,
                "cannot clean up a failed preparation"
            );
        }
        if let Err(error) = host.roll_back().await {
            tracing::warn!(
                container_id = %execution.container_id,
                %error,
                "cannot roll back host resources"
            );
        }
    }
}
