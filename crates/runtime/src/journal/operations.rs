//! The operations that were carried out, so that a repeated request finds its outcome.

use std::collections::VecDeque;

use a3sbox_oci::{Error, ErrorCode, OperationId};

use super::entry::Operation;
use crate::owner::state::Status;

/// Most operations that are remembered whole of one container, and of one added process. The oldest shrinks
/// to its id first; a caller repeats an operation within seconds, not after hundreds of later ones.
pub(crate) const MAX_REMEMBERED_OPERATIONS: usize = 256;
/// Most starts and signals of a container: they stay as long as it does, and nothing else displaces them. A
/// program that is signalled for ever has its oldest signals shrink to their ids all the same.
pub(crate) const MAX_LASTING_OPERATIONS: usize = 1024;

/// How long an operation is remembered whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Until others have come after it.
    Recent,
    /// As long as the container.
    Lasting,
}

/// Operations with the state of the container that each answered with.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    recent: VecDeque<(Operation, Status)>,
    lasting: VecDeque<(Operation, Status)>,
}

impl Operations {
    /// The outcome of the same request; `None` when the operation is new.
    ///
    /// The id with another content is a `Conflict`: its caller reuses ids, and nothing may be done.
    pub(crate) fn find(&self, operation: &Operation) -> Result<Option<Status>, Error> {
        let Some((known, status, _)) = self.iter().find(|(known, ..)| known.id == operation.id)
        else {
            return Ok(None);
        };
        if known.digest == operation.digest {
            Ok(Some(status))
        } else {
            Err(conflict(&operation.id))
        }
    }

    /// Adds an operation. What it displaces shrinks to its id, which the caller keeps.
    pub(crate) fn remember(
        &mut self,
        operation: Operation,
        status: Status,
        keep: Keep,
    ) -> Option<OperationId> {
        let (queue, most) = match keep {
            Keep::Recent => (&mut self.recent, MAX_REMEMBERED_OPERATIONS),
            Keep::Lasting => (&mut self.lasting, MAX_LASTING_OPERATIONS),
        };
        let displaced = if queue.len() == most {
            queue.pop_front()
        } else {
            None
        };
        queue.push_back((operation, status));
        displaced.map(|(operation, _)| operation.id)
    }

    pub(crate) fn forget(&mut self, id: &OperationId) {
        self.recent.retain(|(known, _)| known.id != *id);
        self.lasting.retain(|(known, _)| known.id != *id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Operation, Status, Keep)> {
        let lasting = self
            .lasting
            .iter()
            .map(|(operation, status)| (operation, *status, Keep::Lasting));
        let recent = self
            .recent
            .iter()
            .map(|(operation, status)| (operation, *status, Keep::Recent));
        lasting.chain(recent)
    }
}

pub(crate) fn conflict(id: &OperationId) -> Error {
    Error::new(
        ErrorCode::Conflict,
        format!("operation id {id} was used with a different request"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::RequestDigest;

    fn operation(id: usize, content: &str) -> Operation {
        Operation {
            id: OperationId::new(format!("op-{id}")).unwrap(),
            digest: RequestDigest::of("kill", &content).unwrap(),
        }
    }

    #[test]
    fn same_request_is_found_and_other_content_is_a_conflict() {
        let mut operations = Operations::default();
        operations.remember(operation(1, "a"), Status::Running, Keep::Recent);
        assert_eq!(
            operations.find(&operation(1, "a")).unwrap(),
            Some(Status::Running)
        );
        assert_eq!(operations.find(&operation(2, "a")).unwrap(), None);
        let error = operations.find(&operation(1, "b")).unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
    }

    #[test]
    fn memory_stays_bounded_and_starts_are_not_displaced() {
        let mut operations = Operations::default();
        let start = operation(9_999, "start");
        operations.remember(start.clone(), Status::Running, Keep::Lasting);
        for id in 0..MAX_REMEMBERED_OPERATIONS + 10 {
            let displaced = operations.remember(operation(id, ""), Status::Running, Keep::Recent);
            let expected = id
                .checked_sub(MAX_REMEMBERED_OPERATIONS)
                .map(|id| operation(id, "").id);
            assert_eq!(displaced, expected);
        }
        assert_eq!(operations.iter().count(), MAX_REMEMBERED_OPERATIONS + 1);
        assert_eq!(operations.find(&operation(0, "")).unwrap(), None);
        assert_eq!(operations.find(&start).unwrap(), Some(Status::Running));
    }
}
