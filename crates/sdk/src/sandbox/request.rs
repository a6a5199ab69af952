//! From options to the request that the manager gets.

use std::path::PathBuf;

use a3sbox_core::{
    BoxConfig, CreateExecutionRequest, ExecutionRecordPolicy, OperationId, ResourceConfig,
    resolve_execution,
};
use uuid::Uuid;

use super::mounts::{VolumeMount, VolumeSource};
use super::options::{SandboxCreateOptions, SandboxNetwork};
use super::validate;
use crate::client::{A3sBoxClient, ClientError, Result, invalid};

/// Sleeps for ever and ends at once when it is asked to: a shell that is a container's first process
/// ignores the stop signal unless it traps it, and traps nothing while it waits for a foreground child.
const KEEP_ALIVE: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

/// Checks everything that can be checked without the manager.
pub(super) fn build(
    client: &A3sBoxClient,
    options: SandboxCreateOptions,
) -> Result<(CreateExecutionRequest, OperationId)> {
    validate::options(&options)?;
    check_network(client, &options.network)?;
    let (volumes, volume_names) = mounts(client, &options.mounts)?;

    let identity = Uuid::new_v4();
    let operation_id = OperationId::new(format!("sdk-create-{identity}"))?;
    let defaults = ResourceConfig::default();
    let config = BoxConfig {
        isolation: options.isolation,
        image: options.image,
        workspace: options.workspace.unwrap_or_default(),
        resources: ResourceConfig {
            vcpus: options.cpus.unwrap_or(defaults.vcpus),
            memory_mb: options.memory_mb.unwrap_or(defaults.memory_mb),
            timeout: options.timeout_seconds,
            ..defaults
        },
        cmd: command(options.command, options.entrypoint.is_some()),
        entrypoint_override: options.entrypoint,
        user: options.user,
        workdir: options.workdir,
        hostname: options.hostname,
        volumes,
        extra_env: options.envs.into_iter().collect(),
        port_map: options
            .ports
            .iter()
            .map(|port| port.runtime_entry())
            .collect(),
        dns: options.dns_servers,
        add_hosts: options
            .host_aliases
            .iter()
            .map(|(host, address)| format!("{host}:{address}"))
            .collect(),
        network: options.network.into(),
        tmpfs: options.tmpfs.iter().map(|tmpfs| tmpfs.entry()).collect(),
        read_only: options.read_only,
        persistent: options.persistent,
        ..BoxConfig::default()
    };
    resolve_execution(&config)?;
    let request = CreateExecutionRequest {
        external_sandbox_id: format!("local-{identity}"),
        config,
        labels: options.metadata,
        policy: ExecutionRecordPolicy {
            name: options.name,
            auto_remove: options.auto_remove,
            volume_names,
            ..ExecutionRecordPolicy::default()
        },
        rootfs_snapshot_id: options.rootfs_snapshot_id,
    };
    Ok((request, operation_id))
}

/// An entrypoint of the caller's own is a whole program: it gets no keep-alive as its arguments.
fn command(command: Option<Vec<String>>, has_entrypoint: bool) -> Vec<String> {
    match command {
        Some(command) => command,
        None if has_entrypoint => Vec::new(),
        None => ["/bin/sh", "-c", KEEP_ALIVE].map(str::to_owned).to_vec(),
    }
}

fn check_network(client: &A3sBoxClient, network: &SandboxNetwork) -> Result<()> {
    let SandboxNetwork::Bridge { name } = network else {
        return Ok(());
    };
    if name.trim().is_empty() {
        return invalid("name of the bridge network must not be blank");
    }
    if client.get_network(name)?.is_none() {
        return invalid(format!("network {name:?} is not defined, create it first"));
    }
    Ok(())
}

/// The mounts as `source:target:mode` in order, and the named volumes among them, each once.
fn mounts(client: &A3sBoxClient, mounts: &[VolumeMount]) -> Result<(Vec<String>, Vec<String>)> {
    let mut entries = Vec::with_capacity(mounts.len());
    let mut names: Vec<String> = Vec::new();
    for mount in mounts {
        validate::mount_target("mount target", &mount.target)?;
        let source = match &mount.source {
            VolumeSource::Bind(path) => bind_source(path.clone())?,
            VolumeSource::Named(name) => {
                let volume = client.get_volume(name)?.ok_or_else(|| {
                    ClientError::Validation(format!(
                        "volume {name:?} is not defined, create it first"
                    ))
                })?;
                if !names.contains(name) {
                    names.push(name.clone());
                }
                volume.mount_point
            }
        };
        let mode = if mount.read_only { "ro" } else { "rw" };
        entries.push(format!("{source}:{}:{mode}", mount.target));
    }
    Ok((entries, names))
}

fn bind_source(path: PathBuf) -> Result<String> {
    let source = match path.into_os_string().into_string() {
        Ok(source) => source,
        Err(path) => return invalid(format!("bind source {path:?} is not UTF-8")),
    };
    if source.is_empty() {
        return invalid("bind source must not be empty");
    }
    if source.contains([':', '\0']) {
        return invalid(format!("bind source {source:?} must not have a ':' or NUL"));
    }
    Ok(source)
}
