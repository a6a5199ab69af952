//! Options that know their client.

use std::path::PathBuf;

use a3sbox_core::{ExecutionIsolation, ExecutionSnapshotId, PortMapping, PortProtocol};

use super::handle::Sandbox;
use super::mounts::{TmpfsMount, VolumeMount};
use super::options::{SandboxCreateOptions, SandboxNetwork};
use crate::client::{A3sBoxClient, Result};

/// [`SandboxCreateOptions`] with a client; nothing happens before [`SandboxBuilder::start`].
#[derive(Debug, Clone)]
pub struct SandboxBuilder {
    client: A3sBoxClient,
    options: SandboxCreateOptions,
}

impl A3sBoxClient {
    pub fn sandbox(&self, image: impl Into<String>) -> SandboxBuilder {
        SandboxBuilder {
            client: self.clone(),
            options: SandboxCreateOptions::new(image),
        }
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The methods of [`SandboxCreateOptions`].
        impl SandboxBuilder {
            $(
                #[must_use]
                pub fn $name(mut self, $($argument: $type),*) -> Self {
                    self.options = self.options.$name($($argument),*);
                    self
                }
            )*
        }
    };
}

forward! {
    timeout_seconds(seconds: u64);
    env(key: impl Into<String>, value: impl Into<String>);
    metadata(key: impl Into<String>, value: impl Into<String>);
    isolation(isolation: ExecutionIsolation);
    cpus(cpus: u32);
    memory_mb(memory_mb: u32);
    filesystem_snapshot(snapshot_id: ExecutionSnapshotId);
    workdir(path: impl Into<String>);
    mount(mount: VolumeMount);
    network(network: SandboxNetwork);
    publish_port(port: PortMapping);
    auto_remove(auto_remove: bool);
    name(name: impl Into<String>);
    workspace(path: impl Into<PathBuf>);
    user(user: impl Into<String>);
    hostname(hostname: impl Into<String>);
    tmpfs(tmpfs: TmpfsMount);
    dns_server(address: impl Into<String>);
    host_alias(host: impl Into<String>, address: impl Into<String>);
    read_only(read_only: bool);
    persistent(persistent: bool);
    command(command: impl IntoIterator<Item = impl Into<String>>);
    entrypoint(entrypoint: impl IntoIterator<Item = impl Into<String>>);
}

impl SandboxBuilder {
    /// A path of the host, read-write.
    #[must_use]
    pub fn mount_bind(self, source: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        self.mount(VolumeMount::bind(source, target))
    }

    /// A named volume, read-write.
    #[must_use]
    pub fn mount_named(self, name: impl Into<String>, target: impl Into<String>) -> Self {
        self.mount(VolumeMount::named(name, target))
    }

    #[must_use]
    pub fn publish_tcp(self, host_port: u16, guest_port: u16) -> Self {
        self.publish_port(PortMapping {
            host_port,
            guest_port,
            protocol: PortProtocol::Tcp,
        })
    }

    pub fn options(&self) -> &SandboxCreateOptions {
        &self.options
    }

    /// See [`Sandbox::create_with_client`].
    pub async fn start(self) -> Result<Sandbox> {
        Sandbox::create_with_client(self.client, self.options).await
    }
}
