//! From a create request to the record of a reserved execution.

use std::path::Path;

use a3sbox_core::{
    BoxError, CreateExecutionRequest, ExecutionGeneration, ExecutionId, ExecutionIsolation,
    ExecutionManagerError, ExecutionManagerResult, NetworkMode, OperationId,
};
use chrono::{DateTime, Utc};

use crate::store::{BoxRecord, ManagedExecutionMetadata, ManagedExecutionState};

/// Characters of the id, without dashes, that make the short one.
const SHORT_ID_CHARS: usize = 12;

/// The record of a fresh execution, or the reason why no backend could ever run it. Pure.
pub(crate) fn build_managed_record(
    home_dir: &Path,
    execution_id: &ExecutionId,
    operation_id: OperationId,
    request: CreateExecutionRequest,
    now: DateTime<Utc>,
) -> ExecutionManagerResult<BoxRecord> {
    refuse_impossible(&request)?;
    let metadata =
        ManagedExecutionMetadata::new(operation_id, ExecutionGeneration::INITIAL, request)
            .map_err(refused)?;
    let id = execution_id.as_str().to_owned();
    let short_id: String = id
        .chars()
        .filter(|c| *c != '-')
        .take(SHORT_ID_CHARS)
        .collect();
    let box_dir = home_dir.join("boxes").join(&id);
    let config = metadata.request.config.clone();
    let policy = metadata.request.policy.clone();
    let network_name = match &config.network {
        NetworkMode::Bridge { network } => Some(network.clone()),
        NetworkMode::Tsi | NetworkMode::None => None,
    };
    Ok(BoxRecord {
        name: policy.name.unwrap_or_else(|| format!("managed-{short_id}")),
        id,
        short_id,
        image: config.image,
        isolation: config.isolation,
        status: ManagedExecutionState::Created.as_status().to_owned(),
        pid: None,
        pid_start_time: None,
        cpus: config.resources.vcpus,
        memory_mb: config.resources.memory_mb,
        volumes: config.volumes,
        virtiofs_cache: config.virtiofs_cache,
        env: config.extra_env.into_iter().collect(),
        cmd: config.cmd,
        entrypoint: config.entrypoint_override,
        exec_socket_path: box_dir.join("sockets").join("exec.sock"),
        console_log: box_dir.join("logs").join("console.log"),
        box_dir,
        created_at: now,
        started_at: None,
        auto_remove: policy.auto_remove,
        hostname: config.hostname,
        user: config.user,
        workdir: config.workdir,
        restart_policy: policy.restart_policy.as_str().to_owned(),
        max_restart_count: policy.max_restart_count,
        restart_count: 0,
        stopped_by_user: false,
        port_map: config.port_map,
        labels: metadata.request.labels.clone().into_iter().collect(),
        exit_code: None,
        health_check: policy.health_check,
        healthcheck_disabled: policy.healthcheck_disabled,
        health_status: "none".to_owned(),
        health_retries: 0,
        health_last_check: None,
        network_mode: config.network,
        network_name,
        volume_names: policy.volume_names,
        tmpfs: config.tmpfs,
        anonymous_volumes: Vec::new(),
        resource_limits: config.resource_limits,
        log_config: policy.log_config,
        add_host: config.add_hosts,
        platform: policy.platform,
        init: policy.init,
        read_only: config.read_only,
        cap_add: config.cap_add,
        cap_drop: config.cap_drop,
        security_opt: config.security_opt,
        privileged: config.privileged,
        devices: policy.devices,
        gpus: policy.gpus,
        shm_size: policy.shm_size,
        stop_signal: policy.stop_signal,
        stop_timeout: policy.stop_timeout,
        oom_kill_disable: policy.oom_kill_disable,
        oom_score_adj: policy.oom_score_adj,
        managed_execution: Some(metadata),
    })
}

fn refuse_impossible(request: &CreateExecutionRequest) -> ExecutionManagerResult<()> {
    match request.config.isolation {
        ExecutionIsolation::Microvm => {
            a3sbox_core::config::validate_vcpu_count(request.config.resources.vcpus)
                .map_err(ExecutionManagerError::InvalidRequest)
        }
        ExecutionIsolation::Sandbox => Ok(()),
    }
}

/// A configuration that cannot be honoured is the caller's; anything else is ours.
fn refused(error: BoxError) -> ExecutionManagerError {
    match error {
        BoxError::ConfigError(message) => ExecutionManagerError::InvalidRequest(message),
        other => ExecutionManagerError::Internal(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use a3sbox_core::{BoxConfig, ExecutionRecordPolicy};

    use super::*;
    use crate::ManagedRuntimeRoute;

    #[test]
    fn a_record_is_what_its_arguments_say() {
        let request = CreateExecutionRequest {
            external_sandbox_id: "sandbox".to_owned(),
            config: BoxConfig {
                image: "busybox".to_owned(),
                extra_env: vec![("A".to_owned(), "1".to_owned())],
                ..BoxConfig::default()
            },
            labels: BTreeMap::from([("team".to_owned(), "x".to_owned())]),
            policy: ExecutionRecordPolicy::default(),
            rootfs_snapshot_id: None,
        };
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let home = Path::new("/nowhere/home");
        let operation_id = OperationId::new("create").unwrap();
        for id in ["8d0c1f52-1111-2222-3333-444455556666", "no uuid at all"] {
            let execution_id = ExecutionId::new(id).unwrap();
            let build = || {
                let request = request.clone();
                build_managed_record(home, &execution_id, operation_id.clone(), request, now)
            };
            let record = build().unwrap();
            let again = serde_json::to_value(build().unwrap()).unwrap();
            assert_eq!(serde_json::to_value(&record).unwrap(), again);
            assert_eq!(
                (record.id.as_str(), record.status.as_str()),
                (id, "created")
            );
            assert!(!record.short_id.contains('-') && record.short_id.len() <= SHORT_ID_CHARS);
            assert_eq!(record.name, format!("managed-{}", record.short_id));
            assert_eq!(record.box_dir, home.join("boxes").join(id));
            assert!(record.exec_socket_path.starts_with(&record.box_dir));
            assert!(record.console_log.starts_with(&record.box_dir));
            assert_eq!(record.created_at, now);
            assert_eq!(record.env.get("A").map(String::as_str), Some("1"));
            assert_eq!(record.labels.get("team").map(String::as_str), Some("x"));
            assert_eq!((record.pid, record.exit_code), (None, None));
            let metadata = record.managed_execution.unwrap();
            assert_eq!(metadata.generation, ExecutionGeneration::INITIAL);
            assert_eq!(metadata.runtime_route, ManagedRuntimeRoute::Unspecified);
            assert!(metadata.oci_runtime.is_none() && metadata.pending_operation.is_none());
        }
        assert!(!home.exists());
    }
}
