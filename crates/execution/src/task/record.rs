//! What a task adds to the execution's record: the durable half of the owner's state.

use std::collections::BTreeMap;
use std::path::PathBuf;

use a3sbox_oci::{EngineOptions, ProcessId, StdioUris};
use serde::{Deserialize, Serialize};

use super::machine::{ExecState, InitState};
use super::types::{ProvisionRequest, RootfsMount, TaskExit, TaskKey};
use crate::OciRuntimeBinding;

/// One containerd task. Kept in [`crate::ManagedExecutionMetadata`]; written before an answer is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRecord {
    pub key: TaskKey,
    pub bundle: PathBuf,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rootfs: Vec<RootfsMount>,
    #[serde(default)]
    pub stdio: StdioUris,
    #[serde(default)]
    pub engine: EngineOptions,
    pub init: InitSlot,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub execs: BTreeMap<String, ExecSlot>,
    /// Number of exec starts so far: a reused exec id gets a process id of its own.
    #[serde(default)]
    pub started_execs: u64,
    /// The runtime's container. It stays after the exit, since only Delete takes the container away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<OciRuntimeBinding>,
    /// The container has no pid namespace of its own, so its processes outlive the init process.
    #[serde(default)]
    pub kill_leftovers: bool,
    /// Out-of-memory events so far.
    #[serde(default)]
    pub oom_events: u64,
    /// A program's kill was claimed before the exit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_killed: bool,
}

/// The init process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitSlot {
    pub state: InitState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Tells the process from a later one with the same pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_start_time: Option<u64>,
    #[serde(default)]
    pub was_started: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<TaskExit>,
}

/// One exec, from Task Exec to its Delete. What it runs is not kept: a shim that died cannot start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecSlot {
    pub state: ExecState,
    #[serde(default)]
    pub stdio: StdioUris,
    /// The runtime's name of the latest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<TaskExit>,
}

impl TaskRecord {
    /// The record of a container that is about to be created.
    #[must_use]
    pub fn new(request: &ProvisionRequest) -> Self {
        Self {
            key: request.key.clone(),
            bundle: request.bundle.clone(),
            rootfs: request.rootfs.clone(),
            stdio: request.stdio.clone(),
            engine: request.engine.clone(),
            init: InitSlot {
                state: InitState::Creating,
                pid: None,
                pid_start_time: None,
                was_started: false,
                exit: None,
            },
            execs: BTreeMap::new(),
            started_execs: 0,
            binding: None,
            kill_leftovers: false,
            oom_events: 0,
            is_killed: false,
        }
    }
}
