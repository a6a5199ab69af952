//! Requests and records for the tests of this crate.

use std::path::Path;

use a3sbox_core::{
    BoxConfig, CreateExecutionRequest, ExecutionId, ExecutionIsolation, NetworkMode, OperationId,
};
use chrono::{DateTime, Utc};

use super::BoxRecord;
use crate::local_execution::build_managed_record;
use crate::task::{InitSlot, InitState, TaskKey, TaskRecord};

pub(crate) fn request(image: &str) -> CreateExecutionRequest {
    CreateExecutionRequest {
        external_sandbox_id: "fixture".into(),
        config: BoxConfig {
            image: image.into(),
            isolation: ExecutionIsolation::Sandbox,
            network: NetworkMode::None,
            ..BoxConfig::default()
        },
        labels: std::collections::BTreeMap::new(),
        policy: a3sbox_core::ExecutionRecordPolicy::default(),
        rootfs_snapshot_id: None,
    }
}

pub(crate) fn operation(id: &str) -> OperationId {
    OperationId::new(id).unwrap()
}

pub(crate) fn execution(id: &str) -> ExecutionId {
    ExecutionId::new(id).unwrap()
}

pub(crate) fn record(id: &str, operation_id: &str) -> BoxRecord {
    record_of(id, operation_id, request("alpine:3.20"))
}

pub(crate) fn record_of(
    id: &str,
    operation_id: &str,
    request: CreateExecutionRequest,
) -> BoxRecord {
    build_managed_record(
        Path::new("/nonexistent/home"),
        &execution(id),
        operation(operation_id),
        request,
        DateTime::<Utc>::UNIX_EPOCH,
    )
    .unwrap()
}

pub(crate) fn key(container_id: &str) -> TaskKey {
    TaskKey {
        namespace: "k8s.io".into(),
        container_id: container_id.into(),
    }
}

/// A record that containerd's Task API drives.
pub(crate) fn task_record(id: &str, operation_id: &str, key: &TaskKey) -> BoxRecord {
    let mut record = record(id, operation_id);
    record.managed_execution.as_mut().unwrap().task = Some(TaskRecord {
        key: key.clone(),
        bundle: "/bundle".into(),
        rootfs: Vec::new(),
        stdio: a3sbox_oci::StdioUris::default(),
        engine: a3sbox_oci::EngineOptions::default(),
        init: InitSlot {
            state: InitState::Created,
            pid: None,
            pid_start_time: None,
            was_started: false,
            exit: None,
        },
        execs: std::collections::BTreeMap::new(),
        started_execs: 0,
        binding: None,
        kill_leftovers: false,
        oom_events: 0,
        is_killed: false,
    });
    record
}
