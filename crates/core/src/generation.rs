//! The fencing token of an execution, and the check that refuses a stale one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::ids::ExecutionId;

/// Grows by one with each pause, resume and restart of an execution; starts at one, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct ExecutionGeneration(u64);

impl ExecutionGeneration {
    /// The generation of an execution that was just created.
    pub const INITIAL: Self = Self(1);

    /// # Errors
    /// `InvalidRequest` for zero.
    pub fn new(value: u64) -> ExecutionManagerResult<Self> {
        if value == 0 {
            return Err(ExecutionManagerError::InvalidRequest(
                "execution generation must not be 0".to_owned(),
            ));
        }
        Ok(Self(value))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// The generation after this one.
    ///
    /// # Errors
    /// `Internal` when the counter is exhausted.
    pub fn next(self) -> ExecutionManagerResult<Self> {
        self.0.checked_add(1).map(Self).ok_or_else(|| {
            ExecutionManagerError::Internal("execution generation is exhausted".to_owned())
        })
    }
}

impl fmt::Display for ExecutionGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u64> for ExecutionGeneration {
    type Error = ExecutionManagerError;

    fn try_from(value: u64) -> ExecutionManagerResult<Self> {
        Self::new(value)
    }
}

impl From<ExecutionGeneration> for u64 {
    fn from(value: ExecutionGeneration) -> Self {
        value.0
    }
}

/// Refuses a call that was decided on another generation than the current one.
#[derive(Debug, Clone, Copy)]
pub struct Fence<'a> {
    execution_id: &'a ExecutionId,
    current: ExecutionGeneration,
}

impl<'a> Fence<'a> {
    pub const fn new(execution_id: &'a ExecutionId, current: ExecutionGeneration) -> Self {
        Self {
            execution_id,
            current,
        }
    }

    /// # Errors
    /// `Conflict`, naming both generations, unless `asked` is the current one.
    pub fn admit(&self, asked: ExecutionGeneration) -> ExecutionManagerResult<()> {
        if asked == self.current {
            return Ok(());
        }
        Err(ExecutionManagerError::Conflict {
            execution_id: self.execution_id.clone(),
            message: format!(
                "generation {asked} is not current, the execution is at generation {}",
                self.current
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_refused_and_the_rest_is_a_plain_number() {
        assert!(matches!(
            ExecutionGeneration::new(0),
            Err(ExecutionManagerError::InvalidRequest(_))
        ));
        assert!(serde_json::from_str::<ExecutionGeneration>("0").is_err());
        let generation: ExecutionGeneration = serde_json::from_str("7").unwrap();
        assert_eq!(generation.get(), 7);
        assert_eq!(serde_json::to_string(&generation).unwrap(), "7");
        assert_eq!(ExecutionGeneration::INITIAL.get(), 1);
    }

    #[test]
    fn next_grows_by_one_and_stops_at_the_end() {
        let next = ExecutionGeneration::INITIAL.next().unwrap();
        assert_eq!(next.get(), 2);
        assert!(next > ExecutionGeneration::INITIAL);
        let last = ExecutionGeneration::new(u64::MAX).unwrap();
        assert!(matches!(
            last.next(),
            Err(ExecutionManagerError::Internal(_))
        ));
    }

    #[test]
    fn only_the_current_generation_is_admitted() {
        let id = ExecutionId::new("e").unwrap();
        let two = ExecutionGeneration::new(2).unwrap();
        let fence = Fence::new(&id, two);
        fence.admit(two).unwrap();
        for stale in [1, 3] {
            let error = fence.admit(ExecutionGeneration::new(stale).unwrap());
            assert!(matches!(
                error,
                Err(ExecutionManagerError::Conflict { execution_id, .. }) if execution_id == id
            ));
        }
    }
}
