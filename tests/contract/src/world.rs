//! Folders, a service, a provider, and the manager on them; and how a case looks at what really happened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionIsolation, ExecutionLease, ExecutionManager as _,
    OperationId,
};
use a3sbox_execution::{
    BoxRecord, LocalExecutionManager, ManagedExecutionMetadata, ManagedExecutionStore,
    OciLocalExecutionBackend,
};
use a3sbox_oci::{OciRuntimeEndpoint, OciRuntimeService, RuntimeClient, RuntimeTransportClient};
use a3sbox_runtime::{NativeRuntimeService, RuntimeConfig};

use crate::faults::{Faults, Faulty};
use crate::owner::OwnerProcess;
use crate::provider::BusyboxProvider;
use crate::requests::{operation, request};

/// Nothing in these tests takes longer.
pub const DEADLINE: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(5);

/// One case's world. Its containers go with it.
pub struct World {
    folder: tempfile::TempDir,
    owner: Option<OwnerProcess>,
    client: RuntimeClient,
    pub faults: Arc<Faults>,
    pub provider: Arc<BusyboxProvider>,
    pub manager: LocalExecutionManager,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// An execution that runs.
#[derive(Debug)]
pub struct Launched {
    pub lease: ExecutionLease,
    pub operation_id: OperationId,
}

impl Launched {
    pub fn id(&self) -> &ExecutionId {
        &self.lease.execution_id
    }

    pub fn generation(&self) -> ExecutionGeneration {
        self.lease.generation
    }
}

impl World {
    /// The service runs in this process.
    pub async fn in_process() -> Self {
        let folder = folder();
        let config = RuntimeConfig::new(folder.path().join("runtime"));
        let service = NativeRuntimeService::open(config).await.unwrap();
        Self::on(folder, None, service)
    }

    /// The service runs in a process of its own, the given binary, and is reached by its socket.
    pub async fn other_process(binary: &Path) -> Self {
        let folder = folder();
        let endpoint = endpoint(folder.path());
        let socket = endpoint.as_unix_socket().unwrap().to_path_buf();
        let owner = OwnerProcess::spawn(binary, &folder.path().join("runtime"), &socket).await;
        let transport = RuntimeTransportClient::connect(&endpoint).await.unwrap();
        Self::on(folder, Some(owner), Arc::new(transport))
    }

    fn on(
        folder: tempfile::TempDir,
        owner: Option<OwnerProcess>,
        service: Arc<dyn OciRuntimeService>,
    ) -> Self {
        let faults = Arc::new(Faults::default());
        let client = RuntimeClient::new(Faulty::new(service, faults.clone()));
        let out = folder.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&out, everybody).unwrap();
        let provider = Arc::new(BusyboxProvider::new(out));
        let manager = manager(folder.path(), &client, &provider);
        Self {
            folder,
            owner,
            client,
            faults,
            provider,
            manager,
        }
    }

    /// Another manager and backend on the same files and service; the old one is dropped.
    pub fn reopen(&mut self) {
        self.manager = manager(self.folder.path(), &self.client, &self.provider);
    }

    /// SIGKILL to the process that serves.
    pub fn kill_owner(&mut self) {
        self.owner.as_mut().unwrap().kill();
    }

    /// Serves again, on the same state.
    pub async fn start_owner(&mut self) {
        self.owner.as_mut().unwrap().start().await;
    }

    /// The service, past the manager.
    pub fn client(&self) -> &RuntimeClient {
        &self.client
    }

    pub fn endpoint(&self) -> OciRuntimeEndpoint {
        endpoint(self.folder.path())
    }

    pub async fn launch(&self) -> Launched {
        self.launch_with(&[]).await
    }

    /// A running container, whose program has begun when it is the provider's own.
    pub async fn launch_with(&self, cmd: &[&str]) -> Launched {
        let operation_id = operation("create");
        let lease = self
            .manager
            .create_and_start(request(ExecutionIsolation::Sandbox, cmd), &operation_id)
            .await
            .unwrap();
        if cmd.is_empty() {
            self.eventually_lines("starts", 1).await;
        }
        Launched {
            lease,
            operation_id,
        }
    }

