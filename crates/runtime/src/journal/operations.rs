//! The operations that were carried out, so that a repeated request finds its outcome.

use std::collections::VecDeque;

use a3sbox_oci::{Error, ErrorCode, OperationId};

use super::entry::Operation;
use crate::owner::state::Status;

/// Most operations that are remembered of one container, and of one added process. The oldest is
/// forgotten first; a caller repeats an operation within seconds, not after hundreds of later ones.
pub(crate) const MAX_REMEMBERED_OPERATIONS: usize = 256;

/// Operations with the state of the container that each answered with.
#[derive(Debug, Default)]
pub(crate) struct Operations(VecDeque<(Operation, Status)>);

impl Operations {
    /// The outcome of the same request; `None` when the operation is new.
    ///
    /// The id with another content is a `Conflict`: its caller reuses ids, and nothing may be done.
    pub(crate) fn find(&self, operation: &Operation) -> Result<Option<Status>, Error> {
        let Some((known, status)) = self.0.iter().find(|(known, _)| known.id == operation.id)
        else {
            return Ok(None);
        };
        if known.digest == operation.digest {
            Ok(Some(*status))
        } else {
            Err(conflict(&operation.id))
        }
    }

    pub(crate) fn remember(&mut self, operation: Operation, status: Status) {
        if self.0.len() == MAX_REMEMBERED_OPERATIONS {
            self.0.pop_front();
        }
        self.0.push_back((operation, status));
    }

    pub(crate) fn forget(&mut self, id: &OperationId) {
        self.0.retain(|(known, _)| known.id != *id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Operation, Status)> {
        self.0.iter()
    }
}

pub(crate) fn conflict(id: &OperationId) -> Error {
    Error::new(
        ErrorCode::Conflict,
        format!("operation id {id} was used with another request"),
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
        operations.remember(operation(1, "a"), Status::Running);
        assert_eq!(
            operations.find(&operation(1, "a")).unwrap(),
            Some(Status::Running)
        );
        assert_eq!(operations.find(&operation(2, "a")).unwrap(), None);
        let error = operations.find(&operation(1, "b")).unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
    }

    #[test]
    fn memory_stays_bounded() {
        let mut operations = Operations::default();
        for id in 0..MAX_REMEMBERED_OPERATIONS + 10 {
            operations.remember(operation(id, ""), Status::Running);
        }
        assert_eq!(operations.iter().count(), MAX_REMEMBERED_OPERATIONS);
        assert_eq!(operations.find(&operation(0, "")).unwrap(), None);
    }
}
