//! The backend between an execution record and an OCI runtime service.
//!
//! One record, one exact runtime generation, every effect once. Three rules carry that:
//!
//! - **Names are derived.** What the runtime is asked for is named by the record and the intent
//!   (`identity`), so a repeat from anywhere is the same operation.
//! - **Nothing is resent blindly.** After a lost answer the runtime is asked what it has; the exceptions
//!   are in `files`.
//! - **Answers are evidence.** They are checked against what was asked for (`evidence`) before a
//!   record follows them.
//!
//! The backend keeps no state of its own: everything durable is in the record it is given, and two
//! backends on the same records and service may take turns.

mod binding;
mod capabilities;
mod endpoint;
mod error;
mod evidence;
mod files;
mod host;
mod identity;
mod inspect;
mod kill;
mod lifecycle;
mod observe;
mod pause;
mod preparation;
mod provider;
mod record;
mod session;
mod signal;
mod task;
mod update;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use a3sbox_core::exec::{
    ExecRequest as BoxExecRequest, FileRequest as BoxFileRequest, FileResponse as BoxFileResponse,
    FilesystemRequest as BoxFilesystemRequest, FilesystemResponse as BoxFilesystemResponse,
};
use a3sbox_core::pty::PtyRequest;
use a3sbox_core::{
    ExecOutput, ExecutionEventBatch, ExecutionEventsRequest, ExecutionManagerResult,
    ExecutionProcess, ExecutionProcessInventory, ExecutionResourceUpdate, ExecutionStats,
    KillOutcome, OperationId,
};
use a3sbox_oci::RuntimeClient;

use async_trait::async_trait;

pub use self::binding::{OCI_RUNTIME_BINDING_SCHEMA_VERSION, OciRuntimeBinding};
pub use self::preparation::{OciBundlePreparationContext, OciPreparedExecution};
pub use self::provider::OciBundleProvider;

pub(crate) use self::kill::kill_signal;

pub use a3sbox_oci::OciRuntimeEndpoint;

use self::endpoint::validate_endpoint;
use self::error::runtime_error;
use self::record::Execution;
use super::backend::{
    LocalExecutionBackend, LocalExecutionHandle, LocalExecutionObservation,
    LocalExecutionTermination,
};
use crate::{BoxRecord, ManagedRuntimeRoute};

// What a suite that is compiled as the child module `tests` reaches through `super::*`.
#[cfg(all(test, windows))]
use self::preparation::exact_handoff_directory_matches;
#[cfg(test)]
use self::{
    evidence::{exit_code, runtime_process_identity},
    identity::{
        create_operation_context, oci_isolation_request, operation_context, runtime_container_id,
        start_operation_context,
    },
    kill::DEFAULT_KILL_SIGNAL,
    update::compile_resource_update,
};
#[cfg(test)]
use a3sbox_oci::{ATTACHMENT_SCHEMA_V1, IoMode, RUNTIME_BUNDLE_HANDOFF_EXTENSION};
#[cfg(test)]
use base64::Engine as _;

/// Executions behind one runtime service. Cheap to clone.
#[derive(Clone)]
pub struct OciLocalExecutionBackend {
    endpoint: OciRuntimeEndpoint,
    client: RuntimeClient,
    provider: Arc<dyn OciBundleProvider>,
}

impl std::fmt::Debug for OciLocalExecutionBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OciLocalExecutionBackend")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl OciLocalExecutionBackend {
    /// A backend on a service that is reached already; the endpoint is only its durable name.
    ///
    /// # Errors
    /// `InvalidRequest` for a malformed endpoint. Nothing is opened.
    pub fn from_client(
        endpoint: OciRuntimeEndpoint,
        client: RuntimeClient,
        provider: Arc<dyn OciBundleProvider>,
    ) -> ExecutionManagerResult<Self> {
        validate_endpoint(&endpoint)?;
        Ok(Self {
            endpoint,
            client,
            provider,
        })
    }

    /// A backend on the service that listens at `endpoint`.
    ///
    /// # Errors
    /// `Unavailable` when nobody listens there, or the endpoint is one of another platform.
    pub async fn connect(
        endpoint: OciRuntimeEndpoint,
        provider: Arc<dyn OciBundleProvider>,
    ) -> ExecutionManagerResult<Self> {
        validate_endpoint(&endpoint)?;
        let client = RuntimeClient::connect(&endpoint)
            .await
            .map_err(runtime_error)?;
        Self::from_client(endpoint, client, provider)
    }
}

#[async_trait]
impl LocalExecutionBackend for OciLocalExecutionBackend {
    fn route_for_create(&self, _record: &BoxRecord) -> ExecutionManagerResult<ManagedRuntimeRoute> {
        Ok(ManagedRuntimeRoute::OciSdk)
    }

    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let execution = Execution::new(record, &self.endpoint)?;
        self.preflight_launch(&execution).await.map(|_| ())
    }

    async fn start(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.start_execution(record).await
    }

    async fn inspect(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        self.inspect_execution(record).await
    }

    async fn pause(
        &self,
        record: &BoxRecord,
        keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.pause_execution(record, keep_memory).await
    }

    async fn resume(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.resume_execution(record).await
    }

    async fn preflight_resource_update(
        &self,
        record: &BoxRecord,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        self.preflight_update(record, update).await
    }

    async fn update_resources(
        &self,
        record: &BoxRecord,
        operation_id: &OperationId,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        self.update_execution(record, operation_id, update).await
    }

    async fn list_processes(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        self.processes_of(record).await
    }

    async fn stats(&self, record: &BoxRecord) -> ExecutionManagerResult<ExecutionStats> {
        self.stats_of(record).await
    }

    async fn events(
        &self,
        record: &BoxRecord,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        self.events_of(record, request).await
    }

    async fn execute(
        &self,
        record: &BoxRecord,
        request: BoxExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        self.execute_captured(record, request).await
    }

    async fn start_process(
        &self,
        record: &BoxRecord,
        request: BoxExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        self.start_streaming(record, request).await
    }

    async fn start_pty(
        &self,
        record: &BoxRecord,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        self.start_terminal(record, request).await
    }

    async fn transfer_file(
        &self,
        record: &BoxRecord,
        request: BoxFileRequest,
    ) -> ExecutionManagerResult<BoxFileResponse> {
        self.transfer(record, request).await
    }

    async fn filesystem(
        &self,
        record: &BoxRecord,
        request: BoxFilesystemRequest,
    ) -> ExecutionManagerResult<BoxFilesystemResponse> {
        self.filesystem_operation(record, request).await
    }

    async fn stop_for_restart(
        &self,
        record: &BoxRecord,
        timeout_secs: Option<u64>,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.stop_execution_for_restart(record, timeout_secs).await
    }

    async fn kill(&self, record: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        Ok(self.kill_execution(record).await?.outcome)
    }

    async fn kill_with_status(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        self.kill_execution(record).await
    }

    fn task_backend(&self) -> Option<&dyn crate::task::TaskBackend> {
        Some(self)
    }
}
