//! Requests that look at containers and change nothing.

use serde::{Deserialize, Serialize};

use crate::capability::IsolationClass;
use crate::ids::ContainerTarget;

/// The record of one container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateRequest {
    pub target: ContainerTarget,
}

/// The exit status of the configured process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WaitRequest {
    pub target: ContainerTarget,
    /// `None` waits without limit, `Some(0)` asks once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The containers of the service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ListRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationClass>,
}

/// The processes that the runtime was asked to run in a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessesRequest {
    pub target: ContainerTarget,
}

/// Every process of a container, also those that its own processes started.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PidsRequest {
    pub target: ContainerTarget,
}

/// Usage of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StatsRequest {
    pub target: ContainerTarget,
}

/// Events after a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventsRequest {
    /// `None` reads the events of every container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerTarget>,
    pub after_sequence: u64,
    pub limit: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_timeout_ms: Option<u64>,
}
