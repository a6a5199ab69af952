//! A private containerd of one version, and what a case does on it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::{Api, Output, command};

/// Image of the cases: busybox with user app (1000:1000) and group extra (2000).
pub const BUSYBOX: &str = "a3sbox.test/busybox:1";
/// Image of the pods' sandbox containers.
pub const PAUSE: &str = "a3sbox.test/pause:1";
/// containerd namespace of the cases that do not go through CRI.
const NAMESPACE: &str = "e2e";
/// Limit of one client command that does not say otherwise.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const SCRIPT_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    V1_6,
    V1_7,
    V2_1,
    Newest,
}

impl Version {
    pub const ALL: [Self; 4] = [Self::V1_6, Self::V1_7, Self::V2_1, Self::Newest];

    pub const fn label(self) -> &'static str {
        match self {
            Self::V1_6 => "1.6",
            Self::V1_7 => "1.7",
            Self::V2_1 => "2.1",
            Self::Newest => "newest",
        }
    }
}

/// Whose shim runs the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shim {
    Ours,
    Stock,
    /// The runc shim of crates.io; benchmarks only.
    RustRunc,
}

impl Shim {
    pub const fn runtime_type(self) -> &'static str {
        match self {
            Self::Ours => "io.containerd.a3sbox.v2",
            Self::Stock => "io.containerd.runc.v2",
            Self::RustRunc => "io.containerd.runc.v2-rs",
        }
    }

    pub const fn handler(self) -> &'static str {
        match self {
            Self::Ours => "a3sbox",
            Self::Stock | Self::RustRunc => "runc",
        }
    }
}

/// A containerd in a folder of its own, with the shim under test on its PATH.
pub struct Containerd {
    version: Version,
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    script: PathBuf,
}

impl fmt::Debug for Containerd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Containerd")
            .field("version", &self.version)
            .field("dir", &self.dir.path())
            .finish()
    }
}

impl Containerd {
    /// Starts it and loads the images. `A3SBOX_SHIM_DIR` names the folder of the shim under test.
    pub fn start(version: Version) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()?;
        let shim = std::env::var("A3SBOX_SHIM_DIR").context(
            "A3SBOX_SHIM_DIR is not set: it names the folder that holds containerd-shim-a3sbox-v2; hack/test sets it",
        )?;
        ensure!(
            Path::new(&shim).join("containerd-shim-a3sbox-v2").exists(),
            "no containerd-shim-a3sbox-v2 in {shim}"
        );
        // Short on purpose: a Unix socket's path holds 108 bytes.
        let dir = tempfile::Builder::new()
            .prefix("a3s-e2e-")
            .tempdir_in("/tmp")?;
        let script = root.join("hack/private-containerd");
        let mut this = Self {
            version,
            dir,
            env: inherited_environment(),
            script,
        };
        this.script(&["start", "--version", version.label(), "--shim", &shim])?;
        this.env = this.environment()?;
        for (image, command) in [(BUSYBOX, "sh"), (PAUSE, "sleep 2147483647")] {
            this.load_image(&root, image, command)?;
        }
        Ok(this)
    }

    fn load_image(&self, root: &Path, image: &str, command: &str) -> Result<()> {
        let archive = self.dir.path().join("image.tar");
        let maker = root.join("hack/image");
        let (maker, file) = (maker.display().to_string(), archive.display().to_string());
        let mut argv = vec![maker.as_str(), image, &file];
        argv.extend(command.split(' '));
        command::run(&self.env, &argv, SCRIPT_LIMIT)?
            .ok()
            .context("hack/image")?;
        for namespace in [NAMESPACE, "k8s.io"] {
            command::run(
                &self.env,
                &["ctr", "-n", namespace, "image", "import", &file],
                SCRIPT_LIMIT,
            )?
            .ok()
            .with_context(|| format!("import of {image}"))?;
        }
        std::fs::remove_file(archive)?;
        Ok(())
    }

    fn script(&self, args: &[&str]) -> Result<Output> {
        let script = self.script.display().to_string();
        let dir = self.dir.path().display().to_string();
        let (verb, options) = args.split_first().context("no verb")?;
        let mut argv = vec![script.as_str(), verb, &dir];
        argv.extend(options);
        command::run(&self.env, &argv, SCRIPT_LIMIT)?
            .ok()
            .with_context(|| format!("hack/private-containerd {verb}"))
    }

    fn environment(&self) -> Result<BTreeMap<String, String>> {
        let out = Command::new("bash")
            .args(["-c", ". \"$1/env\"; env -0", "bash"])
            .arg(self.dir.path())
            .output()?;
        Ok(String::from_utf8_lossy(&out.stdout)
            .split('\0')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect())
    }

    /// SIGKILL to containerd alone; its shims go on.
    pub fn kill(&self) -> Result<()> {
        self.script(&["kill"]).map(drop)
    }

    /// Starts it again on the same folders.
    pub fn start_again(&self) -> Result<()> {
        self.script(&["start", "--version", self.version.label()])
            .map(drop)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where our shim keeps its records.
    pub fn state_root(&self) -> PathBuf {
        self.dir.path().join("run/a3sbox")
    }

    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("containerd.log")).unwrap_or_default()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Err(error) = self.script(&["stop"]) {
            eprintln!("cannot stop containerd {}: {error:#}", self.version.label());
        }
    }
}

