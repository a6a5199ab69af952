//! What is kept about an execution beside its configuration.

use serde::{Deserialize, Serialize};

use crate::log::LogConfig;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionRestartPolicy {
    #[default]
    No,
    Always,
    OnFailure,
    UnlessStopped,
}

impl ExecutionRestartPolicy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Always => "always",
            Self::OnFailure => "on-failure",
            Self::UnlessStopped => "unless-stopped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionHealthCheck {
    pub cmd: Vec<String>,
    #[serde(default = "default_interval_secs")]
    pub interval_secs: u64,
    #[serde(default = "default_timeout_secs")]
    pub timeout_secs: u64,
    #[serde(default = "default_retries")]
    pub retries: u32,
    #[serde(default)]
    pub start_period_secs: u64,
}

const fn default_interval_secs() -> u64 {
    30
}

const fn default_timeout_secs() -> u64 {
    5
}

const fn default_retries() -> u32 {
    3
}

/// Every field may be absent in the input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutionRecordPolicy {
    pub name: Option<String>,
    pub auto_remove: bool,
    pub restart_policy: ExecutionRestartPolicy,
    /// Zero is without limit.
    pub max_restart_count: u32,
    pub health_check: Option<ExecutionHealthCheck>,
    pub healthcheck_disabled: bool,
    pub log_config: LogConfig,
    pub volume_names: Vec<String>,
    pub platform: Option<String>,
    pub init: bool,
    pub devices: Vec<String>,
    pub gpus: Option<String>,
    /// Bytes.
    pub shm_size: Option<u64>,
    pub stop_signal: Option<String>,
    /// Seconds.
    pub stop_timeout: Option<u64>,
    pub oom_kill_disable: bool,
    pub oom_score_adj: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_policies_are_the_same_words_in_code_and_on_the_wire() {
        for (policy, word) in [
            (ExecutionRestartPolicy::No, "no"),
            (ExecutionRestartPolicy::Always, "always"),
            (ExecutionRestartPolicy::OnFailure, "on-failure"),
            (ExecutionRestartPolicy::UnlessStopped, "unless-stopped"),
        ] {
            assert_eq!(policy.as_str(), word);
            assert_eq!(serde_json::to_value(policy).unwrap(), word);
        }
        assert_eq!(ExecutionRestartPolicy::default().as_str(), "no");
    }

    #[test]
    fn an_empty_policy_is_the_default_and_has_seventeen_fields() {
        let policy: ExecutionRecordPolicy = serde_json::from_str("{}").unwrap();
        assert_eq!(policy, ExecutionRecordPolicy::default());
        let value = serde_json::to_value(&policy).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 17);
    }

    #[test]
    fn health_check_numbers_have_defaults() {
        let check: ExecutionHealthCheck = serde_json::from_str(r#"{"cmd":["true"]}"#).unwrap();
        assert_eq!(
            check,
            ExecutionHealthCheck {
                cmd: vec!["true".into()],
                interval_secs: 30,
                timeout_secs: 5,
                retries: 3,
                start_period_secs: 0,
            }
        );
        assert!(serde_json::from_str::<ExecutionHealthCheck>("{}").is_err());
    }
}
