//! One container: its record, its journal, its processes, and whose turn it is.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use a3sbox_oci::oci_spec::runtime::StateBuilder;
use a3sbox_oci::{
    ContainerId, ContainerRecord, ContainerTarget, DriverKind, Error, ErrorCode, Generation,
    OperationContext, PAUSED_STATE_ANNOTATION, ProcessId, RuntimeEventKind,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::process::ProcessSlot;
use super::record::ContainerFile;
use super::registry::no_container;
use super::state::Status;
use crate::error::RuntimeError;
use crate::events::EventLog;
use crate::journal::{ContainerJournal, Entry, Image, JournalError, Operation, RequestDigest};
use crate::native::cgroup::Cgroup;
use crate::native::engine::Engine;

/// Execs that one container runs side by side; further ones wait.
const MAX_PARALLEL_EXECS: u32 = 64;

/// The right to change the container, alone or beside other execs, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

#[derive(Debug)]
pub(crate) struct Container {
    folder: PathBuf,
    file: ContainerFile,
    pub(crate) engine: Engine,
    events: Arc<EventLog>,
    turns: Arc<Semaphore>,
    /// Held while the engine starts init, so that its exit is recorded after its start.
    pub(crate) starting: Semaphore,
    cgroup: OnceLock<Cgroup>,
    /// Out-of-memory kills that were announced.
    oom_kills: AtomicU64,
    /// Out-of-memory kills at the last exit.
    oom_kills_at_exit: AtomicU64,
    live: Mutex<Live>,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) journal: ContainerJournal,
    pub(super) init: Option<Arc<ProcessSlot>>,
    pub(super) execs: HashMap<ProcessId, Arc<ProcessSlot>>,
    /// Process ids whose exec is under way.
    pub(super) reserved: HashMap<ProcessId, (Operation, watch::Sender<()>)>,
    /// It was deleted; who still holds it must not touch its folder.
    pub(super) is_gone: bool,
}

impl Container {
    pub(crate) fn new(
        folder: PathBuf,
        file: ContainerFile,
        engine: Engine,
        events: Arc<EventLog>,
        journal: ContainerJournal,
    ) -> Self {
        Self {
            folder,
            file,
            engine,
            events,
            turns: Arc::new(Semaphore::new(MAX_PARALLEL_EXECS as usize)),
            starting: Semaphore::new(1),
            cgroup: OnceLock::new(),
            oom_kills: AtomicU64::new(0),
            oom_kills_at_exit: AtomicU64::new(0),
            live: Mutex::new(Live {
                journal,
                init: None,
                execs: HashMap::new(),
                reserved: HashMap::new(),
                is_gone: false,
            }),
        }
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        // Every change under it is a journal line first: a panic leaves the older, valid state.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.file.id
    }

    /// The name that the engine and the hooks know.
    pub(crate) fn engine_id(&self) -> &str {
        self.file
            .engine
            .container_id
            .as_deref()
            .unwrap_or(self.file.id.as_str())
    }

    pub(crate) fn generation(&self) -> Generation {
        self.file.generation
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn file(&self) -> &ContainerFile {
        &self.file
    }

    pub(crate) fn target(&self) -> ContainerTarget {
        ContainerTarget::exact(self.id().clone(), self.generation())
    }

    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.get()
    }

    pub(crate) fn set_cgroup(&self, cgroup: Cgroup) {
        // Set once, by the create or the adoption.
        let _ = self.cgroup.set(cgroup);
    }

    /// Whether the cgroup has counted more out-of-memory kills than anybody was told of.
    pub(crate) fn note_oom_kills(&self, kills: u64) -> bool {
        self.oom_kills.fetch_max(kills, Ordering::Relaxed) < kills
    }

    /// Whether there were out-of-memory kills since the last exit.
    pub(crate) fn note_oom_exit(&self, kills: u64) -> bool {
        self.oom_kills_at_exit.fetch_max(kills, Ordering::Relaxed) < kills
    }

