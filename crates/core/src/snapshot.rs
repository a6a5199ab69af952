//! Filesystem snapshots: the answer of a capture and the record of a stored one.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::execution::{ExecutionLease, ExecutionState};
use crate::ids::ExecutionSnapshotId;

/// A captured snapshot, the state restored after it, and the lease valid from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionSnapshot {
    pub snapshot_id: ExecutionSnapshotId,
    pub size_bytes: u64,
    pub state: ExecutionState,
    pub lease: ExecutionLease,
}

/// What a restore needs to know of the image that the snapshot grew from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotImageConfig {
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub env: Vec<(String, String)>,
    pub working_dir: Option<String>,
    pub user: Option<String>,
    pub stop_signal: Option<String>,
    pub labels: BTreeMap<String, String>,
}

/// The record of a stored filesystem snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMetadata {
    pub id: String,
    pub name: String,
    pub source_execution: String,
    pub image: String,
    /// A snapshot without it may be refused for restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_config: Option<SnapshotImageConfig>,
    #[serde(default)]
    pub size_bytes: u64,
    pub created_at: DateTime<Utc>,
}

impl SnapshotMetadata {
    /// A record of now, without image configuration and with size zero.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        source_execution: impl Into<String>,
        image: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            source_execution: source_execution.into(),
            image: image.into(),
            image_config: None,
            size_bytes: 0,
            created_at: Utc::now(),
        }
    }
}
