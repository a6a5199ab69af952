//! Commands on a terminal.

use serde::{Deserialize, Serialize};

pub use crate::limits::MAX_FRAME_PAYLOAD;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PtyRequest {
    pub cmd: Vec<String>,
    /// `KEY=VALUE`.
    #[serde(default)]
    pub env: Vec<String>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default)]
    pub rootfs: Option<String>,
    #[serde(default)]
    pub user: Option<String>,
    pub cols: u16,
    pub rows: u16,
}
