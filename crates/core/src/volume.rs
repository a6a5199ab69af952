//! Named volumes as they are stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeConfig {
    pub name: String,
    pub driver: String,
    pub mount_point: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Executions that have it mounted.
    #[serde(default)]
    pub in_use_by: Vec<String>,
    /// Bytes; zero is without limit.
    #[serde(default)]
    pub size_limit: u64,
    /// RFC 3339.
    pub created_at: String,
}
