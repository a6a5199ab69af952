//! The backend's behaviours, driven through the manager with a recording stand-in for the runtime.

mod exec;
mod files;
mod ipc;
mod kill;
mod mapping;
mod observe;
mod pause;
mod preflight;
mod preparation;
#[cfg(unix)]
mod process_restart;
mod provider;
mod recovery;
mod resource_update_contract;
mod sessions;
mod snapshots;
mod update;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_core::exec::ExecRequest;
use a3sbox_core::{
    BoxConfig, CreateExecutionRequest, ExecutionGeneration, ExecutionId, ExecutionIsolation,
    ExecutionLease, ExecutionManager, ExecutionManagerError, NetworkMode, OperationId,
    ResourceConfig,
};
use a3sbox_oci::{ContainerId, RuntimeClient};
use a3sbox_testkit::{RecordingRuntime, RuntimeReport};

use super::super::LocalExecutionManager;
use super::{BoxRecord, OciBundleProvider, OciLocalExecutionBackend, OciRuntimeEndpoint};
use crate::{ManagedExecutionMetadata, ManagedExecutionStore};

use self::provider::TestProvider;

/// A home folder, a runtime, a provider, and the manager on them.
struct World {
    folder: tempfile::TempDir,
    runtime: Arc<RecordingRuntime>,
    provider: Arc<TestProvider>,
    manager: LocalExecutionManager,
}

/// An execution that runs.
struct Launched {
    lease: ExecutionLease,
    operation_id: OperationId,
}

impl World {
    fn new() -> Self {
        Self::with_report(RuntimeReport::default())
    }

    fn with_report(report: RuntimeReport) -> Self {
        let provider = Arc::new(TestProvider::default());
        let folder = tempfile::tempdir().unwrap();
        let runtime = RecordingRuntime::new(report);
        let backend = backend(&folder, &runtime, provider.clone());
        let manager = manager(&folder, backend);
        Self {
            folder,
            runtime,
            provider,
            manager,
        }
    }

    /// Another manager and backend on the same files and runtime; the old one is dropped.
    fn reopen(&mut self) {
        let backend = backend(&self.folder, &self.runtime, self.provider.clone());
        self.manager = manager(&self.folder, backend);
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn endpoint(&self) -> OciRuntimeEndpoint {
        endpoint(&self.folder)
    }

    async fn launch(&self, isolation: ExecutionIsolation) -> Launched {
        let operation_id = operation("create");
        let lease = self
            .manager
            .create_and_start(request(isolation), &operation_id)
            .await
            .unwrap();
        Launched {
            lease,
            operation_id,
        }
    }

    /// The record as it is stored.
    fn record(&self, execution_id: &ExecutionId) -> BoxRecord {
        let store = ManagedExecutionStore::new(self.manager.state_path());
        store
            .get(execution_id)
            .unwrap()
            .expect("the execution has a record")
    }
}

impl Launched {
    fn id(&self) -> &ExecutionId {
        &self.lease.execution_id
    }

    fn generation(&self) -> ExecutionGeneration {
        self.lease.generation
    }

    fn container_id(&self) -> ContainerId {
        super::runtime_container_id(self.id()).unwrap()
    }
}

fn endpoint(folder: &tempfile::TempDir) -> OciRuntimeEndpoint {
    OciRuntimeEndpoint::unix_socket(folder.path().join("a3s-box-oci-backend-tests.sock")).unwrap()
}

fn backend(
    folder: &tempfile::TempDir,
    runtime: &Arc<RecordingRuntime>,
    provider: Arc<dyn OciBundleProvider>,
) -> OciLocalExecutionBackend {
    let client = RuntimeClient::from_arc(runtime.clone());
    OciLocalExecutionBackend::from_client(endpoint(folder), client, provider).unwrap()
}

fn manager(folder: &tempfile::TempDir, backend: OciLocalExecutionBackend) -> LocalExecutionManager {
    let state = folder.path().join("boxes.json");
    LocalExecutionManager::new(state, folder.path().join("home"), Arc::new(backend))
}

fn request(isolation: ExecutionIsolation) -> CreateExecutionRequest {
    CreateExecutionRequest {
        external_sandbox_id: "sandbox".to_owned(),
        config: BoxConfig {
            image: "alpine:3.20".to_owned(),
            isolation,
            network: NetworkMode::None,
            resources: ResourceConfig {
                vcpus: 1,
                memory_mb: 128,
                disk_mb: 512,
                timeout: 300,
            },
            ..BoxConfig::default()
        },
        labels: BTreeMap::new(),
        policy: a3sbox_core::ExecutionRecordPolicy::default(),
        rootfs_snapshot_id: None,
    }
}

fn operation(name: &str) -> OperationId {
    OperationId::new(format!("operation-{name}")).unwrap()
}

fn exec_request() -> ExecRequest {
    ExecRequest {
        request_id: None,
        cmd: vec!["/bin/echo".to_owned(), "ready".to_owned()],
        timeout_ns: 1_000_000_000,
        env: Vec::new(),
        working_dir: Some("/".to_owned()),
        rootfs: None,
        stdin: None,
        stdin_streaming: false,
        user: None,
        streaming: false,
    }
}

fn next(generation: ExecutionGeneration) -> ExecutionGeneration {
    ExecutionGeneration::new(generation.get() + 1).unwrap()
}

fn metadata(record: &BoxRecord) -> &ManagedExecutionMetadata {
    record
        .managed_execution
        .as_ref()
        .expect("the record is managed")
}

#[track_caller]
fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, ExecutionManagerError>, needle: &str) {
    match result {
        Err(ExecutionManagerError::Unavailable(message)) => {
            assert!(message.contains(needle), "{message:?} lacks {needle:?}");
        }
        other => panic!("{other:?} is not unavailable"),
    }
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(result: Result<T, ExecutionManagerError>, needle: &str) {
    match result {
        Err(ExecutionManagerError::InvalidRequest(message)) => {
            assert!(message.contains(needle), "{message:?} lacks {needle:?}");
        }
        other => panic!("{other:?} is not an invalid request"),
    }
}

#[track_caller]
fn assert_internal<T: std::fmt::Debug>(result: Result<T, ExecutionManagerError>, needle: &str) {
    match result {
        Err(ExecutionManagerError::Internal(message)) => {
            assert!(message.contains(needle), "{message:?} lacks {needle:?}");
        }
        other => panic!("{other:?} is not internal"),
    }
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(result: Result<T, ExecutionManagerError>) {
    assert!(
        matches!(result, Err(ExecutionManagerError::Conflict { .. })),
        "{result:?}"
    );
}