    /// The record as it is stored.
    pub fn record(&self, execution_id: &ExecutionId) -> BoxRecord {
        ManagedExecutionStore::new(self.manager.state_path())
            .get(execution_id)
            .unwrap()
            .expect("the execution has a record")
    }

    pub fn metadata(&self, execution_id: &ExecutionId) -> ManagedExecutionMetadata {
        self.record(execution_id).managed_execution.unwrap()
    }

    /// What the container wrote into a file of the shared folder.
    pub fn out(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join("out").join(name)).unwrap_or_default()
    }

    pub fn lines(&self, name: &str) -> usize {
        self.out(name).lines().count()
    }

    pub async fn eventually_lines(&self, name: &str, count: usize) {
        eventually("lines from the container", || self.lines(name) >= count).await;
        assert_eq!(self.lines(name), count, "{name}");
    }

    /// Processes in the execution's cgroup.
    pub fn processes(&self, execution_id: &ExecutionId) -> Vec<u32> {
        let path = cgroup(execution_id, "pids").join("cgroup.procs");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Processes in the execution's cgroup that run this command, argument by argument.
    pub fn running(&self, execution_id: &ExecutionId, args: &[&str]) -> usize {
        let wanted: String = args.iter().map(|arg| format!("{arg}\0")).collect();
        self.processes(execution_id)
            .iter()
            .filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok())
            .filter(|line| line == wanted.as_bytes())
            .count()
    }

    /// A file of the execution's cgroup: of the controller on v1, of the one folder on v2.
    pub fn cgroup_file(&self, execution_id: &ExecutionId, controller: &str, name: &str) -> PathBuf {
        cgroup(execution_id, controller).join(name)
    }

    pub fn is_frozen(&self, execution_id: &ExecutionId) -> bool {
        let (name, frozen) = if is_v2() {
            ("cgroup.freeze", "1")
        } else {
            ("freezer.state", "FROZEN")
        };
        let path = self.cgroup_file(execution_id, "freezer", name);
        std::fs::read_to_string(path).is_ok_and(|state| state.trim() == frozen)
    }

    /// Folders of the runtime's containers.
    pub fn runtime_containers(&self) -> Vec<String> {
        names(&self.folder.path().join("runtime"))
    }

    /// Nothing is left of any container: folder, engine state, cgroup.
    pub fn assert_nothing_runs(&self, execution_id: Option<&ExecutionId>) {
        let runtime = self.folder.path().join("runtime");
        assert_eq!(self.runtime_containers(), Vec::<String>::new(), "runtime");
        assert_eq!(names(&runtime.join(".engine")), Vec::<String>::new());
        if let Some(id) = execution_id {
            assert_eq!(self.processes(id), Vec::<u32>::new(), "processes");
            assert!(!cgroup(id, "pids").exists(), "cgroup");
            assert!(!cgroup(id, "memory").exists(), "cgroup");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.owner = None;
        // After a failed test: nothing outlives it.
        let engine = self.folder.path().join("runtime/.engine");
        for name in names(&engine) {
            let _ = std::process::Command::new("runc")
                .arg("--root")
                .arg(&engine)
                .args(["delete", "--force", &name])
                .status();
        }
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("a3sbox-contract-")
        .tempdir()
        .unwrap()
}

fn endpoint(folder: &Path) -> OciRuntimeEndpoint {
    OciRuntimeEndpoint::unix_socket(folder.join("runtime.sock")).unwrap()
}

fn manager(
    folder: &Path,
    client: &RuntimeClient,
    provider: &Arc<BusyboxProvider>,
) -> LocalExecutionManager {
    let backend =
        OciLocalExecutionBackend::from_client(endpoint(folder), client.clone(), provider.clone())
            .unwrap();
    LocalExecutionManager::new(
        folder.join("boxes.json"),
        folder.join("home"),
        Arc::new(backend),
    )
}

fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

fn cgroup(execution_id: &ExecutionId, controller: &str) -> PathBuf {
    let mut path = PathBuf::from("/sys/fs/cgroup");
    if !is_v2() {
        path.push(controller);
    }
    path.join(BusyboxProvider::cgroup_of(execution_id.as_str()))
}

/// What a folder holds, but for hidden names.
fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

/// Waits until the condition holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(POLL).await;
    }
}
