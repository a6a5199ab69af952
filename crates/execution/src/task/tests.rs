//! The owner, the hub and recovery over the real OCI backend and a runtime double.

mod double;
mod drift;
mod fenced;
mod lifecycle;
mod order;
pub(crate) mod races;
mod recovery;
mod spans;
mod sweep;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use a3sbox_core::{BoxConfig, CreateExecutionRequest, ExecutionIsolation, NetworkMode};
use a3sbox_oci::oci_spec::runtime::{Process, ProcessBuilder, UserBuilder};
use a3sbox_oci::{EngineOptions, OciRuntimeEndpoint, RuntimeClient, StdioUris};
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::double::{Double, Provider};
use super::types::{ProvisionRequest, RootfsMount, TaskEvent, TaskEventKind, TaskKey};
use super::{TaskManager, TaskRecord};
use crate::{BoxRecord, LocalExecutionManager, ManagedExecutionStore, OciLocalExecutionBackend};

/// Nothing here takes longer unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

struct World {
    folder: tempfile::TempDir,
    runtime: Arc<Double>,
    provider: Arc<Provider>,
    manager: LocalExecutionManager,
    events: mpsc::Receiver<TaskEvent>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Arc::new(Double::default());
        let provider = Arc::new(Provider::default());
        let manager = manager(folder.path(), &runtime, &provider);
        let events = manager.take_events().unwrap();
        Self {
            folder,
            runtime,
            provider,
            manager,
            events,
        }
    }

    /// The manager dies with its owners, and another one opens the same records.
    fn crash(self) -> Self {
        let Self {
            folder,
            runtime,
            provider,
            manager,
            events,
        } = self;
        drop((manager, events));
        let manager = super::tests::manager(folder.path(), &runtime, &provider);
        let events = manager.take_events().unwrap();
        Self {
            folder,
            runtime,
            provider,
            manager,
            events,
        }
    }

    async fn created(&self, id: &str) -> TaskKey {
        let key = key(id);
        let created = soon(self.manager.provision(request(&key))).await.unwrap();
        assert!(created.pid > 0);
        key
    }

    async fn running(&self, id: &str) -> TaskKey {
        let key = self.created(id).await;
        soon(self.manager.release(&key)).await.unwrap();
        key
    }

    async fn exec(&self, key: &TaskKey, exec_id: &str) -> u32 {
        soon(
            self.manager
                .exec_add(key, exec_id, process(), StdioUris::default()),
        )
        .await
        .unwrap();
        soon(self.manager.exec_start(key, exec_id)).await.unwrap()
    }

    async fn next_event(&mut self) -> TaskEventKind {
        soon(self.events.recv()).await.unwrap().kind
    }

    /// The next events by name, with the exec id where there is one.
    async fn next_events(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(name(&self.next_event().await));
        }
        names
    }

    fn store(&self) -> ManagedExecutionStore {
        ManagedExecutionStore::for_containers(self.folder.path().join("ns"))
    }

    fn stored(&self, key: &TaskKey) -> Option<BoxRecord> {
        self.store().find_container(key).unwrap()
    }

    fn stored_task(&self, key: &TaskKey) -> TaskRecord {
        self.stored(key)
            .unwrap()
            .managed_execution
            .unwrap()
            .task
            .unwrap()
    }

    /// Nothing of any container is left: no folder, no runtime container, no preparation.
    fn assert_nothing_left(&self) {
        let root = self.folder.path().join("ns");
        let left: Vec<_> = std::fs::read_dir(root)
            .map(|entries| entries.map(|entry| entry.unwrap().file_name()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.runtime.containers(), 0);
        assert_eq!(self.provider.prepared(), 0);
        assert_eq!(self.manager.live(), 0);
    }
}

fn manager(
    folder: &Path,
    runtime: &Arc<Double>,
    provider: &Arc<Provider>,
) -> LocalExecutionManager {
    manager_of(&folder.join("runtime.sock"), folder, runtime, provider)
}

/// A manager of the records in `folder`, for the runtime that is named by `socket`.
fn manager_of(
    socket: &Path,
    folder: &Path,
    runtime: &Arc<Double>,
    provider: &Arc<Provider>,
) -> LocalExecutionManager {
    let client = RuntimeClient::from_arc(Arc::clone(runtime) as Arc<_>);
    let endpoint = OciRuntimeEndpoint::unix_socket(socket).unwrap();
    let backend =
        OciLocalExecutionBackend::from_client(endpoint, client, Arc::clone(provider) as Arc<_>)
            .unwrap();
    LocalExecutionManager::for_containers(folder.join("ns"), folder.join("home"), Arc::new(backend))
}

fn key(id: &str) -> TaskKey {
    TaskKey {
        namespace: "ns".to_owned(),
        container_id: id.to_owned(),
    }
}

fn request(key: &TaskKey) -> ProvisionRequest {
    let config = BoxConfig {
        image: "alpine:3.20".to_owned(),
        isolation: ExecutionIsolation::Sandbox,
        network: NetworkMode::None,
        ..BoxConfig::default()
    };
    ProvisionRequest {
        key: key.clone(),
        request: CreateExecutionRequest {
            external_sandbox_id: key.container_id.clone(),
            config,
            labels: std::collections::BTreeMap::new(),
            policy: a3sbox_core::ExecutionRecordPolicy::default(),
            rootfs_snapshot_id: None,
        },
        bundle: "/run/bundle".into(),
        rootfs: vec![RootfsMount {
            fs_type: "overlay".to_owned(),
            source: "overlay".to_owned(),
            target: String::new(),
            options: vec!["lowerdir=/l".to_owned()],
        }],
        stdio: StdioUris::default(),
        engine: EngineOptions::default(),
    }
}

fn process() -> Process {
    ProcessBuilder::default()
        .user(
            UserBuilder::default()
                .uid(0_u32)
                .gid(0_u32)
                .build()
                .unwrap(),
        )
        .args(vec!["/bin/true".to_owned()])
        .env(vec!["SECRET=hunter2".to_owned()])
        .cwd("/")
        .build()
        .unwrap()
}

fn name(kind: &TaskEventKind) -> String {
    match kind {
        TaskEventKind::Created { .. } => "created".to_owned(),
        TaskEventKind::Started { .. } => "started".to_owned(),
        TaskEventKind::ExecAdded { exec_id } => format!("added {exec_id}"),
        TaskEventKind::ExecStarted { exec_id, .. } => format!("started {exec_id}"),
        TaskEventKind::Paused => "paused".to_owned(),
        TaskEventKind::Resumed => "resumed".to_owned(),
        TaskEventKind::Checkpointed { .. } => "checkpointed".to_owned(),
        TaskEventKind::OutOfMemory => "oom".to_owned(),
        TaskEventKind::Exited {
            exec_id: None,
            exit,
            ..
        } => format!("exited {}", code(exit.status)),
        TaskEventKind::Exited {
            exec_id: Some(exec_id),
            exit,
            ..
        } => {
            format!("exited {exec_id} {}", code(exit.status))
        }
        TaskEventKind::Deleted { exit, .. } => format!("deleted {}", code(exit.status)),
    }
}

fn code(status: Option<u32>) -> String {
    status.map_or_else(|| "unknown".to_owned(), |status| status.to_string())
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(DEADLINE, work).await.expect("it hangs")
}
