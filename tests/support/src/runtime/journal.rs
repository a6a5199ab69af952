//! Effects by operation id.

use std::collections::BTreeMap;

use a3sbox_oci::{Error, ErrorCode, OperationContext, OperationId, Result};

/// First executions of one mutating verb.
#[derive(Debug)]
pub(super) struct Journal<R> {
    seen: BTreeMap<OperationId, usize>,
    effects: Vec<R>,
}

impl<R> Default for Journal<R> {
    fn default() -> Self {
        Self {
            seen: BTreeMap::new(),
            effects: Vec::new(),
        }
    }
}

impl<R: Clone + PartialEq> Journal<R> {
    /// True when this is the first execution; the same id with another request is refused.
    pub(super) fn admit(&mut self, context: &OperationContext, request: &R) -> Result<bool> {
        match self.seen.get(&context.operation_id) {
            Some(index) if self.effects[*index] == *request => Ok(false),
            Some(_) => Err(Error::new(
                ErrorCode::Conflict,
                format!("operation {} was a different request", context.operation_id),
            )),
            None => {
                self.seen
                    .insert(context.operation_id.clone(), self.effects.len());
                self.effects.push(request.clone());
                Ok(true)
            }
        }
    }

    pub(super) fn effects(&self) -> &[R] {
        &self.effects
    }
}
