//! The containers of one service, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use a3sbox_oci::{ContainerId, ContainerTarget, Error, ErrorCode, Generation};

use super::state::Status;
use super::{Container, Turn};
use crate::error::RuntimeError;
use crate::journal::{Keep, Operation, Operations};
use crate::native::reaper::now_unix_ns;

#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    containers: HashMap<ContainerId, Arc<Container>>,
    last_generation: u64,
    /// The latest deletes of this service.
    deleted: Operations,
}

impl Registry {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A generation that no container of this service has had. It grows with the clock, so that it is
    /// fresh after a restart as well; a clock that was set back is outrun by what is on disk.
    pub(crate) fn next_generation(&self) -> Generation {
        let mut inner = self.inner();
        let generation = (now_unix_ns() / 1_000).max(inner.last_generation + 1);
        inner.last_generation = generation;
        Generation(generation)
    }

    /// Takes the id with the container that `make` builds, and with its first turn. `None` when the id is
    /// taken. The lock is held while the record is written, so that two creates of one id cannot both do it.
    pub(crate) fn insert_with(
        &self,
        id: &ContainerId,
        make: impl FnOnce() -> Result<Container, RuntimeError>,
    ) -> Result<Option<(Arc<Container>, Turn)>, RuntimeError> {
        let mut inner = self.inner();
        if inner.containers.contains_key(id) {
            return Ok(None);
        }
        let container = Arc::new(make()?);
        let turn = container.first_turn()?;
        inner.containers.insert(id.clone(), container.clone());
        Ok(Some((container, turn)))
    }

    /// Takes in a container that was found on disk.
    pub(crate) fn insert(&self, container: Arc<Container>) {
        let mut inner = self.inner();
        inner.last_generation = inner.last_generation.max(container.generation().0);
        inner.containers.insert(container.id().clone(), container);
    }

    /// Gives the id free. A delete is remembered, so that its repetition is answered alike.
    pub(crate) fn forget(&self, container: &Container, deleted_by: Option<Operation>) {
        container.mark_gone();
        let mut inner = self.inner();
        if let Some(operation) = deleted_by {
            // One that is displaced finds no container, which answers it as well.
            let _ = inner
                .deleted
                .remember(operation, Status::Stopped, Keep::Recent);
        }
        inner.containers.remove(container.id());
    }

    /// Whether this delete was carried out before.
    pub(crate) fn has_deleted(&self, operation: &Operation) -> Result<bool, Error> {
        Ok(self.inner().deleted.find(operation)?.is_some())
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Option<Arc<Container>> {
        self.inner().containers.get(id).cloned()
    }

    /// The container, if the generation is the one that was asked for.
    pub(crate) fn find(&self, target: &ContainerTarget) -> Result<Arc<Container>, Error> {
        let container = self
            .get(&target.id)
            .ok_or_else(|| no_container(&target.id))?;
        container.fence(target)?;
        Ok(container)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Container>> {
        let mut all: Vec<_> = self.inner().containers.values().cloned().collect();
        all.sort_by(|a, b| a.id().cmp(b.id()));
        all
    }
}

pub(crate) fn no_container(id: &ContainerId) -> Error {
    Error::new(ErrorCode::NotFound, format!("no such container: {id}"))
}
