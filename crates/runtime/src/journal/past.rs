//! What is left of operations that can no longer be replayed: that they happened.
//!
//! A repetition that comes so late is refused. Running it again would be a second effect, and its outcome is
//! no longer known.

use std::collections::{HashSet, VecDeque};

use a3sbox_oci::{Error, ErrorCode, OperationId, ProcessId};
use sha2::{Digest as _, Sha256};

/// Most ids that are kept of one container; the oldest goes first. An exec leaves one when it is deleted, a
/// session two, its operation's and its process's, when it expires.
pub(crate) const MAX_PAST_IDS: usize = 2048;
/// Ids of one journal line.
const LINE_IDS: usize = 256;
const ID_DIGITS: usize = 16;

/// The first eight bytes of a digest: of 2,048 ids a stranger's is taken for one of them once in 10^16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PastId(u64);

impl PastId {
    pub(crate) fn operation(id: &OperationId) -> Self {
        Self::of("operation", id.as_str())
    }

    pub(crate) fn process(id: &ProcessId) -> Self {
        Self::of("process", id.as_str())
    }

    fn of(kind: &str, id: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(kind.as_bytes());
        hash.update([0]);
        hash.update(id.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(u64::from_be_bytes(first))
    }
}

/// A window of ids, newest last.
#[derive(Debug, Default)]
pub(crate) struct PastIds {
    order: VecDeque<PastId>,
    known: HashSet<PastId>,
}

impl PastIds {
    pub(crate) fn add(&mut self, id: PastId) {
        if !self.known.insert(id) {
            return;
        }
        if self.order.len() == MAX_PAST_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(id);
    }

    pub(crate) fn contains(&self, id: PastId) -> bool {
        self.known.contains(&id)
    }

    /// Refuses an operation whose outcome is no longer known.
    pub(crate) fn refuse_operation(&self, id: &OperationId) -> Result<(), Error> {
        if self.contains(PastId::operation(id)) {
            return Err(too_late(&format!("operation id {id}")));
        }
        Ok(())
    }

    /// Refuses a process id whose session has expired.
    pub(crate) fn refuse_process(&self, id: &ProcessId) -> Result<(), Error> {
        if self.contains(PastId::process(id)) {
            return Err(too_late(&format!("process id {id}")));
        }
        Ok(())
    }

    /// All of them as journal lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        let ids: Vec<String> = self
            .order
            .iter()
            .map(|id| format!("{:0ID_DIGITS$x}", id.0))
            .collect();
        ids.chunks(LINE_IDS).map(|ids| ids.concat()).collect()
    }

    /// Reads a line back. `None` when it is none, and nothing of it is taken.
    pub(crate) fn add_line(&mut self, line: &str) -> Option<()> {
        for id in Self::parse(line)? {
            self.add(id);
        }
        Some(())
    }

    pub(crate) fn parse(line: &str) -> Option<Vec<PastId>> {
        if !line.bytes().all(|byte| byte.is_ascii_hexdigit())
            || !line.len().is_multiple_of(ID_DIGITS)
        {
            return None;
        }
        (0..line.len() / ID_DIGITS)
            .map(|at| &line[at * ID_DIGITS..(at + 1) * ID_DIGITS])
            .map(|digits| u64::from_str_radix(digits, 16).ok().map(PastId))
            .collect()
    }
}

fn too_late(what: &str) -> Error {
    Error::new(
        ErrorCode::FailedPrecondition,
        format!("{what} was carried out too long ago to be answered again, and is not run again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> PastId {
        PastId::operation(&OperationId::new(format!("op-{number}")).unwrap())
    }

    #[test]
    fn the_window_of_ids_has_a_count_and_survives_the_journal() {
        let mut past = PastIds::default();
        for number in 0..MAX_PAST_IDS + 10 {
            past.add(id(number));
        }
        assert_eq!(past.order.len(), MAX_PAST_IDS);
        assert_eq!(past.known.len(), MAX_PAST_IDS);
        assert!(!past.contains(id(9)));
        assert!(past.contains(id(10)));
        let mut read = PastIds::default();
        for line in past.lines() {
            read.add_line(&line).unwrap();
        }
        assert_eq!(read.order, past.order);
        assert!(read.add_line("12").is_none());
        assert!(read.add_line("zz").is_none());
        let late = past
            .refuse_operation(&OperationId::new("op-10").unwrap())
            .unwrap_err();
        assert_eq!(late.code, ErrorCode::FailedPrecondition);
    }

    #[test]
    fn an_operation_and_a_process_of_one_name_are_two() {
        let operation = PastId::operation(&OperationId::new("a").unwrap());
        let process = PastId::process(&ProcessId::new("a").unwrap());
        assert_ne!(operation, process);
    }
}
