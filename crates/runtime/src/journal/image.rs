//! What the facts of a journal add up to.
//!
//! The live path and the one that reads a journal back fold the same entries through [`Image::apply`], so
//! a container that was adopted is the container that was left.

use std::collections::BTreeMap;

use a3sbox_oci::ProcessId;

use super::entry::{Entry, ExecEntry, Exit, Operation};
use super::operations::{Keep, Operations};
use super::past::{PastId, PastIds};
use crate::native::cgroup::CgroupPaths;
use crate::native::identity::ProcessIdentity;
use crate::owner::state::{Event, IllegalEvent, Status, next};

/// A container as its journal tells it.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) status: Status,
    pub(crate) init: Option<ProcessIdentity>,
    pub(crate) cgroup: Option<CgroupPaths>,
    pub(crate) exit: Option<Exit>,
    pub(crate) execs: BTreeMap<ProcessId, ExecImage>,
    pub(crate) operations: Operations,
    /// What happened and can no longer be replayed.
    pub(crate) past: PastIds,
}

/// An added process as the journal tells it.
#[derive(Debug)]
pub(crate) struct ExecImage {
    pub(crate) entry: ExecEntry,
    pub(crate) exit: Option<Exit>,
    /// Its signals. They go when it is forgotten.
    pub(crate) operations: Operations,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            status: Status::Creating,
            init: None,
            cgroup: None,
            exit: None,
            execs: BTreeMap::new(),
            operations: Operations::default(),
            past: PastIds::default(),
        }
    }
}

impl Image {
    /// Whether the fact can follow.
    pub(crate) fn check(&self, entry: &Entry) -> Result<(), IllegalEvent> {
        let event = match entry {
            Entry::Created { restored: true, .. } => Event::Restored,
            Entry::Created { .. } => Event::Created,
            Entry::Started { .. } => Event::Started,
            Entry::Paused { .. } => Event::Paused,
            Entry::Resumed { .. } => Event::Resumed,
            Entry::Exited { process, .. } if process.is_init() => Event::Exited,
            Entry::Exited { .. }
            | Entry::Updated { .. }
            | Entry::Signaled { .. }
            | Entry::NotSignaled { .. }
            | Entry::Exec(_)
            | Entry::Forgotten { .. }
            | Entry::Expired { .. }
            | Entry::Past { .. }
            | Entry::Settled { .. }
            | Entry::Outcome { .. } => return Ok(()),
        };
        next(self.status, event).map(drop)
    }

    /// Adds one fact.
    pub(crate) fn apply(&mut self, entry: Entry) -> Result<(), IllegalEvent> {
        match entry {
            Entry::Created {
                identity,
                cgroup,
                restored,
            } => {
                let event = if restored {
                    Event::Restored
                } else {
                    Event::Created
                };
                self.status = next(self.status, event)?;
                self.init = Some(identity);
                self.cgroup = Some(cgroup);
            }
            Entry::Started { operation } => {
                self.status = next(self.status, Event::Started)?;
                // What a start answers, also when the process has ended by then.
                self.remember(None, operation, Status::Running, Keep::Lasting);
            }
            Entry::Paused { operation } => {
                self.status = next(self.status, Event::Paused)?;
                self.remember(None, operation, Status::Paused, Keep::Recent);
            }
            Entry::Resumed { operation } => {
                self.status = next(self.status, Event::Resumed)?;
                self.remember(None, operation, Status::Running, Keep::Recent);
            }
            Entry::Updated { operation } => {
                self.remember(None, operation, self.status, Keep::Recent);
            }
            Entry::Signaled { operation, process } => {
                let keep = if process.is_none() {
                    Keep::Lasting
                } else {
                    Keep::Recent
                };
                self.remember(process.as_ref(), operation, self.status, keep);
            }
            Entry::NotSignaled { operation, process } => {
                if let Some(operations) = self.operations_of(process.as_ref()) {
                    operations.forget(&operation);
                }
            }
            Entry::Exec(entry) => {
                self.execs.insert(
                    entry.process.clone(),
                    ExecImage {
                        entry,
                        exit: None,
                        operations: Operations::default(),
                    },
                );
            }
            Entry::Exited { process, exit } => {
                if process.is_init() {
                    self.status = next(self.status, Event::Exited)?;
                    self.exit = Some(exit);
                } else if let Some(exec) = self.execs.get_mut(&process) {
                    exec.exit = Some(exit);
                }
            }
            Entry::Forgotten { process } => {
                // Its id is free again; the operation that started it is not.
                self.take_exec(&process);
            }
            Entry::Expired { process } => {
                self.take_exec(&process);
                self.past.add(PastId::process(&process));
            }
            Entry::Past { ids } => {
                // A line that is none was refused when it was read.
                let _ = self.past.add_line(&ids);
            }
            Entry::Settled { status } => self.status = status,
            Entry::Outcome {
                operation,
                status,
                process,
                lasting,
            } => {
                let keep = if lasting { Keep::Lasting } else { Keep::Recent };
                self.remember(process.as_ref(), operation, status, keep);
            }
        }
        Ok(())
    }

    fn remember(
        &mut self,
        process: Option<&ProcessId>,
        operation: Operation,
        status: Status,
        keep: Keep,
    ) {
        let displaced = self
            .operations_of(process)
            .and_then(|operations| operations.remember(operation, status, keep));
        if let Some(id) = displaced {
            self.past.add(PastId::operation(&id));
        }
    }

    fn take_exec(&mut self, process: &ProcessId) {
        let taken = self.execs.remove(process);
        if let Some(operation) = taken.and_then(|exec| exec.entry.operation) {
            self.past.add(PastId::operation(&operation.id));
        }
    }

    /// The operations of the container, or of one of its added processes.
    pub(crate) fn operations_of(&mut self, process: Option<&ProcessId>) -> Option<&mut Operations> {
        match process {
            None => Some(&mut self.operations),
            Some(process) => self.execs.get_mut(process).map(|exec| &mut exec.operations),
        }
    }

    /// The fewest facts that add up to this image.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        if let (Some(identity), Some(cgroup)) = (self.init, &self.cgroup) {
            entries.push(Entry::Created {
                identity,
                cgroup: cgroup.clone(),
                restored: false,
            });
        }
        if let Some(exit) = &self.exit {
            entries.push(Entry::Exited {
                process: ProcessId::init(),
                exit: exit.clone(),
            });
        }
        entries.push(Entry::Settled {
            status: self.status,
        });
        entries.extend(self.past.lines().into_iter().map(|ids| Entry::Past { ids }));
        entries.extend(outcomes(&self.operations, None));
        for (process, exec) in &self.execs {
            entries.push(Entry::Exec(exec.entry.clone()));
            entries.extend(outcomes(&exec.operations, Some(process)));
            if let Some(exit) = &exec.exit {
                entries.push(Entry::Exited {
                    process: process.clone(),
                    exit: exit.clone(),
                });
            }
        }
        entries
    }
}

fn outcomes<'a>(
    operations: &'a Operations,
    process: Option<&'a ProcessId>,
) -> impl Iterator<Item = Entry> + 'a {
    operations
        .iter()
        .map(move |(operation, status, keep)| Entry::Outcome {
            operation: operation.clone(),
            status,
            process: process.cloned(),
            lasting: keep == Keep::Lasting,
        })
}
