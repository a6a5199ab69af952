//! A change of limits while an execution lives.

use serde::{Deserialize, Serialize};

use crate::config::ResourceLimits;
use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::limits::{CPU_SHARES, MAX_CPU_NUMBER};

/// What is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionResourceUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_reservation: Option<u64>,
    /// -1 is without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_period: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset_cpus: Option<String>,
}

impl ExecutionResourceUpdate {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// # Errors
    /// `InvalidRequest` for an update that changes nothing or has a value that no kernel accepts.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        if self.is_empty() {
            return refuse("resource update changes nothing".to_owned());
        }
        if let Some(swap) = self.memory_swap.filter(|swap| *swap < -1) {
            return refuse(format!("memory_swap {swap} is below -1"));
        }
        if self.pids_limit == Some(0) {
            return refuse("pids_limit must not be 0".to_owned());
        }
        if let Some(shares) = self
            .cpu_shares
            .filter(|shares| !CPU_SHARES.contains(shares))
        {
            return refuse(format!(
                "cpu_shares {shares} is outside {}..={}",
                CPU_SHARES.start(),
                CPU_SHARES.end()
            ));
        }
        if let Some(quota) = self.cpu_quota.filter(|quota| *quota <= 0) {
            return refuse(format!("cpu_quota {quota} is not positive"));
        }
        if self.cpu_period == Some(0) {
            return refuse("cpu_period must not be 0".to_owned());
        }
        match self.cpuset_cpus.as_deref() {
            Some(cpuset) => check_cpuset(cpuset),
            None => Ok(()),
        }
    }

    /// Writes what is named over `limits`.
    pub fn apply_to(&self, limits: &mut ResourceLimits) {
        fn set<T: Clone>(target: &mut Option<T>, value: &Option<T>) {
            if value.is_some() {
                target.clone_from(value);
            }
        }
        set(&mut limits.memory_reservation, &self.memory_reservation);
        set(&mut limits.memory_swap, &self.memory_swap);
        set(&mut limits.pids_limit, &self.pids_limit);
        set(&mut limits.cpu_shares, &self.cpu_shares);
        set(&mut limits.cpu_quota, &self.cpu_quota);
        set(&mut limits.cpu_period, &self.cpu_period);
        set(&mut limits.cpuset_cpus, &self.cpuset_cpus);
    }
}

fn refuse(message: String) -> ExecutionManagerResult<()> {
    Err(ExecutionManagerError::InvalidRequest(message))
}

/// The kernel's list form: numbers and ascending ranges, separated by commas.
fn check_cpuset(cpuset: &str) -> ExecutionManagerResult<()> {
    for part in cpuset.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (cpu_number(first), cpu_number(last)) else {
            return refuse(format!("cpuset_cpus {cpuset:?} is malformed"));
        };
        if first > last {
            return refuse(format!("cpuset_cpus {cpuset:?} has a descending range"));
        }
    }
    Ok(())
}

fn cpu_number(text: &str) -> Option<u32> {
    // A sign would parse too, and the kernel refuses it.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| *number <= MAX_CPU_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(change: fn(&mut ExecutionResourceUpdate)) -> ExecutionResourceUpdate {
        let mut update = ExecutionResourceUpdate::default();
        change(&mut update);
        update
    }

    #[test]
    fn values_at_the_edge_are_accepted() {
        let good: [fn(&mut ExecutionResourceUpdate); 12] = [
            |u| u.memory_reservation = Some(0),
            |u| u.memory_swap = Some(-1),
            |u| u.memory_swap = Some(0),
            |u| u.pids_limit = Some(1),
            |u| u.cpu_shares = Some(2),
            |u| u.cpu_shares = Some(262_144),
            |u| u.cpu_quota = Some(1),
            |u| u.cpu_period = Some(1),
            |u| u.cpuset_cpus = Some("0".into()),
            |u| u.cpuset_cpus = Some("0-3".into()),
            |u| u.cpuset_cpus = Some("0-0,2,4-7".into()),
            |u| u.cpuset_cpus = Some("5,1".into()),
        ];
        for (index, change) in good.into_iter().enumerate() {
            assert!(update(change).validate().is_ok(), "case {index}");
        }
    }

    #[test]
    fn values_that_no_kernel_accepts_are_invalid() {
        let bad: [fn(&mut ExecutionResourceUpdate); 18] = [
            |_| (),
            |u| u.memory_swap = Some(-2),
            |u| u.pids_limit = Some(0),
            |u| u.cpu_shares = Some(1),
            |u| u.cpu_shares = Some(262_145),
            |u| u.cpu_quota = Some(0),
            |u| u.cpu_quota = Some(-1),
            |u| u.cpu_period = Some(0),
            |u| u.cpuset_cpus = Some(String::new()),
            |u| u.cpuset_cpus = Some(" ".into()),
            |u| u.cpuset_cpus = Some("a".into()),
            |u| u.cpuset_cpus = Some("1,".into()),
            |u| u.cpuset_cpus = Some("-1".into()),
            |u| u.cpuset_cpus = Some("1-".into()),
            |u| u.cpuset_cpus = Some("+1".into()),
            |u| u.cpuset_cpus = Some("1-2-3".into()),
            |u| u.cpuset_cpus = Some("99999999999".into()),
            |u| u.cpuset_cpus = Some("3-1".into()),
        ];
        for (index, change) in bad.into_iter().enumerate() {
            assert!(
                matches!(
                    update(change).validate(),
                    Err(ExecutionManagerError::InvalidRequest(_))
                ),
                "case {index}"
            );
        }
    }

    #[test]
    fn only_named_values_are_written_over() {
        let mut limits = ResourceLimits {
            pids_limit: Some(10),
            cpu_quota: Some(5),
            ulimits: vec!["nofile=1:2".into()],
            ..ResourceLimits::default()
        };
        let update = ExecutionResourceUpdate {
            memory_reservation: Some(1),
            memory_swap: Some(-1),
            pids_limit: Some(20),
            cpu_shares: Some(3),
            cpu_period: Some(4),
            cpuset_cpus: Some("0".into()),
            cpu_quota: None,
        };
        update.apply_to(&mut limits);
        assert_eq!(
            limits,
            ResourceLimits {
                pids_limit: Some(20),
                cpuset_cpus: Some("0".into()),
                ulimits: vec!["nofile=1:2".into()],
                cpu_shares: Some(3),
                cpu_quota: Some(5),
                cpu_period: Some(4),
                memory_reservation: Some(1),
                memory_swap: Some(-1),
                sandbox_memory_limit_bytes: None,
            }
        );
    }

    #[test]
    fn nothing_is_written_for_what_is_none() {
        let value = serde_json::to_value(update(|u| u.pids_limit = Some(1))).unwrap();
        assert_eq!(value, serde_json::json!({"pids_limit": 1}));
        let empty: ExecutionResourceUpdate = serde_json::from_str("{}").unwrap();
        assert!(empty.is_empty());
    }
}
