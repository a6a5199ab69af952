//! The durable side of one owner: the record and the operation journal beside it.
//!
//! An effect is preceded by an intent and followed by an outcome; the record is written before an answer
//! is given. A write that fails leaves the owner's own state ahead of the disk; the next write carries
//! all of it.

use std::sync::Arc;

use a3sbox_core::{ExecutionGeneration, ExecutionId, OperationId};
use a3sbox_durable::Journal;
use a3sbox_durable::journal::JournalLimits;
use a3sbox_oci::OperationContext;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::limits::JOURNAL_KEPT_ENTRIES;
use super::machine::InitState;
use super::record::TaskRecord;
use super::{TaskError, TaskResult};
use crate::store::{StoreError, error_chain};
use crate::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, ManagedExecutionStore};

/// What an operation does, in a journal entry and in an operation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verb {
    Create,
    Start,
    Exec,
    Signal,
    Pause,
    Resume,
    Thaw,
    Update,
    Resize,
    CloseStdin,
    Checkpoint,
    DeleteExec,
    Delete,
    Recover,
}

impl Verb {
    const fn label(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Exec => "exec",
            Self::Signal => "signal",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Thaw => "thaw",
            Self::Update => "update",
            Self::Resize => "resize",
            Self::CloseStdin => "close-stdin",
            Self::Checkpoint => "checkpoint",
            Self::DeleteExec => "delete-exec",
            Self::Delete => "delete",
            Self::Recover => "recover",
        }
    }

    /// The container's own verbs stay as long as it does.
    const fn is_kept(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Start | Self::Delete | Self::Recover
        )
    }
}

/// One line of the journal. No argument, environment or stdin byte is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Entry {
    Intent {
        operation: OperationId,
        verb: Verb,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        generation: ExecutionGeneration,
        at: DateTime<Utc>,
    },
    Outcome {
        operation: OperationId,
        /// `None` when the effect succeeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        at: DateTime<Utc>,
    },
}

/// One minted operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) id: OperationId,
    pub(crate) context: OperationContext,
    verb: Verb,
}

impl Operation {
    pub(crate) fn mint(verb: Verb) -> TaskResult<Self> {
        let text = format!(
            "a3sbox-task-{}-{}",
            verb.label(),
            uuid::Uuid::new_v4().simple()
        );
        Ok(Self {
            id: OperationId::new(text.clone())?,
            context: OperationContext::new(a3sbox_oci::OperationId::new(text)?),
            verb,
        })
    }
}

/// Record and journal of one execution.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: ManagedExecutionStore,
    execution_id: ExecutionId,
    record: Arc<BoxRecord>,
    /// What the store holds, for its compare-and-set.
    stored: (ManagedExecutionState, ExecutionGeneration),
    generation: ExecutionGeneration,
    journal: Journal,
    entries: Vec<Entry>,
    /// The operation of the latest claim, which a transitional state names.
    claim: Option<OperationId>,
}

impl Ledger {
    /// Opens the ledger of a record that the store holds.
    pub(crate) fn open(store: ManagedExecutionStore, record: BoxRecord) -> TaskResult<Self> {
        let execution_id = ExecutionId::new(record.id.clone())?;
        let state = ManagedExecutionState::from_status(&record.status)
            .map_err(|error| TaskError::Internal(error.to_string()))?;
        let generation = record
            .managed_execution
            .as_ref()
            .ok_or_else(|| TaskError::Internal("record without managed metadata".to_owned()))?
            .generation;
        let path = store.journal_path(&execution_id).map_err(store_error)?;
        let opened = Journal::open(&path, JournalLimits::DEFAULT).map_err(durable_error)?;
        let entries = opened
            .entries
            .iter()
            .map(|bytes| serde_json::from_slice(bytes))
            .collect::<Result<Vec<Entry>, _>>()
            .map_err(|error| TaskError::Internal(format!("journal {}: {error}", path.display())))?;
        Ok(Self {
            store,
            execution_id,
            record: Arc::new(record),
            stored: (state, generation),
            generation,
            journal: opened.journal,
            entries,
            claim: None,
        })
    }

