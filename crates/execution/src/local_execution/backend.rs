//! What the execution manager asks of a place that runs executions.
//!
//! Every method gets the record as it is stored and is called outside store locks. A backend keys what
//! it owns on the host by the record's id, never by the caller's external id.

use std::path::PathBuf;

use a3sbox_core::exec::{
    ExecRequest, FileRequest, FileResponse, FilesystemRequest, FilesystemResponse,
};
use a3sbox_core::pty::PtyRequest;
use a3sbox_core::{
    ExecOutput, ExecutionEventBatch, ExecutionEventsRequest, ExecutionManagerError,
    ExecutionManagerResult, ExecutionProcess, ExecutionProcessInventory, ExecutionResourceUpdate,
    ExecutionState, ExecutionStats, KillOutcome, OperationId,
};
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::oci_backend::OciRuntimeBinding;
use crate::task::TaskBackend;
use crate::{BoxRecord, ManagedRuntimeRoute};

/// A live execution as its backend hands it to the manager.
#[derive(Debug, Clone)]
pub struct LocalExecutionHandle {
    pub started_at: DateTime<Utc>,
    /// The init process on this host. `None` when it runs in another kernel or has already ended.
    pub pid: Option<u32>,
    pub pid_start_time: Option<u64>,
    /// Empty when the execution is reached through `oci_runtime`.
    pub exec_socket_path: PathBuf,
    pub console_log: PathBuf,
    pub anonymous_volumes: Vec<String>,
    pub oci_runtime: Option<OciRuntimeBinding>,
}

impl LocalExecutionHandle {
    /// Refuses a handle that no record may hold.
    ///
    /// # Errors
    /// `Internal`: such a handle is a fault of the backend.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        let fault = if self.oci_runtime.is_some() && !self.exec_socket_path.as_os_str().is_empty() {
            "an OCI execution has no exec socket"
        } else if self.oci_runtime.is_none() && self.exec_socket_path.as_os_str().is_empty() {
            "an execution without an OCI binding needs an exec socket"
        } else if self.pid.is_none() && self.pid_start_time.is_some() {
            "a start time without a pid"
        } else if self.console_log.as_os_str().is_empty() {
            "an empty console log path"
        } else {
            return Ok(());
        };
        Err(ExecutionManagerError::Internal(format!(
            "the backend returned an invalid handle: {fault}"
        )))
    }
}

/// What a backend sees of one execution.
#[derive(Debug, Clone)]
pub struct LocalExecutionObservation {
    pub state: ExecutionState,
    /// Present whenever `state` is `Running` or `Paused`.
    pub handle: Option<LocalExecutionHandle>,
    /// `None` on a stopped execution: nobody saw how it ended.
    pub exit_code: Option<i32>,
}

impl LocalExecutionObservation {
    /// Refuses an observation that no record may follow.
    ///
    /// # Errors
    /// `Internal`: such an observation is a fault of the backend.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        match (&self.handle, self.state) {
            (None, ExecutionState::Running | ExecutionState::Paused) => {
                Err(ExecutionManagerError::Internal(
                    "the backend reported a live execution without a handle".to_owned(),
                ))
            }
            (Some(handle), _) => handle.validate(),
            (None, _) => Ok(()),
        }
    }
}

/// How a kill ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalExecutionTermination {
    pub outcome: KillOutcome,
    /// `None`: nobody saw how it ended.
    pub exit_code: Option<i32>,
}

/// Where executions run. Five verbs are required; a verb that a backend lacks is `Unavailable`.
#[async_trait]
pub trait LocalExecutionBackend: Send + Sync {
    /// Which backend family a new record belongs to; stamped into the record before `preflight`.
    fn route_for_create(&self, record: &BoxRecord) -> ExecutionManagerResult<ManagedRuntimeRoute> {
        let _ = record;
        Ok(ManagedRuntimeRoute::Unspecified)
    }

    /// Refuses what this backend cannot run, before anything is stored.
    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let _ = record;
        Ok(())
    }

    async fn start(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle>;

    /// Looks, and settles what is seen: an ended execution is taken away before it is reported.
    async fn inspect(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation>;

    async fn pause(
        &self,
        record: &BoxRecord,
        keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle>;

    async fn resume(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle>;

    /// Everything that can refuse `update_resources`, without an effect.
    async fn preflight_resource_update(
        &self,
        record: &BoxRecord,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        let _ = (record, update);
        Err(unavailable("live resource updates"))
    }

    async fn update_resources(
        &self,
        record: &BoxRecord,
        operation_id: &OperationId,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        let _ = (record, operation_id, update);
        Err(unavailable("live resource updates"))
    }

    async fn list_processes(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        let _ = record;
        Err(unavailable("process inventories"))
    }

    async fn stats(&self, record: &BoxRecord) -> ExecutionManagerResult<ExecutionStats> {
        let _ = record;
        Err(unavailable("statistics"))
    }

    async fn events(
        &self,
        record: &BoxRecord,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        let _ = (record, request);
        Err(unavailable("runtime events"))
    }

    async fn execute(
        &self,
        record: &BoxRecord,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        let _ = (record, request);
        Err(unavailable("command execution"))
    }

    async fn start_process(
        &self,
        record: &BoxRecord,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        let _ = (record, request);
        Err(unavailable("streaming processes"))
    }

    async fn start_pty(
        &self,
        record: &BoxRecord,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        let _ = (record, request);
        Err(unavailable("terminals"))
    }

    async fn transfer_file(
        &self,
        record: &BoxRecord,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse> {
        let _ = (record, request);
        Err(unavailable("file transfer"))
    }

    async fn filesystem(
        &self,
        record: &BoxRecord,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        let _ = (record, request);
        Err(unavailable("filesystem operations"))
    }

    /// Makes the rootfs of an execution that is not running readable on the host.
    async fn prepare_quiescent_rootfs(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let _ = record;
        Ok(())
    }

    async fn cleanup_quiescent_rootfs(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let _ = record;
        Ok(())
    }

    async fn stop_for_restart(
        &self,
        record: &BoxRecord,
        timeout_secs: Option<u64>,
    ) -> ExecutionManagerResult<KillOutcome> {
        let _ = timeout_secs;
        self.kill(record).await
    }

    async fn kill(&self, record: &BoxRecord) -> ExecutionManagerResult<KillOutcome>;

    async fn kill_with_status(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        let outcome = self.kill(record).await?;
        Ok(LocalExecutionTermination {
            outcome,
            exit_code: None,
        })
    }

    /// The verbs of containerd's Task API, where this backend has them.
    fn task_backend(&self) -> Option<&dyn TaskBackend> {
        None
    }
}

fn unavailable(what: &str) -> ExecutionManagerError {
    ExecutionManagerError::Unavailable(format!("this execution backend does not support {what}"))
}
