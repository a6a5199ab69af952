//! The requests that one served connection has in flight.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// The requests in flight, and how to end those that only look.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<HashMap<u64, Option<AbortHandle>>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Option<AbortHandle>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False when the id is in use.
    pub(super) fn enter(&self, id: u64) -> bool {
        match self.lock().entry(id) {
            Entry::Vacant(place) => {
                place.insert(None);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub(super) fn may_end(&self, id: u64, handle: AbortHandle) {
        // It may have left already.
        if let Some(entry) = self.lock().get_mut(&id) {
            *entry = Some(handle);
        }
    }

    pub(super) fn cancel(&self, id: u64) {
        if let Some(Some(handle)) = self.lock().get(&id) {
            handle.abort();
        }
    }

    pub(super) fn leave(&self, id: u64) {
        self.lock().remove(&id);
    }
}

/// Ends every request that may end.
pub(super) struct EndOnDrop<'a>(pub(super) &'a Running);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        for handle in self.0.lock().drain().filter_map(|(_, handle)| handle) {
            handle.abort();
        }
    }
}
