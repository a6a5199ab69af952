//! A home of its own per test, an image made by `hack/image`, and a look at what is left.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use a3sbox_core::ExecutionIsolation;
use a3sbox_sdk::{A3sBoxClient, Sandbox, SandboxBuilder};

pub(crate) const IMAGE: &str = "a3sbox.test/busybox:1";
/// Nothing in these tests takes longer.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Home {
    folder: Folder,
    pub(crate) client: A3sBoxClient,
}

/// Takes away what a failed test leaves; after a good one there is nothing.
struct Folder(tempfile::TempDir);

impl Drop for Folder {
    fn drop(&mut self) {
        let boxes = std::fs::read_dir(self.0.path().join("boxes"));
        for entry in boxes.into_iter().flatten().flatten() {
            let id = entry.file_name().into_string().unwrap();
            let engine = self.0.path().join("runtime/.engine");
            let container = format!("a3s-box-{id}");
            let _ = Command::new("runc")
                .arg("--root")
                .arg(&engine)
                .args(["delete", "--force", &container])
                .output();
            let places = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            for place in places.lines().filter_map(|line| line.split(' ').nth(4)) {
                if place.contains(&id) {
                    let _ = Command::new("umount").arg(place).output();
                    let _ = std::fs::remove_dir(place);
                }
            }
        }
    }
}

impl Home {
    /// A home with the test image.
    pub(crate) async fn new() -> Self {
        let home = Self::empty();
        let image = home.client.import_image(archive()).await.unwrap();
        assert_eq!(image.name, IMAGE);
        home
    }

    pub(crate) fn empty() -> Self {
        require_prerequisites();
        // As temporary folders are: closed to everybody but its owner.
        let folder = tempfile::Builder::new()
            .prefix("a3sbox-sdk-test-")
            .tempdir()
            .unwrap();
        Self {
            client: A3sBoxClient::from_home(folder.path()),
            folder: Folder(folder),
        }
    }

    /// The same home with a client that knows nothing, as of a next process.
    pub(crate) fn reopened(self) -> Self {
        let Self { folder, client } = self;
        // Clones share what is open; the last one closes it.
        drop(client);
        Self {
            client: A3sBoxClient::from_home(folder.0.path()),
            folder,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.0.path()
    }

    pub(crate) fn sandbox(&self) -> SandboxBuilder {
        self.client
            .sandbox(IMAGE)
            .isolation(ExecutionIsolation::Sandbox)
    }

    pub(crate) async fn start(&self) -> Sandbox {
        self.sandbox().start().await.unwrap()
    }

    /// No mount, no cgroup, no process of this home's sandboxes.
    pub(crate) fn assert_nothing_left(&self, ids: &[&str]) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let home = self.path().to_str().unwrap();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(home)).collect();
        assert!(left.is_empty(), "mounts are left: {left:#?}");
        for id in ids {
            assert!(!mounts.contains(id), "a mount of {id} is left");
            let roots: Vec<_> = std::fs::read_dir("/run/a3sbox-sdk")
                .into_iter()
                .flatten()
                .flatten()
                .map(|home| home.path().join(id))
                .filter(|root| root.exists())
                .collect();
            assert!(roots.is_empty(), "mount points are left: {roots:?}");
            let name = format!("a3s-box-{id}");
            let cgroups: Vec<_> = glob_cgroups(&name);
            assert!(cgroups.is_empty(), "cgroups are left: {cgroups:?}");
            let processes = processes_in(&name);
            assert!(processes.is_empty(), "processes are left: {processes:?}");
            assert!(!self.path().join("boxes").join(id).exists());
        }
    }
}

/// Controllers are below the root on version 1, the cgroup itself on version 2.
fn glob_cgroups(name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path().join(name))
        .chain([root.join(name)])
        .filter(|path| path.exists())
        .collect()
}

fn processes_in(cgroup: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let groups = std::fs::read_to_string(path.join("cgroup")).ok()?;
            groups.contains(cgroup).then(|| path.display().to_string())
        })
        .collect()
}

fn require_prerequisites() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests need root: they mount and make namespaces"
    );
    assert!(
        Command::new("runc").arg("--version").output().is_ok(),
        "these tests need runc in PATH (hack/setup packages)"
    );
}

/// The archive of the test image, made once per run.
pub(crate) fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = ARCHIVE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("busybox.tar");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/image");
        let made = Command::new(&script)
            .arg(IMAGE)
            .arg(&path)
            .arg("sh")
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{} failed: {}",
            script.display(),
            String::from_utf8_lossy(&made.stderr)
        );
        (folder, path)
    });
    path
}

/// Waits for a condition.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < give_up_at, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
