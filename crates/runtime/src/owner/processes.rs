//! The processes of a container, and which process ids are taken.

use std::sync::Arc;
use std::time::Duration;

use a3sbox_oci::{Error, ErrorCode, ProcessId, ProcessTarget};
use tokio::sync::watch;

use super::container::Container;
use super::process::ProcessSlot;
use crate::journal::{Entry, Operation};

/// Most sessions of a container that are kept after their exit was told.
const MAX_ENDED_SESSIONS: usize = 64;

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
                Some(slot) if is_same => {
                    slot.touch();
                    Ok(Reserved::Done(slot.clone()))
                }
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
        let past = &live.journal.image.past;
        past.refuse_operation(&operation.id)?;
        past.refuse_process(process)?;
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

    /// Lets go of sessions that have ended: of those that nobody has asked for in a while, and of the oldest
    /// of those whose exit was told. An exec with streams of its own is its caller's to delete.
    pub(crate) fn expire_sessions(&self, kept_for: Duration) -> Vec<Arc<ProcessSlot>> {
        let mut live = self.live();
        if live.is_gone {
            return Vec::new();
        }
        let live = &mut *live;
        let mut ended: Vec<_> = live
            .journal
            .image
            .execs
            .values()
            .filter(|exec| exec.entry.is_session())
            .filter_map(|exec| Some((&exec.entry.process, live.execs.get(&exec.entry.process)?)))
            .filter(|(_, slot)| slot.has_ended())
            .map(|(process, slot)| (slot.idle_for(), process.clone(), slot.clone()))
            .collect();
        ended.sort_by(|(a, ..), (b, ..)| b.cmp(a));
        let mut surplus = ended.len().saturating_sub(MAX_ENDED_SESSIONS);
        let mut expired = Vec::new();
        for (idle_for, process, slot) in ended {
            let is_surplus = surplus > 0 && slot.was_told();
            if idle_for < kept_for && !is_surplus {
                continue;
            }
            surplus = surplus.saturating_sub(1);
            let entry = Entry::Expired {
                process: process.clone(),
            };
            if let Err(error) = live.journal.commit(entry) {
                tracing::warn!(container_id = %self.id(), error = %error, "ended sessions are kept");
                break;
            }
            live.execs.remove(&process);
            expired.push(slot);
        }
        expired
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
