//! Which of two backends an execution belongs to: decided once, at creation, and kept in its record.
//!
//! The policy is read for new records only. A stored route, or for records from before routes existed
//! their durable evidence, decides everything else, so a changed policy never moves a live execution,
//! and a backend that refuses is never replaced by the other one.

use std::sync::Arc;

use a3sbox_core::exec::{
    ExecRequest, FileRequest, FileResponse, FilesystemRequest, FilesystemResponse,
};
use a3sbox_core::pty::PtyRequest;
use a3sbox_core::{
    ExecOutput, ExecutionEventBatch, ExecutionEventsRequest, ExecutionIsolation,
    ExecutionManagerError, ExecutionManagerResult, ExecutionProcess, ExecutionProcessInventory,
    ExecutionResourceUpdate, ExecutionStats, KillOutcome, OperationId,
};
use async_trait::async_trait;

use super::backend::{
    LocalExecutionBackend, LocalExecutionHandle, LocalExecutionObservation,
    LocalExecutionTermination,
};
use crate::task::TaskBackend;
use crate::{BoxRecord, ManagedRuntimeRoute};

/// Which isolation new executions get from the OCI backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OciMigrationPolicy {
    /// None: everything goes to the first backend.
    #[default]
    LegacyOnly,
    SandboxViaOci,
    AllViaOci,
}

impl OciMigrationPolicy {
    const fn route(self, isolation: ExecutionIsolation) -> ManagedRuntimeRoute {
        match (self, isolation) {
            (Self::LegacyOnly, _) | (Self::SandboxViaOci, ExecutionIsolation::Microvm) => {
                ManagedRuntimeRoute::BoxVm
            }
            (Self::SandboxViaOci, ExecutionIsolation::Sandbox) | (Self::AllViaOci, _) => {
                ManagedRuntimeRoute::OciSdk
            }
        }
    }
}

/// Two backends behind one. Each call reaches the same-named method of exactly one of them, and its
/// answer comes back unchanged.
#[derive(Clone)]
pub struct LocalExecutionBackendRouter {
    legacy: Arc<dyn LocalExecutionBackend>,
    oci: Arc<dyn LocalExecutionBackend>,
    policy: OciMigrationPolicy,
}

impl std::fmt::Debug for LocalExecutionBackendRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalExecutionBackendRouter")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl LocalExecutionBackendRouter {
    pub fn new(
        legacy: Arc<dyn LocalExecutionBackend>,
        oci: Arc<dyn LocalExecutionBackend>,
        policy: OciMigrationPolicy,
    ) -> Self {
        Self {
            legacy,
            oci,
            policy,
        }
    }

    pub const fn policy(&self) -> OciMigrationPolicy {
        self.policy
    }

    /// The backend that owns a stored record.
    fn owner(&self, record: &BoxRecord) -> ExecutionManagerResult<&dyn LocalExecutionBackend> {
        match stored_route(record)? {
            ManagedRuntimeRoute::OciSdk => Ok(self.oci.as_ref()),
            ManagedRuntimeRoute::BoxVm | ManagedRuntimeRoute::Unspecified => {
                Ok(self.legacy.as_ref())
            }
        }
    }
}

/// The stored route, or what the record of an execution from before routes proves.
fn stored_route(record: &BoxRecord) -> ExecutionManagerResult<ManagedRuntimeRoute> {
    let metadata = record
        .managed_execution
        .as_ref()
        .ok_or_else(|| unmanaged(record))?;
    metadata.validate().map_err(|error| {
        ExecutionManagerError::Internal(format!(
            "the managed metadata of execution {} is damaged: {error}",
            record.id
        ))
    })?;
    Ok(match metadata.runtime_route {
        ManagedRuntimeRoute::Unspecified if metadata.oci_runtime.is_some() => {
            ManagedRuntimeRoute::OciSdk
        }
        // OCI handles store no socket, and it stays empty after the binding is cleared.
        ManagedRuntimeRoute::Unspecified if record.exec_socket_path.as_os_str().is_empty() => {
            ManagedRuntimeRoute::OciSdk
        }
        ManagedRuntimeRoute::Unspecified => ManagedRuntimeRoute::BoxVm,
        route @ (ManagedRuntimeRoute::BoxVm | ManagedRuntimeRoute::OciSdk) => route,
    })
}

fn unmanaged(record: &BoxRecord) -> ExecutionManagerError {
    ExecutionManagerError::Internal(format!("execution {} has no managed metadata", record.id))
}

#[async_trait]
impl LocalExecutionBackend for LocalExecutionBackendRouter {
    fn route_for_create(&self, record: &BoxRecord) -> ExecutionManagerResult<ManagedRuntimeRoute> {
        let metadata = record
            .managed_execution
            .as_ref()
            .ok_or_else(|| unmanaged(record))?;
        Ok(self.policy.route(metadata.request.config.isolation))
    }

    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        self.owner(record)?.preflight(record).await
    }

    async fn start(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.owner(record)?.start(record).await
    }

    async fn inspect(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        self.owner(record)?.inspect(record).await
    }

    async fn pause(
        &self,
        record: &BoxRecord,
        keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.owner(record)?.pause(record, keep_memory).await
    }

    async fn resume(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.owner(record)?.resume(record).await
    }

    async fn preflight_resource_update(
        &self,
        record: &BoxRecord,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        self.owner(record)?
            .preflight_resource_update(record, update)
            .await
    }

    async fn update_resources(
        &self,
        record: &BoxRecord,
        operation_id: &OperationId,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        self.owner(record)?
            .update_resources(record, operation_id, update)
            .await
    }

    async fn list_processes(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        self.owner(record)?.list_processes(record).await
    }

    async fn stats(&self, record: &BoxRecord) -> ExecutionManagerResult<ExecutionStats> {
        self.owner(record)?.stats(record).await
    }

    async fn events(
        &self,
        record: &BoxRecord,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        self.owner(record)?.events(record, request).await
    }

    async fn execute(
        &self,
        record: &BoxRecord,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        self.owner(record)?.execute(record, request).await
    }

    async fn start_process(
        &self,
        record: &BoxRecord,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        self.owner(record)?.start_process(record, request).await
    }

    async fn start_pty(
        &self,
        record: &BoxRecord,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        self.owner(record)?.start_pty(record, request).await
    }

    async fn transfer_file(
        &self,
        record: &BoxRecord,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse> {
        self.owner(record)?.transfer_file(record, request).await
    }

    async fn filesystem(
        &self,
        record: &BoxRecord,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        self.owner(record)?.filesystem(record, request).await
    }

    async fn prepare_quiescent_rootfs(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        self.owner(record)?.prepare_quiescent_rootfs(record).await
    }

    async fn cleanup_quiescent_rootfs(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        self.owner(record)?.cleanup_quiescent_rootfs(record).await
    }

    async fn stop_for_restart(
        &self,
        record: &BoxRecord,
        timeout_secs: Option<u64>,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.owner(record)?
            .stop_for_restart(record, timeout_secs)
            .await
    }

    async fn kill(&self, record: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        self.owner(record)?.kill(record).await
    }

    async fn kill_with_status(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        self.owner(record)?.kill_with_status(record).await
    }

    /// Task calls exist for OCI executions; a legacy backend with a task face of its own comes second.
    fn task_backend(&self) -> Option<&dyn TaskBackend> {
        self.oci
            .task_backend()
            .or_else(|| self.legacy.task_backend())
    }
}
