//! Claims and completions kept in a record: the intents that a crash must not lose.

use a3sbox_core::{ExecutionGeneration, ExecutionResourceUpdate, ExecutionSnapshotId, OperationId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::state::ManagedExecutionState;

/// What is under way while a record is in a transitional state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ManagedExecutionOperation {
    Start,
    Pause {
        keep_memory: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation_id: Option<OperationId>,
    },
    Resume {
        operation_id: OperationId,
    },
    UpdateResources {
        operation_id: OperationId,
        update: ExecutionResourceUpdate,
    },
    Snapshot {
        snapshot_id: ExecutionSnapshotId,
        /// `Running` or `Paused`: where the record returns to.
        source_state: ManagedExecutionState,
        operation_id: OperationId,
        /// The freeze took effect: a thawed container must not be frozen for this claim again.
        #[serde(default)]
        freezer_applied: bool,
    },
    Kill {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_secs: Option<u64>,
    },
    Remove,
    Restart {
        operation_id: OperationId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_timeout_secs: Option<u64>,
    },
}

impl ManagedExecutionOperation {
    /// Name for messages; the same as in the record.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::UpdateResources { .. } => "update_resources",
            Self::Snapshot { .. } => "snapshot",
            Self::Kill { .. } => "kill",
            Self::Remove => "remove",
            Self::Restart { .. } => "restart",
        }
    }

    /// Whether this is the claim of that state.
    #[must_use]
    pub const fn belongs_to(&self, state: ManagedExecutionState) -> bool {
        use ManagedExecutionState as S;
        match self {
            Self::Start => matches!(state, S::Creating | S::Starting),
            Self::Pause { .. } => matches!(state, S::Pausing),
            Self::Resume { .. } => matches!(state, S::Resuming),
            Self::UpdateResources { .. } => matches!(state, S::UpdatingResources),
            Self::Snapshot { .. } => matches!(state, S::Snapshotting),
            Self::Kill { .. } => matches!(state, S::Killing),
            Self::Remove => matches!(state, S::Removing),
            Self::Restart { .. } => matches!(state, S::RestartStopping | S::RestartStarting),
        }
    }
}

/// The last resource update that completed; a repeat of it has no second effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedResourceUpdateCompletion {
    pub operation_id: OperationId,
    pub generation: ExecutionGeneration,
    pub update: ExecutionResourceUpdate,
}

/// The last restart that completed, with what its lease said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedRestartCompletion {
    pub operation_id: OperationId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_timeout_secs: Option<u64>,
    /// The generation that the restart led to.
    pub generation: ExecutionGeneration,
    pub started_at: DateTime<Utc>,
}
