//! Requests on the files of a container.

use serde::{Deserialize, Serialize};

use crate::ids::{ContainerTarget, OperationContext};

/// Direction of a whole-file transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileOp {
    Upload,
    Download,
}

/// Write or read one whole file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileRequest {
    pub target: ContainerTarget,
    pub op: FileOp,
    pub path: String,
    /// Content in base64, for an upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// User whose home and rights count; `None` is the container's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// For an upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<OperationContext>,
}

/// One operation on names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilesystemOp {
    Stat,
    MakeDir,
    Move,
    ListDir,
    Remove,
}

impl FilesystemOp {
    /// The operation changes something and so needs an operation id.
    pub const fn is_mutating(self) -> bool {
        matches!(self, Self::MakeDir | Self::Move | Self::Remove)
    }
}

/// Look at names in a container, or change them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FilesystemRequest {
    pub target: ContainerTarget,
    pub op: FilesystemOp,
    pub path: String,
    /// For a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// For a listing; zero elsewhere.
    #[serde(default)]
    pub depth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// For an operation that changes something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<OperationContext>,
}
