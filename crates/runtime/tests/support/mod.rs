//! What the tests on a real engine share: a rootfs from a static busybox, private folders, and requests.
//!
//! Prerequisites are root, `runc` in `PATH`, and a static busybox: `A3SBOX_TEST_BUSYBOX`, or what `hack/setup`
//! puts into its cache. A missing one fails the test with its name.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test code; each test binary uses its own part of it"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use a3sbox_oci::{
    ContainerId, ContainerOperationRequest, ContainerRecord, ContainerTarget, CreateAttachments,
    CreateRequest, DeleteMode, DeleteRequest, Error, ExecRequest, ExitStatus, IoMode,
    IsolationRequest, KillRequest, OciBundle, OciRuntimeService, OperationContext, OperationId,
    Process, ProcessId, ProcessIo, ProcessTarget, ReadOutputRequest, Signal, StartRequest,
    WaitProcessRequest, WaitRequest,
};
use a3sbox_runtime::{NativeRuntimeService, RuntimeConfig};
use serde_json::{Value, json};

/// Nothing in these tests takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

static NEXT: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn context() -> OperationContext {
    OperationContext::new(
        OperationId::new(format!("op-{}-{}", std::process::id(), next())).unwrap(),
    )
}

/// A service on folders of its own. Its containers are removed when it goes.
pub(crate) struct World {
    folder: PathBuf,
    own: Option<tempfile::TempDir>,
    pub(crate) service: Arc<NativeRuntimeService>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let own = tempfile::Builder::new()
            .prefix("a3sbox-runtime-test-")
            .tempdir()
            .unwrap();
        let mut world = Self::in_folder(own.path()).await;
        world.own = Some(own);
        world
    }

    /// A service that reaps orphans: for a test binary whose children are all the service's.
    pub(crate) async fn sweeping() -> Self {
        let own = tempfile::Builder::new()
            .prefix("a3sbox-runtime-test-")
            .tempdir()
            .unwrap();
        let mut config = RuntimeConfig::new(own.path().join("state"));
        config.sweep_orphans = true;
        Self {
            folder: own.path().to_path_buf(),
            own: Some(own),
            service: NativeRuntimeService::open(config).await.unwrap(),
        }
    }

    /// A service that is opened with another configuration.
    pub(crate) async fn configured(change: impl FnOnce(&mut RuntimeConfig)) -> Self {
        let own = tempfile::Builder::new()
            .prefix("a3sbox-runtime-test-")
            .tempdir()
            .unwrap();
        let mut config = RuntimeConfig::new(own.path().join("state"));
        change(&mut config);
        Self {
            folder: own.path().to_path_buf(),
            own: Some(own),
            service: NativeRuntimeService::open(config).await.unwrap(),
        }
    }

    /// A service on a folder that another one may have used before.
    pub(crate) async fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            own: None,
            service: NativeRuntimeService::open(RuntimeConfig::new(folder.join("state")))
                .await
                .unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The config of a container that runs `args`, for the test to change.
    pub(crate) fn spec(&self, args: &[&str]) -> Value {
        let name = format!("a3sbox-rt-{}-{}", std::process::id(), next());
        json!({
            "ociVersion": "1.0.2-dev",
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": args,
                "env": ["PATH=/bin:/sbin:/usr/bin"],
                "cwd": "/",
                "capabilities": {
                    "bounding": ["CAP_KILL", "CAP_CHOWN", "CAP_SYS_CHROOT"],
                    "effective": ["CAP_KILL", "CAP_CHOWN", "CAP_SYS_CHROOT"],
                    "permitted": ["CAP_KILL", "CAP_CHOWN", "CAP_SYS_CHROOT"],
                },
            },
            "root": { "path": rootfs(), "readonly": false },
            "hostname": "test",
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
                { "destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=64m"] },
                { "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"] },
                { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"] },
            ],
            "linux": {
                "cgroupsPath": format!("/{name}"),
                "namespaces": [
                    { "type": "pid" }, { "type": "ipc" }, { "type": "uts" },
                    { "type": "mount" }, { "type": "network" },
                ],
            },
        })
    }

    /// Writes the bundle and makes the request of a create.
    pub(crate) async fn create_request(&self, spec: &Value) -> CreateRequest {
        let bundle = self
            .folder
            .join(format!("bundle-{}-{}", std::process::id(), next()));
        std::fs::create_dir(&bundle).unwrap();
        std::fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        let bundle = OciBundle::load(&bundle).await.unwrap();
        let terminal = spec["process"]["terminal"] == true;
        let io = if terminal {
            ProcessIo::terminal(a3sbox_oci::TerminalSize {
                width: 80,
                height: 24,
            })
        } else {
            ProcessIo {
                stdin: IoMode::Pipe,
                ..ProcessIo::default()
            }
        };
        CreateRequest {
            context: context(),
            id: ContainerId::new(format!("c{}-{}", std::process::id(), next())).unwrap(),
            attachments: CreateAttachments::from_bundle(&bundle, io).unwrap(),
            bundle,
            isolation: IsolationRequest::SharedHostKernel,
        }
    }

    pub(crate) async fn create_spec(&self, spec: &Value) -> Result<ContainerRecord, Error> {
        let request = self.create_request(spec).await;
        self.service.create(request).await
    }

    pub(crate) async fn create(&self, args: &[&str]) -> ContainerTarget {
        target(&self.create_spec(&self.spec(args)).await.unwrap())
    }

    pub(crate) async fn start(&self, target: &ContainerTarget) -> ContainerRecord {
        self.service
            .start(StartRequest {
                context: context(),
                target: target.clone(),
            })
            .await
            .unwrap()
    }

    /// A running container.
    pub(crate) async fn run(&self, args: &[&str]) -> ContainerTarget {
        let target = self.create(args).await;
        self.start(&target).await;
        target
    }

    pub(crate) async fn wait(&self, target: &ContainerTarget) -> Result<ExitStatus, Error> {
        self.service
            .wait(WaitRequest {
                target: target.clone(),
                timeout_ms: Some(30_000),
            })
            .await
    }

    pub(crate) async fn kill(
        &self,
        target: &ContainerTarget,
        signal: i32,
        all: bool,
    ) -> Result<(), Error> {
        self.service
            .kill(KillRequest {
                context: context(),
                target: target.clone(),
                signal: Signal::new(signal).unwrap(),
                all,
            })
            .await
            .map(drop)
    }

    pub(crate) async fn delete(
        &self,
        target: &ContainerTarget,
        mode: DeleteMode,
    ) -> Result<(), Error> {
        self.service
            .delete(DeleteRequest {
                context: context(),
                target: target.clone(),
                mode,
            })
            .await
    }

    pub(crate) fn exec_request(
        &self,
        target: &ContainerTarget,
        id: &str,
        args: &[&str],
    ) -> ExecRequest {
        ExecRequest {
            context: context(),
            container: target.clone(),
            process_id: ProcessId::new(id).unwrap(),
            process: process(args),
            io: ProcessIo {
                stdin: IoMode::Pipe,
                ..ProcessIo::default()
            },
            stdio: None,
        }
    }

    pub(crate) async fn exec(
        &self,
        target: &ContainerTarget,
        id: &str,
        args: &[&str],
    ) -> ProcessTarget {
        self.service
            .exec(self.exec_request(target, id, args))
            .await
            .unwrap()
            .target
    }

    pub(crate) async fn wait_process(&self, process: &ProcessTarget) -> Result<ExitStatus, Error> {
        self.service
            .wait_process(WaitProcessRequest {
                process: process.clone(),
                timeout_ms: Some(30_000),
            })
            .await
    }

    /// Everything that a process writes, to the end of both streams.
    pub(crate) async fn output(&self, process: &ProcessTarget) -> String {
        let mut text = Vec::new();
        let (mut cursor, mut ends) = (0, 0);
        let until = Instant::now() + DEADLINE;
        while ends < 2 {
            assert!(Instant::now() < until, "output does not end");
            let chunks = self
                .service
                .read_output(ReadOutputRequest {
                    process: process.clone(),
                    after_sequence: cursor,
                    max_bytes: 65_536,
                    wait_timeout_ms: Some(1000),
                })
                .await
                .unwrap();
            for chunk in chunks {
                cursor = chunk.sequence;
                ends += usize::from(chunk.eof);
                text.extend(chunk.data);
            }
        }
        String::from_utf8(text).unwrap()
    }

    pub(crate) async fn pause(&self, target: &ContainerTarget) -> Result<ContainerRecord, Error> {
        self.service.pause(operation_on(target)).await
    }

    pub(crate) async fn resume(&self, target: &ContainerTarget) -> Result<ContainerRecord, Error> {
        self.service.resume(operation_on(target)).await
    }

    /// Nothing is left of any container: folder, engine state, cgroup.
    pub(crate) fn assert_nothing_left(&self) {
        let names = |folder: &Path| -> Vec<String> {
            std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        let root = self.root();
        let left: Vec<_> = names(&root)
            .into_iter()
            .filter(|name| name != ".engine")
            .collect();
        assert_eq!(left, Vec::<String>::new(), "runtime folders");
        assert_eq!(
            names(&root.join(".engine")),
            Vec::<String>::new(),
            "engine state"
        );
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // After a failed test: end what its containers run, so that nothing outlives the tests.
        let engine = self.root().join(".engine");
        for entry in std::fs::read_dir(&engine).into_iter().flatten().flatten() {
            let _ = std::process::Command::new("runc")
                .arg("--root")
                .arg(&engine)
                .args(["delete", "--force"])
                .arg(entry.file_name())
                .status();
        }
    }
}

