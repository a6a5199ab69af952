//! The configuration of one execution.
//!
//! Settings that no backend of this product can honour (trusted execution, image cache, warm pool,
//! sidecars, memory snapshots) have no field here, so that asking for them cannot look like success.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::isolation::ExecutionIsolation;
use crate::network::NetworkMode;

pub use crate::limits::{DEFAULT_VCPUS, MAX_VCPUS};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceConfig {
    pub vcpus: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
    /// Seconds; zero is without limit.
    pub timeout: u64,
}

impl Default for ResourceConfig {
    fn default() -> Self {
        Self {
            vcpus: DEFAULT_VCPUS,
            memory_mb: 1024,
            disk_mb: 4096,
            timeout: 3600,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceLimits {
    pub pids_limit: Option<u64>,
    pub cpuset_cpus: Option<String>,
    /// `NAME=SOFT:HARD`.
    pub ulimits: Vec<String>,
    pub cpu_shares: Option<u64>,
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub memory_reservation: Option<u64>,
    /// -1 is without limit.
    pub memory_swap: Option<i64>,
    pub sandbox_memory_limit_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BoxConfig {
    #[serde(default)]
    pub isolation: ExecutionIsolation,
    #[serde(default)]
    pub image: String,
    /// Empty lets the runtime choose.
    pub workspace: PathBuf,
    pub resources: ResourceConfig,
    pub log_level: LogLevel,
    pub debug_grpc: bool,
    #[serde(default)]
    pub cmd: Vec<String>,
    #[serde(default)]
    pub entrypoint_override: Option<Vec<String>>,
    #[serde(default)]
    pub stdin_open: bool,
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub workdir: Option<String>,
    #[serde(default)]
    pub hostname: Option<String>,
    /// `host:guest`, with `:ro` or `:rw` at the end where it is said.
    #[serde(default)]
    pub volumes: Vec<String>,
    #[serde(default)]
    pub extra_env: Vec<(String, String)>,
    /// `host:guest`.
    #[serde(default)]
    pub port_map: Vec<String>,
    #[serde(default)]
    pub dns: Vec<String>,
    /// `HOST:IP`.
    #[serde(default)]
    pub add_hosts: Vec<String>,
    #[serde(default)]
    pub network: NetworkMode,
    #[serde(default)]
    pub tmpfs: Vec<String>,
    #[serde(default)]
    pub resource_limits: ResourceLimits,
    #[serde(default)]
    pub cap_add: Vec<String>,
    #[serde(default)]
    pub cap_drop: Vec<String>,
    #[serde(default)]
    pub security_opt: Vec<String>,
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    #[serde(default)]
    pub privileged: bool,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub persistent: bool,
    #[serde(default)]
    pub virtiofs_cache: Option<String>,
}

/// # Errors
/// A text for people when the count is outside 1..=255.
pub fn validate_vcpu_count(count: u32) -> Result<(), String> {
    if (1..=MAX_VCPUS).contains(&count) {
        Ok(())
    } else {
        Err(format!("vCPU count {count} is outside 1..={MAX_VCPUS}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_fields_are_required_on_input_and_the_rest_has_defaults() {
        let required = serde_json::json!({
            "workspace": "",
            "resources": {"vcpus": 1, "memory_mb": 64, "disk_mb": 10, "timeout": 0},
            "log_level": "Info",
            "debug_grpc": false,
        });
        let config: BoxConfig = serde_json::from_value(required.clone()).unwrap();
        assert_eq!(config.resources.vcpus, 1);
        assert_eq!(config.network, NetworkMode::Tsi);
        assert!(config.isolation == ExecutionIsolation::Microvm);
        for key in ["workspace", "resources", "log_level", "debug_grpc"] {
            let mut value = required.clone();
            value.as_object_mut().unwrap().remove(key);
            assert!(serde_json::from_value::<BoxConfig>(value).is_err(), "{key}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let resources = BoxConfig::default().resources;
        assert_eq!(
            resources,
            ResourceConfig {
                vcpus: 2,
                memory_mb: 1024,
                disk_mb: 4096,
                timeout: 3600
            }
        );
        let limits: ResourceLimits = serde_json::from_str("{}").unwrap();
        assert_eq!(limits, ResourceLimits::default());
        assert_eq!(serde_json::to_value(LogLevel::Warn).unwrap(), "Warn");
        assert_eq!(
            serde_json::to_value(ExecutionIsolation::Sandbox).unwrap(),
            "sandbox"
        );
    }

    #[test]
    fn vcpu_counts_are_bounded_on_both_sides() {
        for (count, good) in [(0, false), (1, true), (255, true), (256, false)] {
            assert_eq!(validate_vcpu_count(count).is_ok(), good, "{count}");
        }
    }
}
