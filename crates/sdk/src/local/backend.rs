//! The backend of the local manager: the OCI backend on a runtime service in this process, opened when it is
//! first needed.
//!
//! What can be refused is refused before that: a client that only names a folder, or asks for what is not
//! there, makes no file and needs no privilege.

use std::sync::Arc;

use a3sbox_core::pty::PtyRequest;
use a3sbox_core::{
    ExecOutput, ExecRequest, ExecutionEventBatch, ExecutionEventsRequest, ExecutionManagerError,
    ExecutionManagerResult, ExecutionProcess, ExecutionProcessInventory, ExecutionResourceUpdate,
    ExecutionStats, FileRequest, FileResponse, FilesystemRequest, FilesystemResponse, KillOutcome,
    OperationId,
};
use a3sbox_durable::{DurableError, FileLock, folder};
use a3sbox_execution::{
    BoxRecord, LocalExecutionBackend, LocalExecutionHandle, LocalExecutionObservation,
    LocalExecutionTermination, ManagedRuntimeRoute, OciLocalExecutionBackend,
};
use a3sbox_oci::{OciRuntimeEndpoint, RuntimeClient};
use a3sbox_runtime::{NativeRuntimeService, RuntimeConfig};
use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::provider::BundleProvider;
use super::refusal;
use crate::client::A3sBoxPaths;
use crate::image::ImageStore;

/// State of the runtime service, below the home.
const RUNTIME_FOLDER: &str = "runtime";
/// The durable name of that service in records. Nobody listens there: it runs in the client.
const ENDPOINT: &str = "runtime.sock";
/// Held by the process whose client has the runtime service open.
const OWNER_LOCK: &str = "runtime.lock";
/// What a logging program would be told as its namespace.
const NAMESPACE: &str = "a3sbox-sdk";

pub(super) struct LocalBackend {
    paths: A3sBoxPaths,
    images: ImageStore,
    opened: OnceCell<Opened>,
}

struct Opened {
    backend: OciLocalExecutionBackend,
    _owner: FileLock,
}

impl LocalBackend {
    pub(super) fn new(paths: A3sBoxPaths) -> Self {
        Self {
            images: ImageStore::new(&paths.images_dir),
            paths,
            opened: OnceCell::new(),
        }
    }

    async fn opened(&self) -> ExecutionManagerResult<&OciLocalExecutionBackend> {
        self.opened
            .get_or_try_init(|| open(&self.paths))
            .await
            .map(|opened| &opened.backend)
    }
}

async fn open(paths: &A3sBoxPaths) -> ExecutionManagerResult<Opened> {
    let home = &paths.home;
    folder::create_all(home).map_err(unavailable)?;
    let owner = FileLock::try_own(&home.join(OWNER_LOCK)).map_err(owned)?;
    let mut config = RuntimeConfig::new(home.join(RUNTIME_FOLDER));
    config.namespace = NAMESPACE.to_owned();
    let service = NativeRuntimeService::open(config)
        .await
        .map_err(unavailable)?;
    let endpoint = OciRuntimeEndpoint::unix_socket(home.join(ENDPOINT)).map_err(unavailable)?;
    let backend = OciLocalExecutionBackend::from_client(
        endpoint,
        RuntimeClient::from_arc(service),
        Arc::new(BundleProvider::new(paths.clone())),
    )?;
    Ok(Opened {
        backend,
        _owner: owner,
    })
}

fn unavailable(error: impl std::fmt::Display) -> ExecutionManagerError {
    ExecutionManagerError::Unavailable(error.to_string())
}

fn owned(error: DurableError) -> ExecutionManagerError {
    match error {
        DurableError::Locked { path, owner } => {
            let owner = owner.map_or_else(
                || "another process".to_owned(),
                |pid| format!("process {pid}"),
            );
            ExecutionManagerError::Unavailable(format!(
                "the sandboxes of this home are run by {owner} ({}); one client at a time has them",
                path.display()
            ))
        }
        other => unavailable(other),
    }
}

#[async_trait]
impl LocalExecutionBackend for LocalBackend {
    fn route_for_create(&self, _record: &BoxRecord) -> ExecutionManagerResult<ManagedRuntimeRoute> {
        Ok(ManagedRuntimeRoute::OciSdk)
    }

    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        refusal::check(&self.images, record)?;
        self.opened().await?.preflight(record).await
    }

    async fn start(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.opened().await?.start(record).await
    }

    async fn inspect(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        self.opened().await?.inspect(record).await
    }

    async fn pause(
        &self,
        record: &BoxRecord,
        keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.opened().await?.pause(record, keep_memory).await
    }

    async fn resume(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.opened().await?.resume(record).await
    }

    async fn preflight_resource_update(
        &self,
        record: &BoxRecord,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        let backend = self.opened().await?;
        backend.preflight_resource_update(record, update).await
    }

    async fn update_resources(
        &self,
        record: &BoxRecord,
        operation_id: &OperationId,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        let backend = self.opened().await?;
        backend.update_resources(record, operation_id, update).await
    }

    async fn list_processes(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        self.opened().await?.list_processes(record).await
    }

    async fn stats(&self, record: &BoxRecord) -> ExecutionManagerResult<ExecutionStats> {
        self.opened().await?.stats(record).await
    }

    async fn events(
        &self,
        record: &BoxRecord,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        self.opened().await?.events(record, request).await
    }

    async fn execute(
        &self,
        record: &BoxRecord,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        self.opened().await?.execute(record, request).await
    }

    async fn start_process(
        &self,
        record: &BoxRecord,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        self.opened().await?.start_process(record, request).await
    }

    async fn start_pty(
        &self,
        record: &BoxRecord,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        self.opened().await?.start_pty(record, request).await
    }

    async fn transfer_file(
        &self,
        record: &BoxRecord,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse> {
        self.opened().await?.transfer_file(record, request).await
    }

    async fn filesystem(
        &self,
        record: &BoxRecord,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        self.opened().await?.filesystem(record, request).await
    }

    async fn stop_for_restart(
        &self,
        record: &BoxRecord,
        timeout_secs: Option<u64>,
    ) -> ExecutionManagerResult<KillOutcome> {
        let backend = self.opened().await?;
        backend.stop_for_restart(record, timeout_secs).await
    }

    async fn kill(&self, record: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        self.opened().await?.kill(record).await
    }

    async fn kill_with_status(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        self.opened().await?.kill_with_status(record).await
    }
}