fn inherited_environment() -> BTreeMap<String, String> {
    std::env::vars().collect()
}

/// One containerd and one shim: where a case runs.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    pub containerd: &'a Containerd,
    pub shim: Shim,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Node<'_> {
    pub fn is_ours(&self) -> bool {
        self.shim == Shim::Ours
    }

    pub fn namespace(&self) -> &'static str {
        NAMESPACE
    }

    /// A container id that no other case uses, nor another run of the suite: cgroups of a machine share
    /// their names. Of one width, so that none is the beginning of another.
    pub fn id(&self, hint: &str) -> String {
        let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        format!("{hint}-{:x}-{number:04}", std::process::id())
    }

    /// Client for containerd's own API, in this node's namespace.
    pub fn api(&self) -> Result<Api> {
        Api::connect(self.containerd.dir().join("containerd.sock"), NAMESPACE)
    }

    /// `ctr` in this node's namespace.
    pub fn ctr(&self, args: &[&str]) -> Result<Output> {
        self.ctr_within(args, COMMAND_LIMIT)
    }

    pub fn ctr_within(&self, args: &[&str], limit: Duration) -> Result<Output> {
        let mut argv = vec!["ctr", "-n", NAMESPACE];
        argv.extend(args);
        command::run(self.containerd.env(), &argv, limit)
    }

    /// `ctr run --rm` of the busybox image with this node's shim.
    pub fn run(&self, id: &str, options: &[&str], command: &[&str]) -> Result<Output> {
        let mut args = vec!["run", "--rm", "--runtime", self.shim.runtime_type()];
        args.extend(options);
        args.extend([BUSYBOX, id]);
        args.extend(command);
        self.ctr(&args)
    }

    /// A detached container; ends with the returned guard.
    pub fn background(&self, id: &str, options: &[&str], command: &[&str]) -> Result<Running<'_>> {
        let mut args = vec!["run", "-d", "--runtime", self.shim.runtime_type()];
        args.extend(options);
        args.extend([BUSYBOX, id]);
        args.extend(command);
        let started = self.ctr(&args)?;
        let running = Running {
            node: *self,
            id: id.to_owned(),
        };
        started.ok()?;
        Ok(running)
    }

    pub fn exec(
        &self,
        id: &str,
        exec_id: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<Output> {
        let mut args = vec!["task", "exec", "--exec-id", exec_id];
        args.extend(options);
        args.push(id);
        args.extend(command);
        self.ctr(&args)
    }

    /// Any program with the node's environment.
    pub fn tool(&self, argv: &[&str]) -> Result<Output> {
        command::run(self.containerd.env(), argv, COMMAND_LIMIT)
    }

    /// Status of a task as `ctr task ls` prints it, `None` when there is none.
    pub fn status(&self, id: &str) -> Result<Option<(u32, String)>> {
        let list = self.ctr(&["task", "ls"])?.ok()?;
        Ok(list.stdout.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(id)).then_some(())?;
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        }))
    }
}

/// A detached container that is removed when the case ends, however it ends.
#[derive(Debug)]
pub struct Running<'a> {
    node: Node<'a>,
    id: String,
}

impl Running<'_> {
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.node.ctr(&["task", "kill", "-s", "KILL", &self.id]);
        let _ = self.node.ctr(&["task", "rm", "-f", &self.id]);
        let _ = self.node.ctr(&["container", "rm", &self.id]);
    }
}
