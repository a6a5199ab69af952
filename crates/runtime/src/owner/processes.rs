//! The processes of a container, and which process ids are taken.

use std::sync::Arc;

use a3sbox_oci::{Error, ErrorCode, ProcessId, ProcessTarget};
use tokio::sync::watch;

use super::container::Container;
use super::process::ProcessSlot;
use crate::journal::Operation;

/// What became of an attempt to take a process id.
#[derive(Debug)]
pub(crate) enum Reserved {
    Fresh,
    Done(Arc<ProcessSlot>),
    /// Ends, with an error, when that exec has settled.
    UnderWay(watch::Receiver<()>),
}

impl Container {
    pub(crate) fn init(&self) -> Option<Arc<ProcessSlot>> {
        self.live().init.clone()
    }

    pub(crate) fn set_init(&self, slot: Arc<ProcessSlot>) {
        self.live().init = Some(slot);
    }

    /// The process with this id; the container's generation is checked as well.
    pub(crate) fn process(&self, target: &ProcessTarget) -> Result<Arc<ProcessSlot>, Error> {
        let live = self.live();
        let slot = if target.process_id.is_init() {
            live.init.clone()
        } else {
            live.execs.get(&target.process_id).cloned()
        };
        slot.ok_or_else(|| {
            Error::new(
                ErrorCode::NotFound,
                format!(
                    "no such process {} in container {}",
                    target.process_id,
                    self.id()
                ),
            )
        })
    }

    /// All added processes, by id.
    pub(crate) fn execs(&self) -> Vec<(ProcessId, Arc<ProcessSlot>)> {
        let mut execs: Vec<_> = self
            .live()
            .execs
            .iter()
            .map(|(id, slot)| (id.clone(), slot.clone()))
            .collect();
        execs.sort_by(|(a, _), (b, _)| a.cmp(b));
        execs
    }

    /// Takes a process id for an exec. The same exec may have been carried out before, or be under way.
    pub(crate) fn reserve(
        &self,
        process: &ProcessId,
        operation: &Operation,
    ) -> Result<Reserved, Error> {
        let mut live = self.live();
        if let Some(exec) = live.journal.image.execs.get(process) {
            let is_same = exec.entry.operation.as_ref() == Some(operation);
            return match live.execs.get(process) {
                Some(slot) if is_same => Ok(Reserved::Done(slot.clone())),
                _ => Err(taken(process)),
            };
        }
        if let Some((known, settled)) = live.reserved.get(process) {
            return if known == operation {
                Ok(Reserved::UnderWay(settled.subscribe()))
            } else {
                Err(taken(process))
            };
        }
        live.reserved
            .insert(process.clone(), (operation.clone(), watch::Sender::new(())));
        Ok(Reserved::Fresh)
    }

    /// The exec has settled: who waits for it is woken by the end of the channel.
    pub(crate) fn unreserve(&self, process: &ProcessId) {
        self.live().reserved.remove(process);
    }

    pub(crate) fn insert_exec(&self, process: &ProcessId, slot: Arc<ProcessSlot>) {
        self.live().execs.insert(process.clone(), slot);
    }

    pub(crate) fn remove_exec(&self, process: &ProcessId) {
        self.live().execs.remove(process);
    }
}

fn taken(process: &ProcessId) -> Error {
    Error::new(
        ErrorCode::Conflict,
        format!("process id {process} was used with a different request"),
    )
}
