//! What a manager answers: states, leases and other evidence about one execution.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::config::ResourceConfig;
use crate::generation::ExecutionGeneration;
use crate::ids::ExecutionId;
use crate::plan::ResolvedExecutionPlan;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// Reserved; nothing of it runs.
    Created,
    /// A start is under way.
    Creating,
    Running,
    Paused,
    Stopped,
    Failed,
}

/// An execution that is reserved and not started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionReservation {
    pub execution_id: ExecutionId,
    pub generation: ExecutionGeneration,
    pub plan: ResolvedExecutionPlan,
    pub resources: ResourceConfig,
    pub created_at: DateTime<Utc>,
}

/// A live execution and the generation that acts on it from now on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionLease {
    pub execution_id: ExecutionId,
    pub generation: ExecutionGeneration,
    pub plan: ResolvedExecutionPlan,
    pub resources: ResourceConfig,
    pub started_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionStatus {
    pub execution_id: ExecutionId,
    pub generation: ExecutionGeneration,
    pub state: ExecutionState,
    pub plan: ResolvedExecutionPlan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillOutcome {
    Killed,
    AlreadyStopped,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartExecutionOptions {
    /// Time between the stop signal and the kill; the execution's own policy when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_timeout_secs: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillExecutionOptions {
    /// Linux signal number; the execution's own stop signal when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
}

/// What became of an operation that may have been interrupted.
#[derive(Debug, Clone)]
pub enum ReconcileOutcome {
    /// Nothing was recorded under this operation id.
    Absent,
    Created(ExecutionReservation),
    /// Still under way.
    Creating,
    Ready(ExecutionLease),
    Failed,
}
