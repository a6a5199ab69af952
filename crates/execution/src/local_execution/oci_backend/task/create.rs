//! Create: prepare the bundle, create the container, prove that it is the one that was asked for.
//!
//! After an error nothing is left: a container whose create failed is deleted whatever the answer was.

use a3sbox_oci::oci_spec::runtime::ContainerState;
use a3sbox_oci::{
    ContainerRecord, ContainerTarget, CreateRequest, DeleteMode, DeleteRequest, ErrorCode,
    OperationContext,
};

use super::convert::{has_own_pid_namespace, init_of};
use crate::BoxRecord;
use crate::local_execution::oci_backend::capabilities::{features, require_launch};
use crate::local_execution::oci_backend::evidence::{bind, require_status, validate_created};
use crate::local_execution::oci_backend::host::HostResources;
use crate::local_execution::oci_backend::record::Execution;
use crate::local_execution::oci_backend::{
    OciBundlePreparationContext, OciLocalExecutionBackend, OciPreparedExecution,
};
use crate::task::{TaskProvisioned, TaskResult};

impl OciLocalExecutionBackend {
    pub(super) async fn create_task(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
    ) -> TaskResult<TaskProvisioned> {
        let execution = Execution::new(record, &self.endpoint)?;
        let isolation = execution.isolation();
        let info = features(&self.client).await?;
        require_launch(&info, &isolation)?;
        let preparation = OciBundlePreparationContext::new(
            execution.container_id.clone(),
            context.clone(),
            isolation.clone(),
            info.attachments.clone(),
        );
        self.provider.preflight(record, &preparation)?;
        let host = HostResources::prepare(&execution).await?;
        let created = self.create_prepared(&execution, &preparation, &info).await;
        if created.is_err() {
            self.take_back_task(record, host).await;
        }
        created
    }

    async fn create_prepared(
        &self,
        execution: &Execution<'_>,
        preparation: &OciBundlePreparationContext,
        info: &a3sbox_oci::RuntimeInfo,
    ) -> TaskResult<TaskProvisioned> {
        let prepared = self.provider.prepare(execution.record, preparation).await?;
        prepared.validate_for(execution.record, preparation)?;
        let request = CreateRequest {
            context: preparation.create_context().clone(),
            id: execution.container_id.clone(),
            bundle: prepared.bundle.clone(),
            isolation: preparation.isolation().clone(),
            attachments: prepared.attachments.clone(),
        };
        let created = match self.client.create(request).await {
            Ok(container) => self.prove(execution, preparation, info, &prepared, &container),
            Err(error) => Err(error.into()),
        };
        if created.is_err() {
            self.force_delete(execution).await;
        }
        created
    }

    fn prove(
        &self,
        execution: &Execution<'_>,
        preparation: &OciBundlePreparationContext,
        info: &a3sbox_oci::RuntimeInfo,
        prepared: &OciPreparedExecution,
        container: &ContainerRecord,
    ) -> TaskResult<TaskProvisioned> {
        let id = &execution.container_id;
        validate_created(container, id, preparation.isolation(), prepared, info)?;
        let is_restored = execution
            .metadata
            .task
            .as_ref()
            .is_some_and(|task| task.engine.restore_from.is_some());
        // A restored process goes on where it was: nothing holds it back until the start.
        let expected: &[ContainerState] = if is_restored {
            &[
                ContainerState::Created,
                ContainerState::Running,
                ContainerState::Stopped,
            ]
        } else {
            &[ContainerState::Created, ContainerState::Stopped]
        };
        require_status(container, expected)?;
        Ok(TaskProvisioned {
            binding: bind(&self.endpoint, id, container)?,
            process: init_of(container),
            kill_leftovers: !has_own_pid_namespace(prepared.bundle.spec()),
        })
    }

    /// A create that failed or cannot be proved leaves no container, whatever its answer was.
    async fn force_delete(&self, execution: &Execution<'_>) {
        let text = format!("a3sbox-task-delete-{}", uuid::Uuid::new_v4().simple());
        let Ok(operation_id) = a3sbox_oci::OperationId::new(text) else {
            return;
        };
        let request = DeleteRequest {
            context: OperationContext::new(operation_id),
            target: ContainerTarget::current(execution.container_id.clone()),
            mode: DeleteMode::Force,
        };
        match self.client.delete(request).await {
            Ok(()) => {}
            Err(error) if error.code == ErrorCode::NotFound => {}
            Err(error) => tracing::warn!(
                container_id = %execution.container_id, %error,
                "a container whose create failed cannot be deleted"
            ),
        }
    }

    async fn take_back_task(&self, record: &BoxRecord, host: HostResources) {
        if let Err(error) = self.provider.cleanup(record).await {
            tracing::warn!(execution_id = %record.id, %error, "a preparation stays");
        }
        if let Err(error) = host.roll_back().await {
            tracing::warn!(execution_id = %record.id, %error, "a host preparation stays");
        }
    }
}
