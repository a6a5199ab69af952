//! The operations on a process's streams. They live as long as the streams: both end with the service.

use std::collections::VecDeque;

use a3sbox_oci::Error;

use crate::journal::{Operation, PastId, PastIds, conflict};

/// Most closes and resizes of one process that are remembered whole.
const MAX_STREAMED: usize = 64;

/// Of writes the last one is enough to tell a repetition: they go in one after the other, and who writes on has
/// its answer. Those before it are ids that refuse.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    last_written: Option<Operation>,
    recent: VecDeque<Operation>,
    past: PastIds,
}

impl Streamed {
    /// Whether the operation was carried out. `Conflict` when its id was used for another one.
    pub(super) fn has(&self, operation: &Operation) -> Result<bool, Error> {
        let known = self
            .last_written
            .iter()
            .chain(&self.recent)
            .find(|known| known.id == operation.id);
        match known {
            Some(known) if known == operation => Ok(true),
            Some(_) => Err(conflict(&operation.id)),
            None => self.past.refuse_operation(&operation.id).map(|()| false),
        }
    }

    pub(super) fn remember_written(&mut self, operation: Operation) {
        if let Some(before) = self.last_written.replace(operation) {
            self.past.add(PastId::operation(&before.id));
        }
    }

    pub(super) fn remember(&mut self, operation: Operation) {
        if self.recent.len() == MAX_STREAMED
            && let Some(before) = self.recent.pop_front()
        {
            self.past.add(PastId::operation(&before.id));
        }
        self.recent.push_back(operation);
    }
}

#[cfg(test)]
mod tests {
    use a3sbox_oci::{ErrorCode, OperationId};

    use super::*;
    use crate::journal::RequestDigest;

    fn write(number: usize, content: &str) -> Operation {
        Operation {
            id: OperationId::new(format!("w-{number}")).unwrap(),
            digest: RequestDigest::of("write-stdin", &content).unwrap(),
        }
    }

    #[test]
    fn the_last_write_is_known_and_earlier_ones_are_refused() {
        let mut streamed = Streamed::default();
        for number in 0..100_000 {
            assert!(!streamed.has(&write(number, "x")).unwrap());
            streamed.remember_written(write(number, "x"));
        }
        assert!(streamed.has(&write(99_999, "x")).unwrap());
        let other = streamed.has(&write(99_999, "y")).unwrap_err();
        assert_eq!(other.code, ErrorCode::Conflict);
        let late = streamed.has(&write(99_998, "x")).unwrap_err();
        assert_eq!(late.code, ErrorCode::FailedPrecondition);
        assert!(streamed.recent.is_empty());
    }
}