pub(crate) fn cgroup_of(spec: &Value) -> PathBuf {
    let path = spec["linux"]["cgroupsPath"].as_str().unwrap();
    let hierarchy = Path::new("/sys/fs/cgroup/pids");
    let hierarchy = if hierarchy.is_dir() {
        hierarchy
    } else {
        Path::new("/sys/fs/cgroup")
    };
    hierarchy.join(path.trim_start_matches('/'))
}

pub(crate) fn operation_on(target: &ContainerTarget) -> ContainerOperationRequest {
    ContainerOperationRequest {
        context: context(),
        target: target.clone(),
    }
}

pub(crate) fn target(record: &ContainerRecord) -> ContainerTarget {
    ContainerTarget::exact(
        ContainerId::new(record.state.id().as_str()).unwrap(),
        record.generation,
    )
}

pub(crate) fn init_of(target: &ContainerTarget) -> ProcessTarget {
    ProcessTarget {
        container: target.clone(),
        process_id: ProcessId::init(),
    }
}

pub(crate) fn process(args: &[&str]) -> Process {
    serde_json::from_value(json!({
        "terminal": false,
        "user": { "uid": 0, "gid": 0 },
        "args": args,
        "env": ["PATH=/bin:/sbin:/usr/bin"],
        "cwd": "/",
    }))
    .unwrap()
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One rootfs for all tests of a binary; containers write to their own tmpfs alone.
pub(crate) fn rootfs() -> &'static Path {
    static ROOTFS: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    ROOTFS.get_or_init(|| {
        // Nobody ends a static: it has a name in the build's folder, and the next run takes it over.
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtime-rootfs");
        if !kept.is_dir() {
            let made = make_rootfs();
            // Another test binary may have been faster, which is as good.
            let _ = a3sbox_durable::folder::publish(made.path(), &kept);
        }
        kept
    })
}