    pub(crate) fn record(&self) -> Arc<BoxRecord> {
        Arc::clone(&self.record)
    }

    pub(crate) fn generation(&self) -> ExecutionGeneration {
        self.generation
    }

    /// Mints an operation and journals what it is about to do.
    pub(crate) fn intend(&mut self, verb: Verb, subject: Option<&str>) -> TaskResult<Operation> {
        let operation = Operation::mint(verb)?;
        self.intend_as(&operation, subject)?;
        Ok(operation)
    }

    pub(crate) fn intend_as(
        &mut self,
        operation: &Operation,
        subject: Option<&str>,
    ) -> TaskResult<()> {
        self.append(Entry::Intent {
            operation: operation.id.clone(),
            verb: operation.verb,
            subject: subject.map(str::to_owned),
            generation: self.generation,
            at: Utc::now(),
        })
    }

    /// Journals how an operation ended.
    pub(crate) fn conclude(
        &mut self,
        operation: &Operation,
        error: Option<&TaskError>,
    ) -> TaskResult<()> {
        self.append(Entry::Outcome {
            operation: operation.id.clone(),
            error: error.map(ToString::to_string),
            at: Utc::now(),
        })?;
        if self.journal.entry_count() > JOURNAL_KEPT_ENTRIES {
            self.compact()?;
        }
        Ok(())
    }

    /// Operations that began and have no outcome.
    pub(crate) fn unsettled(&self) -> Vec<(OperationId, Verb)> {
        self.entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Intent {
                    operation, verb, ..
                } if !self.is_settled(operation) => Some((operation.clone(), *verb)),
                _ => None,
            })
            .collect()
    }

    /// Writes the task's state into the record. `operation` is the one under way, if the state is a claim.
    pub(crate) fn commit(
        &mut self,
        task: &TaskRecord,
        operation: Option<&Operation>,
    ) -> TaskResult<()> {
        if let Some(operation) = operation {
            self.claim = Some(operation.id.clone());
        }
        let state = managed_state(task.init.state, self.stored.0);
        let generation = self.generation;
        let claim = self.claim.clone();
        let written = self
            .store
            .update(&self.execution_id, self.stored, |record| {
                apply(record, task, state, generation, claim);
            })
            .map_err(store_error)?;
        self.stored = (state, generation);
        self.record = Arc::new(written);
        Ok(())
    }

    /// The next commit carries the next generation.
    pub(crate) fn grow(&mut self) {
        // The counter cannot run out within the age of a machine; staying is then the safe answer.
        self.generation = self.generation.next().unwrap_or(self.generation);
    }

    /// Takes the record away; the journal goes with it.
    pub(crate) fn remove(&mut self) -> TaskResult<()> {
        match self.store.remove(&self.execution_id) {
            Ok(_) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(store_error(error)),
        }
    }

    fn append(&mut self, entry: Entry) -> TaskResult<()> {
        let bytes = encode(&entry)?;
        self.journal.append(&bytes).map_err(durable_error)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Drops what has settled and is not the container's own: a probe every second stays flat.
    fn compact(&mut self) -> TaskResult<()> {
        let kept: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| self.is_kept(entry))
            .cloned()
            .collect();
        let lines = kept.iter().map(encode).collect::<TaskResult<Vec<_>>>()?;
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        self.journal.compact(&lines).map_err(durable_error)?;
        self.entries = kept;
        Ok(())
    }

    fn is_kept(&self, entry: &Entry) -> bool {
        let (Entry::Intent { operation, .. } | Entry::Outcome { operation, .. }) = entry;
        let is_own = self.entries.iter().any(|other| {
            matches!(other, Entry::Intent { operation: id, verb, .. } if id == operation && verb.is_kept())
        });
        is_own || !self.is_settled(operation)
    }

    fn is_settled(&self, wanted: &OperationId) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry, Entry::Outcome { operation, .. } if operation == wanted))
    }
}

