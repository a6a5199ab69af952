//! One sample of an execution's resource use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::generation::ExecutionGeneration;
use crate::ids::ExecutionId;
use crate::limits::MAX_METRIC_NAME_BYTES;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionCpuStats {
    pub usage_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub throttled_ns: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionMemoryStats {
    pub usage_bytes: u64,
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    #[serde(default)]
    pub peak_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionStats {
    pub execution_id: ExecutionId,
    pub generation: ExecutionGeneration,
    pub timestamp_unix_ns: u64,
    pub cpu: ExecutionCpuStats,
    pub memory: ExecutionMemoryStats,
    pub process_count: u64,
    #[serde(default)]
    pub metrics: BTreeMap<String, u64>,
}

impl ExecutionStats {
    /// # Errors
    /// `Internal`, as it is an answer that contradicts itself: no time, more user and system time
    /// than use, a peak below the use, or a metric name that is empty, too long, or has spaces or
    /// control characters.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        let fault = if self.timestamp_unix_ns == 0 {
            Some("have no timestamp".to_owned())
        } else if self
            .cpu
            .user_ns
            .checked_add(self.cpu.system_ns)
            .is_none_or(|sum| sum > self.cpu.usage_ns)
        {
            Some("have more user and system time than CPU use".to_owned())
        } else if self
            .memory
            .peak_bytes
            .is_some_and(|peak| peak < self.memory.usage_bytes)
        {
            Some("have a memory peak below the use".to_owned())
        } else {
            self.metrics
                .keys()
                .find(|name| !is_metric_name(name))
                .map(|name| format!("have a metric named {name:?}"))
        };
        match fault {
            None => Ok(()),
            Some(fault) => Err(ExecutionManagerError::Internal(format!(
                "stats of execution {} {fault}",
                self.execution_id
            ))),
        }
    }
}

fn is_metric_name(name: &str) -> bool {
    (1..=MAX_METRIC_NAME_BYTES).contains(&name.len())
        && !name.chars().any(|c| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ExecutionStats {
        ExecutionStats {
            execution_id: ExecutionId::new("e").unwrap(),
            generation: ExecutionGeneration::INITIAL,
            timestamp_unix_ns: 1,
            cpu: ExecutionCpuStats {
                usage_ns: 30,
                user_ns: 10,
                system_ns: 20,
                throttled_ns: 0,
            },
            memory: ExecutionMemoryStats {
                usage_bytes: 5,
                limit_bytes: None,
                peak_bytes: Some(5),
            },
            process_count: 1,
            metrics: BTreeMap::from([("memory.stat.anon".to_owned(), 1), ("x".repeat(256), 2)]),
        }
    }

    #[test]
    fn a_consistent_sample_is_accepted() {
        sample().validate().unwrap();
        let mut unknown_peak = sample();
        unknown_peak.memory.peak_bytes = None;
        unknown_peak.validate().unwrap();
    }

    #[test]
    fn a_sample_that_contradicts_itself_is_internal() {
        let faults: [fn(&mut ExecutionStats); 8] = [
            |s| s.timestamp_unix_ns = 0,
            |s| s.cpu.usage_ns = 29,
            |s| s.cpu.user_ns = u64::MAX,
            |s| s.memory.peak_bytes = Some(4),
            |s| s.metrics.extend([(String::new(), 1)]),
            |s| s.metrics.extend([("x".repeat(257), 1)]),
            |s| s.metrics.extend([("a b".into(), 1)]),
            |s| s.metrics.extend([("a\u{7}".into(), 1)]),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            let mut stats = sample();
            fault(&mut stats);
            assert!(
                matches!(stats.validate(), Err(ExecutionManagerError::Internal(_))),
                "fault {index}"
            );
        }
    }
}