fn make_rootfs() -> tempfile::TempDir {
    assert!(
        std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .any(|folder| folder.join("runc").is_file()),
        "prerequisite: runc in PATH"
    );
    let busybox = busybox();
    assert!(
        busybox.is_file(),
        "prerequisite: a static busybox at {} (hack/setup packages, or A3SBOX_TEST_BUSYBOX)",
        busybox.display()
    );
    let folder = tempfile::Builder::new()
        .prefix("runtime-rootfs-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap();
    // A container that has another user looks into it.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).unwrap();
    for name in ["bin", "proc", "sys", "dev", "tmp", "etc", "out"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let bin = folder.path().join("bin");
    std::fs::copy(&busybox, bin.join("busybox")).unwrap();
    for applet in [
        "sh", "sleep", "cat", "echo", "true", "false", "kill", "dd", "id", "ls", "pwd", "mkdir",
        "sync", "seq", "head", "wc", "tty", "stty",
    ] {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).unwrap();
    }
    folder
}

fn busybox() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    variable("A3SBOX_TEST_BUSYBOX").unwrap_or_else(|| {
        variable("A3SBOX_CACHE")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("a3sbox")))
            .or_else(|| Some(variable("HOME")?.join(".cache/a3sbox")))
            .unwrap_or_default()
            .join("busybox/bin/busybox")
    })
}
