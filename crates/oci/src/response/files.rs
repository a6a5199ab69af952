//! Answers about the files of a container.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ContainerTarget;

/// Result of a file transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileResponse {
    pub target: ContainerTarget,
    /// Content in base64, of a download.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    pub size: u64,
}

/// Kind of a directory entry; what is neither file nor directory is unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FilesystemEntryKind {
    Unspecified,
    File,
    Directory,
}

/// One name in a container's filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemEntry {
    pub name: String,
    pub kind: FilesystemEntryKind,
    pub path: String,
    pub size: i64,
    pub mode: u32,
    pub permissions: String,
    pub owner: String,
    pub group: String,
    pub modified_seconds: i64,
    pub modified_nanos: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// Result of a filesystem operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemResponse {
    pub target: ContainerTarget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<FilesystemEntry>,
    #[serde(default)]
    pub entries: Vec<FilesystemEntry>,
}
