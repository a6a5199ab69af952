//! What all clones of a handle, its commands and its files share.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionIsolation, ExecutionState};

use crate::client::{A3sBoxClient, ClientError, Result};

/// What the handle knows; the manager may know better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) generation: ExecutionGeneration,
    pub(crate) state: ExecutionState,
    pub(crate) closed: bool,
}

pub(crate) struct Shared {
    pub(crate) client: A3sBoxClient,
    pub(crate) execution_id: ExecutionId,
    pub(crate) isolation: ExecutionIsolation,
    known: Mutex<Known>,
}

impl Shared {
    pub(crate) fn new(
        client: A3sBoxClient,
        execution_id: ExecutionId,
        isolation: ExecutionIsolation,
        generation: ExecutionGeneration,
        state: ExecutionState,
    ) -> Self {
        Self {
            client,
            execution_id,
            isolation,
            known: Mutex::new(Known {
                generation,
                state,
                closed: false,
            }),
        }
    }

    pub(crate) fn known(&self) -> Known {
        *self.lock()
    }

    /// Takes over what an answer of the manager says. Generations only grow, so an answer with a smaller
    /// one is the late answer to a call that another clone has overtaken, and is dropped.
    pub(crate) fn learn(&self, generation: ExecutionGeneration, state: ExecutionState) {
        let mut known = self.lock();
        if generation >= known.generation {
            known.generation = generation;
            known.state = state;
        }
    }

    /// The sandbox is gone for good; the last generation stays for those who ask.
    pub(crate) fn close(&self) {
        let mut known = self.lock();
        known.closed = true;
        known.state = ExecutionState::Stopped;
    }

    /// The current generation, unless the handle is closed.
    pub(crate) fn open(&self) -> Result<ExecutionGeneration> {
        let known = self.known();
        if known.closed {
            return Err(ClientError::Validation(format!(
                "sandbox {} was removed",
                self.execution_id
            )));
        }
        Ok(known.generation)
    }

    /// The current generation, if the sandbox is in one of `states` as far as the handle knows.
    pub(crate) fn in_state(
        &self,
        verb: &str,
        states: &[ExecutionState],
    ) -> Result<ExecutionGeneration> {
        let generation = self.open()?;
        let state = self.known().state;
        if states.contains(&state) {
            return Ok(generation);
        }
        Err(ClientError::Validation(format!(
            "sandbox {} is {state:?}: {verb} needs it {}",
            self.execution_id,
            states
                .iter()
                .map(|state| format!("{state:?}"))
                .collect::<Vec<_>>()
                .join(" or ")
        )))
    }

    pub(crate) fn running(&self, verb: &str) -> Result<ExecutionGeneration> {
        self.in_state(verb, &[ExecutionState::Running])
    }

    /// No code runs under this lock that could panic, and the value is whole at any time.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("execution_id", &self.execution_id)
            .field("isolation", &self.isolation)
            .field("known", &self.known())
            .finish_non_exhaustive()
    }
}