fn encode(entry: &Entry) -> TaskResult<Vec<u8>> {
    serde_json::to_vec(entry).map_err(|error| TaskError::Internal(error.to_string()))
}

/// The managed state of a task's state. A drain keeps what is stored, since the exit is not yet told, and
/// so does a discard, which may fail and leave the container created.
const fn managed_state(state: InitState, stored: ManagedExecutionState) -> ManagedExecutionState {
    use ManagedExecutionState as M;
    match state {
        InitState::Creating => M::Creating,
        InitState::Created => M::Created,
        InitState::Starting | InitState::StartingEnded => M::Starting,
        InitState::Running => M::Running,
        InitState::Pausing => M::Pausing,
        InitState::Paused => M::Paused,
        InitState::Resuming => M::Resuming,
        InitState::Draining | InitState::Discarding => stored,
        InitState::Stopped | InitState::Deleting | InitState::Gone => M::Stopped,
    }
}

fn apply(
    record: &mut BoxRecord,
    task: &TaskRecord,
    state: ManagedExecutionState,
    generation: ExecutionGeneration,
    claim: Option<OperationId>,
) {
    let is_live = !state.is_terminal();
    let is_same = record.status == state.as_status();
    state.as_status().clone_into(&mut record.status);
    record.pid = task.init.pid.filter(|_| is_live);
    record.pid_start_time = task
        .init
        .pid_start_time
        .filter(|_| is_live && record.pid.is_some());
    record.exit_code = task
        .init
        .exit
        .as_ref()
        .filter(|_| !is_live)
        .and_then(|exit| exit.status)
        .and_then(|status| i32::try_from(status).ok());
    // The runtime is reached by the binding, never by a socket of the container's own.
    record.exec_socket_path = std::path::PathBuf::new();
    if task.init.was_started && record.started_at.is_none() {
        record.started_at = Some(Utc::now());
    }
    let Some(managed) = record.managed_execution.as_mut() else {
        return;
    };
    managed.generation = generation;
    managed.oci_runtime = task.binding.clone().filter(|_| is_live);
    if !is_same || !state.is_transitional() {
        managed.pending_operation = pending(state, claim);
    }
    if !is_live {
        managed.finished_at = task.init.exit.as_ref().map(|exit| exit.exited_at);
    }
    managed.task = Some(task.clone());
}

fn pending(
    state: ManagedExecutionState,
    claim: Option<OperationId>,
) -> Option<ManagedExecutionOperation> {
    use ManagedExecutionState as M;
    match state {
        M::Starting => Some(ManagedExecutionOperation::Start),
        M::Pausing => Some(ManagedExecutionOperation::Pause {
            keep_memory: true,
            operation_id: claim,
        }),
        M::Resuming => claim.map(|operation_id| ManagedExecutionOperation::Resume { operation_id }),
        _ => None,
    }
}

/// Class of a store failure at the task face.
pub(crate) fn store_error(error: StoreError) -> TaskError {
    let text = error_chain(&error);
    match error {
        StoreError::NotFound(_) => TaskError::NotFound(text),
        StoreError::Conflict { .. } => TaskError::AlreadyExists(text),
        StoreError::IllegalTransition { .. } | StoreError::Owned { .. } => {
            TaskError::FailedPrecondition(text)
        }
        StoreError::Durable(source) => durable_error(source),
        StoreError::Invalid { .. } | StoreError::UnknownSchema { .. } => TaskError::Internal(text),
    }
}

fn durable_error(error: a3sbox_durable::DurableError) -> TaskError {
    use std::io::ErrorKind;
    let text = error_chain(&error);
    match error.io_kind() {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            TaskError::ResourceExhausted(text)
        }
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            TaskError::PermissionDenied(text)
        }
        _ => TaskError::Internal(text),
    }
}
