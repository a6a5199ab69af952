//! Requests that create, change and remove containers.

use std::path::PathBuf;

use oci_spec::runtime::LinuxResources;
use serde::{Deserialize, Serialize};

use crate::attachments::CreateAttachments;
use crate::bundle::OciBundle;
use crate::capability::IsolationRequest;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, ContainerTarget, OperationContext};

/// Make a container up to the point before its process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateRequest {
    pub context: OperationContext,
    pub id: ContainerId,
    pub bundle: OciBundle,
    pub isolation: IsolationRequest,
    pub attachments: CreateAttachments,
}

/// Let the configured process of a created container run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StartRequest {
    pub context: OperationContext,
    pub target: ContainerTarget,
}

/// Send a signal to the configured process, or to all processes of the container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KillRequest {
    pub context: OperationContext,
    pub target: ContainerTarget,
    pub signal: Signal,
    pub all: bool,
}

/// Take a container away.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeleteRequest {
    pub context: OperationContext,
    pub target: ContainerTarget,
    pub mode: DeleteMode,
}

/// What `delete` may do to a container that is not stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeleteMode {
    /// `FailedPrecondition` unless it is stopped.
    StoppedOnly,
    /// Kill first.
    Force,
}

/// `pause` and `resume`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContainerOperationRequest {
    pub context: OperationContext,
    pub target: ContainerTarget,
}

/// Change limits; only the fields that are set change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateRequest {
    pub context: OperationContext,
    pub target: ContainerTarget,
    pub resources: LinuxResources,
}

/// Create, start, wait and delete by force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    pub create: CreateRequest,
    pub start_context: OperationContext,
    pub delete_context: OperationContext,
}

/// Write the processes of a container to a folder, with CRIU; the options are those of runc.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckpointRequest {
    pub context: OperationContext,
    pub target: ContainerTarget,
    /// Absolute folder of the image.
    pub image_path: PathBuf,
    /// Absolute folder for logs; `None` leaves the choice to the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_path: Option<PathBuf>,
    /// The container ends when the image is complete.
    #[serde(default)]
    pub exit: bool,
    #[serde(default)]
    pub open_tcp: bool,
    #[serde(default)]
    pub external_unix_sockets: bool,
    #[serde(default)]
    pub terminal: bool,
    #[serde(default)]
    pub file_locks: bool,
    #[serde(default)]
    pub empty_namespaces: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroups_mode: Option<String>,
}

/// Create a container from a checkpoint image; it is running when the call returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequest {
    pub context: OperationContext,
    pub id: ContainerId,
    pub bundle: OciBundle,
    pub isolation: IsolationRequest,
    pub attachments: CreateAttachments,
    /// Absolute folder of the image.
    pub image_path: PathBuf,
    /// Absolute folder for logs; `None` leaves the choice to the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_path: Option<PathBuf>,
}

/// Number of a signal, always positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Signal(i32);

impl Signal {
    /// `InvalidArgument` unless the number is positive.
    pub fn new(number: i32) -> Result<Self> {
        if number > 0 {
            Ok(Self(number))
        } else {
            Err(Error::invalid(format!(
                "signal number must be positive, it is {number}"
            )))
        }
    }

    pub const fn get(self) -> i32 {
        self.0
    }
}

impl TryFrom<i32> for Signal {
    type Error = Error;

    fn try_from(number: i32) -> Result<Self> {
        Self::new(number)
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> Self {
        signal.0
    }
}
