//! Values of the task face.

use std::path::PathBuf;

use a3sbox_core::CreateExecutionRequest;
use a3sbox_oci::{EngineOptions, StdioUris};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// One containerd container, by its original names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    pub namespace: String,
    pub container_id: String,
}

/// One mount of the rootfs as containerd gives it, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootfsMount {
    pub fs_type: String,
    pub source: String,
    #[serde(default)]
    pub target: String,
    #[serde(default)]
    pub options: Vec<String>,
}

/// Task Create, as the shim hands it on.
#[derive(Debug, Clone)]
pub struct ProvisionRequest {
    pub key: TaskKey,
    /// The product's own request, built from pod annotations and policy.
    pub request: CreateExecutionRequest,
    pub bundle: PathBuf,
    pub rootfs: Vec<RootfsMount>,
    pub stdio: StdioUris,
    pub engine: EngineOptions,
}

/// Answer of Task Create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCreated {
    pub pid: u32,
}

/// How a process ended. `status` is `None` when nobody saw the exit: it will never be known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskExit {
    /// Exit code, or 128 + signal.
    pub status: Option<u32>,
    pub exited_at: DateTime<Utc>,
    /// Why the status is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<String>,
}

/// Answer of Task Delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDeleted {
    pub pid: u32,
    /// `None` when the process was never started.
    pub exit: Option<TaskExit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Created,
    Running,
    Pausing,
    Paused,
    Stopped,
}

/// Answer of Task State.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskState {
    pub status: TaskStatus,
    /// Zero for an exec that was declared and not started.
    pub pid: u32,
    pub bundle: PathBuf,
    pub stdio: StdioUris,
    pub exit: Option<TaskExit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPid {
    pub pid: u32,
    pub exec_id: Option<String>,
}

/// Options of Task Checkpoint, named as in containerd's `runc.v1.CheckpointOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCheckpoint {
    pub image_path: PathBuf,
    pub work_path: Option<PathBuf>,
    pub exit: bool,
    pub open_tcp: bool,
    pub external_unix_sockets: bool,
    pub terminal: bool,
    pub file_locks: bool,
    pub empty_namespaces: Vec<String>,
    pub cgroups_mode: Option<String>,
}

/// One event of a container, in the order of its causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    pub key: TaskKey,
    pub at: DateTime<Utc>,
    pub kind: TaskEventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEventKind {
    Created {
        pid: u32,
        bundle: PathBuf,
        rootfs: Vec<RootfsMount>,
        stdio: StdioUris,
        checkpoint: Option<PathBuf>,
    },
    Started {
        pid: u32,
    },
    ExecAdded {
        exec_id: String,
    },
    ExecStarted {
        exec_id: String,
        pid: u32,
    },
    Paused,
    Resumed,
    Checkpointed {
        checkpoint: PathBuf,
    },
    OutOfMemory,
    /// `exec_id` is `None` for the init process.
    Exited {
        exec_id: Option<String>,
        pid: u32,
        exit: TaskExit,
    },
    Deleted {
        pid: u32,
        exit: TaskExit,
    },
}
