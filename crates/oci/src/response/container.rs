//! What a runtime says about a container and its processes.

use std::collections::BTreeMap;

use oci_spec::runtime::State;
use serde::{Deserialize, Serialize};

use crate::capability::{DriverKind, IsolationClass};
use crate::error::{Error, Result};
use crate::ids::{ContainerTarget, Generation, ProcessId, ProcessTarget};
use crate::limits::MAX_METRIC_NAME_CHARS;

/// Annotation of the OCI state that marks a paused container: paused is not an OCI status.
pub const PAUSED_STATE_ANNOTATION: &str = "dev.a3s.oci.runtime.paused";
/// Metric: bytes read from block devices.
pub const IO_READ_BYTES_METRIC: &str = "io.read_bytes";
/// Metric: bytes written to block devices.
pub const IO_WRITE_BYTES_METRIC: &str = "io.write_bytes";

/// A container as the runtime holds it, with the evidence of what it was created from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecord {
    pub state: State,
    pub generation: Generation,
    pub driver: DriverKind,
    pub isolation: IsolationClass,
    pub config_digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments_digest: Option<String>,
}

impl ContainerRecord {
    /// The paused annotation is there and says `true`.
    pub fn is_paused(&self) -> bool {
        self.state
            .annotations()
            .as_ref()
            .and_then(|annotations| annotations.get(PAUSED_STATE_ANNOTATION))
            .is_some_and(|value| value == "true")
    }
}

/// A process that the runtime was asked to run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRecord {
    pub target: ProcessTarget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub terminal: bool,
}

/// Any process of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuntimePid {
    pub pid: u32,
    /// Its id, when the runtime was asked to run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
}

/// Usage of one container at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStats {
    pub target: ContainerTarget,
    pub timestamp_unix_ns: u64,
    pub cpu: CpuStats,
    pub memory: MemoryStats,
    pub process_count: u64,
    /// Everything else that the cgroup tells, by name.
    #[serde(default)]
    pub metrics: BTreeMap<String, u64>,
}

/// Processor time used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuStats {
    pub usage_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub throttled_ns: u64,
}

/// Memory used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryStats {
    pub usage_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}

impl ContainerStats {
    /// Checks that the numbers can be true together.
    pub fn validate(&self) -> Result<()> {
        if self.timestamp_unix_ns == 0 {
            return Err(Error::invalid("statistics have no timestamp"));
        }
        let busy = self
            .cpu
            .user_ns
            .checked_add(self.cpu.system_ns)
            .ok_or_else(|| Error::invalid("user and system time overflow"))?;
        if busy > self.cpu.usage_ns {
            return Err(Error::invalid(
                "user and system time are more than the whole usage",
            ));
        }
        if self
            .memory
            .peak_bytes
            .is_some_and(|peak| peak < self.memory.usage_bytes)
        {
            return Err(Error::invalid("memory peak is below the usage"));
        }
        for name in self.metrics.keys() {
            let length = name.chars().count();
            if length == 0 || length > MAX_METRIC_NAME_CHARS {
                return Err(Error::invalid(format!(
                    "metric name must have 1 to {MAX_METRIC_NAME_CHARS} characters, it has {length}"
                )));
            }
            if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(Error::invalid(format!(
                    "metric name {name:?} has a control character or white space"
                )));
            }
        }
        Ok(())
    }
}
