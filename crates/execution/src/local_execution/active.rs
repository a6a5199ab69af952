//! Which executions this process is working on right now.
//!
//! A record in a transitional state is either under way here, or was left by a crash, a failed effect or
//! another process. Only the second kind may be settled by looking at the backend: a start that has not
//! reached the runtime yet looks exactly like one that never will.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use a3sbox_core::ExecutionId;

#[derive(Debug, Clone, Default)]
pub(super) struct Active {
    counts: Arc<Mutex<HashMap<ExecutionId, usize>>>,
}

/// Marks the execution as being worked on until it is dropped.
#[derive(Debug)]
pub(super) struct Working {
    active: Active,
    execution_id: ExecutionId,
}

impl Active {
    pub(super) fn enter(&self, execution_id: &ExecutionId) -> Working {
        *self.lock().entry(execution_id.clone()).or_insert(0) += 1;
        Working {
            active: self.clone(),
            execution_id: execution_id.clone(),
        }
    }

    pub(super) fn contains(&self, execution_id: &ExecutionId) -> bool {
        self.lock().contains_key(execution_id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ExecutionId, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut counts = self.active.lock();
        if let Some(count) = counts.get_mut(&self.execution_id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.execution_id);
            }
        }
    }
}
