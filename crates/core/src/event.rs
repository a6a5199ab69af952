//! What happened in an execution, in order, behind a cursor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::generation::ExecutionGeneration;
use crate::ids::ExecutionId;
use crate::limits::MAX_EXECUTION_EVENT_BATCH_ITEMS;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionEventsRequest {
    /// Zero for all that are kept.
    pub after_sequence: u64,
    pub limit: u32,
    /// How long to wait for a first event; not at all when none.
    #[serde(default)]
    pub wait_timeout_ms: Option<u64>,
}

impl ExecutionEventsRequest {
    /// # Errors
    /// `InvalidRequest` for a limit outside 1..=4096.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        if (1..=MAX_EXECUTION_EVENT_BATCH_ITEMS).contains(&self.limit) {
            return Ok(());
        }
        Err(ExecutionManagerError::InvalidRequest(format!(
            "event limit {} is outside 1..={MAX_EXECUTION_EVENT_BATCH_ITEMS}",
            self.limit
        )))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionEventKind {
    ContainerCreating,
    ContainerCreated,
    ContainerStarted,
    ContainerStopped,
    ContainerDeleted,
    ContainerPaused,
    ContainerResumed,
    ResourcesUpdated,
    ProcessCreated,
    ProcessStarted,
    ProcessExited,
    OutputDropped,
    RuntimeWarning,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionRuntimeEvent {
    pub sequence: u64,
    pub timestamp_unix_ns: u64,
    #[serde(default)]
    pub process_id: Option<String>,
    pub kind: ExecutionEventKind,
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionEventBatch {
    pub execution_id: ExecutionId,
    pub generation: ExecutionGeneration,
    pub events: Vec<ExecutionRuntimeEvent>,
    /// The cursor to ask with next.
    pub next_sequence: u64,
}

impl ExecutionEventBatch {
    /// Checks the answer to a request that asked for what comes after `after_sequence`.
    ///
    /// # Errors
    /// `Internal`, as it is an answer that contradicts itself: sequences that do not rise strictly
    /// above the cursor, or a cursor that moves back or behind the events it was sent with.
    pub fn validate_after(&self, after_sequence: u64) -> ExecutionManagerResult<()> {
        let mut last = after_sequence;
        for event in &self.events {
            if event.sequence <= last {
                return Err(self.contradiction(&format!(
                    "sequence {} does not rise above {last}",
                    event.sequence
                )));
            }
            last = event.sequence;
        }
        if self.next_sequence < last {
            return Err(
                self.contradiction(&format!("cursor {} is behind {last}", self.next_sequence))
            );
        }
        Ok(())
    }

    fn contradiction(&self, fault: &str) -> ExecutionManagerError {
        ExecutionManagerError::Internal(format!(
            "event batch of execution {}: {fault}",
            self.execution_id
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sequences: &[u64], next_sequence: u64) -> ExecutionEventBatch {
        ExecutionEventBatch {
            execution_id: ExecutionId::new("e").unwrap(),
            generation: ExecutionGeneration::INITIAL,
            events: sequences
                .iter()
                .map(|sequence| ExecutionRuntimeEvent {
                    sequence: *sequence,
                    timestamp_unix_ns: 1,
                    process_id: None,
                    kind: ExecutionEventKind::ProcessExited,
                    attributes: BTreeMap::new(),
                })
                .collect(),
            next_sequence,
        }
    }

    #[test]
    fn limits_are_bounded_on_both_sides() {
        for (limit, good) in [(0, false), (1, true), (4096, true), (4097, false)] {
            let request = ExecutionEventsRequest {
                after_sequence: 0,
                limit,
                wait_timeout_ms: None,
            };
            match request.validate() {
                Ok(()) => assert!(good, "{limit}"),
                Err(ExecutionManagerError::InvalidRequest(_)) => assert!(!good, "{limit}"),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sequences_rise_strictly_above_the_cursor_and_the_cursor_never_moves_back() {
        for (sequences, next, after, good) in [
            (&[][..], 0, 0, true),
            (&[], 7, 7, true),
            (&[], 9, 7, true),
            (&[], 6, 7, false),
            (&[8, 9, 12], 12, 7, true),
            (&[8, 9, 12], 11, 7, false),
            (&[7], 7, 7, false),
            (&[8, 8], 8, 7, false),
            (&[9, 8], 9, 7, false),
        ] {
            let result = batch(sequences, next).validate_after(after);
            assert_eq!(result.is_ok(), good, "{sequences:?} {next} {after}");
        }
    }

    #[test]
    fn kinds_are_kebab_case() {
        let value = serde_json::to_value(ExecutionEventKind::ContainerCreating).unwrap();
        assert_eq!(value, "container-creating");
    }
}
