//! What a new sandbox is to be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use a3sbox_core::{ExecutionIsolation, ExecutionSnapshotId, NetworkMode, PortMapping};

use super::mounts::{TmpfsMount, VolumeMount};

pub const DEFAULT_SANDBOX_IMAGE: &str = "alpine:3.20";
pub const DEFAULT_SANDBOX_TIMEOUT_SECONDS: u64 = 3600;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// Outgoing connections by way of the host.
    #[default]
    Tsi,
    Disabled,
    /// A network defined in the client's store.
    Bridge {
        name: String,
    },
}

impl SandboxNetwork {
    pub fn bridge(name: impl Into<String>) -> Self {
        Self::Bridge { name: name.into() }
    }
}

impl From<SandboxNetwork> for NetworkMode {
    fn from(network: SandboxNetwork) -> Self {
        match network {
            SandboxNetwork::Tsi => Self::Tsi,
            SandboxNetwork::Disabled => Self::None,
            SandboxNetwork::Bridge { name } => Self::Bridge { network: name },
        }
    }
}

/// Checked when the sandbox is created, all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxCreateOptions {
    pub image: String,
    /// How long the sandbox may live.
    pub timeout_seconds: u64,
    pub envs: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    pub isolation: ExecutionIsolation,
    pub cpus: Option<u32>,
    pub memory_mb: Option<u32>,
    /// Start from this snapshot instead of the image's own filesystem.
    pub rootfs_snapshot_id: Option<ExecutionSnapshotId>,
    pub workdir: Option<String>,
    pub mounts: Vec<VolumeMount>,
    pub network: SandboxNetwork,
    pub ports: Vec<PortMapping>,
    /// Take the record away when the workload has ended.
    pub auto_remove: bool,
    pub name: Option<String>,
    pub workspace: Option<PathBuf>,
    pub user: Option<String>,
    pub hostname: Option<String>,
    pub tmpfs: Vec<TmpfsMount>,
    pub dns_servers: Vec<String>,
    /// Host name to address.
    pub host_aliases: BTreeMap<String, String>,
    pub read_only: bool,
    pub persistent: bool,
    /// A command that keeps the sandbox alive when none.
    pub command: Option<Vec<String>>,
    pub entrypoint: Option<Vec<String>>,
}

impl Default for SandboxCreateOptions {
    fn default() -> Self {
        Self {
            image: DEFAULT_SANDBOX_IMAGE.to_owned(),
            timeout_seconds: DEFAULT_SANDBOX_TIMEOUT_SECONDS,
            envs: BTreeMap::new(),
            metadata: BTreeMap::new(),
            isolation: ExecutionIsolation::Microvm,
            cpus: None,
            memory_mb: None,
            rootfs_snapshot_id: None,
            workdir: None,
            mounts: Vec::new(),
            network: SandboxNetwork::Tsi,
            ports: Vec::new(),
            auto_remove: true,
            name: None,
            workspace: None,
            user: None,
            hostname: None,
            tmpfs: Vec::new(),
            dns_servers: Vec::new(),
            host_aliases: BTreeMap::new(),
            read_only: false,
            persistent: false,
            command: None,
            entrypoint: None,
        }
    }
}

/// Each method sets or adds one option and hands the options on.
impl SandboxCreateOptions {
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn timeout_seconds(mut self, seconds: u64) -> Self {
        self.timeout_seconds = seconds;
        self
    }

    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.envs.insert(key.into(), value.into());
        self
    }

    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    #[must_use]
    pub fn isolation(mut self, isolation: ExecutionIsolation) -> Self {
        self.isolation = isolation;
        self
    }

    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    #[must_use]
    pub fn memory_mb(mut self, memory_mb: u32) -> Self {
        self.memory_mb = Some(memory_mb);
        self
    }

    #[must_use]
    pub fn filesystem_snapshot(mut self, snapshot_id: ExecutionSnapshotId) -> Self {
        self.rootfs_snapshot_id = Some(snapshot_id);
        self
    }

    #[must_use]
    pub fn workdir(mut self, path: impl Into<String>) -> Self {
        self.workdir = Some(path.into());
        self
    }

    #[must_use]
    pub fn mount(mut self, mount: VolumeMount) -> Self {
        self.mounts.push(mount);
        self
    }

    #[must_use]
    pub fn network(mut self, network: SandboxNetwork) -> Self {
        self.network = network;
        self
    }

    #[must_use]
    pub fn publish_port(mut self, port: PortMapping) -> Self {
        self.ports.push(port);
        self
    }

    #[must_use]
    pub fn auto_remove(mut self, auto_remove: bool) -> Self {
        self.auto_remove = auto_remove;
        self
    }

    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    #[must_use]
    pub fn workspace(mut self, path: impl Into<PathBuf>) -> Self {
        self.workspace = Some(path.into());
        self
    }

    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    #[must_use]
    pub fn hostname(mut self, hostname: impl Into<String>) -> Self {
        self.hostname = Some(hostname.into());
        self
    }

    #[must_use]
    pub fn tmpfs(mut self, tmpfs: TmpfsMount) -> Self {
        self.tmpfs.push(tmpfs);
        self
    }

    #[must_use]
    pub fn dns_server(mut self, address: impl Into<String>) -> Self {
        self.dns_servers.push(address.into());
        self
    }

    #[must_use]
    pub fn host_alias(mut self, host: impl Into<String>, address: impl Into<String>) -> Self {
        self.host_aliases.insert(host.into(), address.into());
        self
    }

    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.persistent = persistent;
        self
    }

    #[must_use]
    pub fn command<I>(mut self, command: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.command = Some(command.into_iter().map(Into::into).collect());
        self
    }

    #[must_use]
    pub fn entrypoint<I>(mut self, entrypoint: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.entrypoint = Some(entrypoint.into_iter().map(Into::into).collect());
        self
    }
}