    /// Refuses a target that means another generation.
    pub(crate) fn fence(&self, target: &ContainerTarget) -> Result<(), Error> {
        match target.generation {
            Some(asked) if asked != self.generation() => Err(Error::new(
                ErrorCode::FailedPrecondition,
                format!(
                    "container {} is at generation {}, not {asked}",
                    self.id(),
                    self.generation()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The turn of the create that made it. Nobody else has seen the container yet.
    pub(crate) fn first_turn(&self) -> Result<Turn, Error> {
        self.turns
            .clone()
            .try_acquire_many_owned(MAX_PARALLEL_EXECS)
            .map(Turn)
            .map_err(|_| no_container(self.id()))
    }

    /// The turn of a verb that changes the container as a whole.
    pub(crate) async fn turn(&self) -> Result<Turn, Error> {
        self.acquire(MAX_PARALLEL_EXECS).await
    }

    /// The turn of an exec, which others may share.
    pub(crate) async fn shared_turn(&self) -> Result<Turn, Error> {
        self.acquire(1).await
    }

    async fn acquire(&self, permits: u32) -> Result<Turn, Error> {
        let permit = self
            .turns
            .clone()
            .acquire_many_owned(permits)
            .await
            .map_err(|_| no_container(self.id()))?;
        if self.live().is_gone {
            return Err(no_container(self.id()));
        }
        Ok(Turn(permit))
    }

    /// What the journal says, for a moment. The closure must not block.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Image) -> T) -> T {
        look(&self.live().journal.image)
    }

    pub(crate) fn status(&self) -> Status {
        self.read(|image| image.status)
    }

    /// Makes a fact durable, then true.
    pub(crate) fn commit(&self, entry: Entry) -> Result<(), RuntimeError> {
        let mut live = self.live();
        if live.is_gone {
            // Its folder was removed, or may be that of the next container with this id.
            return Ok(());
        }
        live.journal.commit(entry)?;
        Ok(())
    }

    /// A fact that is true whether or not it can be recorded: it is true here in any case.
    pub(crate) fn note(&self, entry: Entry) -> Result<(), RuntimeError> {
        let mut live = self.live();
        if live.is_gone {
            return Ok(());
        }
        live.journal.note(entry)?;
        Ok(())
    }

    /// The effect of a verb, which whoever adopts the container sees for himself. A failing disk does not make
    /// it untrue: the verb has succeeded, and the journal catches up with the next fact.
    pub(crate) fn witness(&self, entry: Entry) -> Result<(), RuntimeError> {
        let mut live = self.live();
        if live.is_gone {
            return Ok(());
        }
        match live.journal.note(entry) {
            Err(JournalError::Durable(error)) => {
                tracing::warn!(container_id = %self.id(), error = %error, "an effect is not recorded yet");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Looks for the outcome of an earlier, equal request.
    pub(crate) fn replay(
        &self,
        operation: &Operation,
        process: Option<&ProcessId>,
    ) -> Result<Option<ContainerRecord>, Error> {
        let mut live = self.live();
        if operation.id == self.file.create.id {
            return Err(crate::journal::conflict(&operation.id));
        }
        let image = &mut live.journal.image;
        let found = match image.operations_of(process) {
            Some(operations) => operations.find(operation)?,
            None => None,
        };
        if found.is_none() {
            image.past.refuse_operation(&operation.id)?;
        }
        Ok(found.map(|status| self.record_of(status, image)))
    }

    /// The verb had nothing to do, and its outcome is an outcome: repeated after the state has changed again,
    /// it must not have an effect after all.
    pub(crate) fn settle(&self, operation: Operation) -> Result<ContainerRecord, Error> {
        let status = self.status();
        self.commit(Entry::Outcome {
            operation,
            status,
            process: None,
            lasting: false,
        })?;
        Ok(self.record_as(status))
    }

    /// The record as it is now.
    pub(crate) fn record(&self) -> ContainerRecord {
        self.read(|image| self.record_of(image.status, image))
    }

    /// The record with the state that a verb has brought about, whatever came after it.
    pub(crate) fn record_as(&self, status: Status) -> ContainerRecord {
        self.read(|image| self.record_of(status, image))
    }

    fn record_of(&self, status: Status, image: &Image) -> ContainerRecord {
        let mut annotations = self.file.annotations.clone().unwrap_or_default();
        // Ours alone: what a config says under this name means nothing.
        annotations.remove(PAUSED_STATE_ANNOTATION);
        if status == Status::Paused {
            annotations.insert(PAUSED_STATE_ANNOTATION.to_owned(), "true".to_owned());
        }
        let mut state = StateBuilder::default()
            .version(self.file.oci_version.clone())
            .id(self.id().as_str())
            .status(status.oci())
            .bundle(self.file.bundle.clone());
        if status.is_alive()
            && let Some(pid) = image.init.and_then(|init| i32::try_from(init.pid).ok())
        {
            state = state.pid(pid);
        }
        if !annotations.is_empty() {
            state = state.annotations(annotations);
        }
        ContainerRecord {
            #[expect(
                clippy::expect_used,
                reason = "every field that the builder requires was set above"
            )]
            state: state.build().expect("a complete OCI state"),
            generation: self.generation(),
            driver: DriverKind::NativeLinux,
            isolation: self.file.isolation,
            config_digest: self.file.config_digest.clone(),
            attachments_digest: self.file.attachments_digest.clone(),
        }
    }

    /// From now on nothing is written to its folder, and no verb gets a turn.
    pub(crate) fn mark_gone(&self) {
        self.live().is_gone = true;
        self.turns.close();
    }

    pub(crate) fn emit(&self, process: Option<&ProcessId>, kind: RuntimeEventKind) {
        self.emit_with(process, kind, BTreeMap::new());
    }

    pub(crate) fn emit_with(
        &self,
        process: Option<&ProcessId>,
        kind: RuntimeEventKind,
        attributes: BTreeMap<String, String>,
    ) {
        self.events
            .push(self.target(), process.cloned(), kind, attributes);
    }
}

/// The operation of a request: its id, and the digest of what decides on its effect.
pub(crate) fn operation(
    context: &OperationContext,
    verb: &str,
    parts: &impl serde::Serialize,
) -> Result<Operation, Error> {
    Ok(Operation {
        id: context.operation_id.clone(),
        digest: RequestDigest::of(verb, parts)?,
    })
}

pub(crate) fn wrong_state(what: &str, status: Status) -> Error {
    let state = match status {
        Status::Creating => "creating",
        Status::Created => "created",
        Status::Running => "running",
        Status::Paused => "paused",
        Status::Stopped => "stopped",
    };
    Error::new(
        ErrorCode::FailedPrecondition,
        format!("cannot {what} a container that is {state}"),
    )
}
