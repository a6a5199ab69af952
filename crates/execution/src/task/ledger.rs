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
use tracing::warn;

use super::limits::JOURNAL_KEPT_ENTRIES;
use super::machine::InitState;
use super::record::TaskRecord;
use super::types::TaskKey;
use super::{TaskError, TaskResult};
use crate::store::{GenerationStep, StoreError, with_remedy};
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
    Snapshot,
    Kill,
}

impl Verb {
    pub(crate) const fn label(self) -> &'static str {
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
            Self::Snapshot => "snapshot",
            Self::Kill => "kill",
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
    /// The exec that it is about.
    subject: Option<String>,
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
            subject: None,
        })
    }

    /// An operation that its caller named.
    pub(crate) fn named(id: OperationId, verb: Verb) -> TaskResult<Self> {
        Ok(Self {
            context: OperationContext::new(a3sbox_oci::OperationId::new(id.as_str())?),
            id,
            verb,
            subject: None,
        })
    }

    /// The journal has the runtime's name of the process; people know it by its exec id.
    pub(crate) fn of_exec(mut self, exec_id: &str) -> Self {
        self.subject = Some(exec_id.to_owned());
        self
    }

    /// The one span of the operation: who, which, on what decided; never what it carries.
    pub(crate) fn span(&self, key: &TaskKey, generation: ExecutionGeneration) -> tracing::Span {
        tracing::info_span!(
            "operation",
            verb = self.verb.label(),
            namespace = %key.namespace,
            container_id = %key.container_id,
            exec_id = self.subject.as_deref(),
            generation = generation.get(),
            operation_id = %self.id,
        )
    }

    /// The context of one effect of several that this operation has.
    pub(crate) fn part(&self, label: &str) -> TaskResult<OperationContext> {
        let name = format!("{}-{label}", self.id);
        Ok(OperationContext::new(a3sbox_oci::OperationId::new(name)?))
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
    /// What the owner decided last; ahead of `stored` by one step when a write failed.
    decided: (ManagedExecutionState, ExecutionGeneration),
    journal: Journal,
    entries: Vec<Entry>,
    /// The latest claim, which a transitional state names.
    claim: Option<ManagedExecutionOperation>,
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
            decided: (state, generation),
            journal: opened.journal,
            entries,
            claim: None,
        })
    }

    pub(crate) fn record(&self) -> Arc<BoxRecord> {
        Arc::clone(&self.record)
    }

    pub(crate) fn execution_id(&self) -> &ExecutionId {
        &self.execution_id
    }

    pub(crate) fn generation(&self) -> ExecutionGeneration {
        self.decided.1
    }

    /// The durable state as it was decided last.
    pub(crate) fn state(&self) -> ManagedExecutionState {
        self.decided.0
    }

    /// Mints an operation and journals what it is about to do.
    pub(crate) fn intend(&mut self, verb: Verb, subject: Option<&str>) -> TaskResult<Operation> {
        let mut operation = Operation::mint(verb)?;
        operation.subject = subject.map(str::to_owned);
        self.intend_as(&operation)?;
        Ok(operation)
    }

    pub(crate) fn intend_as(&mut self, operation: &Operation) -> TaskResult<()> {
        self.append(Entry::Intent {
            operation: operation.id.clone(),
            verb: operation.verb,
            subject: operation.subject.clone(),
            generation: self.generation(),
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

    /// Writes the task's state into the record, by a step of the durable states' own table, which says what
    /// becomes of the generation. With a `claim` a failure leaves everything as it was; without one the
    /// state is a fact, and the next write carries it.
    pub(crate) fn commit(
        &mut self,
        task: &TaskRecord,
        claim: Option<ManagedExecutionOperation>,
    ) -> TaskResult<()> {
        let is_claim = claim.is_some();
        let next = self.step(task.init.state)?;
        let claim = claim.or_else(|| self.claim.clone());
        let written = self
            .store
            .update(&self.execution_id, self.stored, |record| {
                apply(record, task, next, claim.clone());
            })
            .map_err(store_error);
        if written.is_ok() || !is_claim {
            self.decided = next;
            self.claim = claim;
        }
        self.keep(written, next)
    }

    /// Takes over what a write left on the disk. One that failed in its last step, the sync of the folder,
    /// has replaced the record all the same: what the store holds is read, not assumed.
    fn keep(
        &mut self,
        written: TaskResult<BoxRecord>,
        next: (ManagedExecutionState, ExecutionGeneration),
    ) -> TaskResult<()> {
        match written {
            Ok(record) => {
                self.record = Arc::new(record);
                self.stored = next;
                Ok(())
            }
            Err(error) => {
                if let Ok(Some(record)) = self.store.get(&self.execution_id)
                    && let Ok(state) = ManagedExecutionState::from_status(&record.status)
                    && let Some(managed) = &record.managed_execution
                {
                    self.stored = (state, managed.generation);
                }
                Err(error)
            }
        }
    }

    /// As [`Self::commit`], with what a fenced verb completes beside the state.
    pub(crate) fn commit_with(
        &mut self,
        task: &TaskRecord,
        complete: impl FnOnce(&mut BoxRecord),
    ) -> TaskResult<()> {
        let next = self.step(task.init.state)?;
        let written = self
            .store
            .update(&self.execution_id, self.stored, |record| {
                complete(record);
                apply(record, task, next, None);
            })
            .map_err(store_error);
        self.decided = next;
        self.keep(written, next)
    }

    fn step(&self, state: InitState) -> TaskResult<(ManagedExecutionState, ExecutionGeneration)> {
        let (from, generation) = self.decided;
        let to = state.durable(from);
        if to == from {
            return Ok(self.decided);
        }
        match from.step_to(to) {
            Ok(GenerationStep::Keep) => Ok((to, generation)),
            // The counter cannot run out within the age of a machine; staying is then the safe answer.
            Ok(GenerationStep::Advance) => Ok((to, generation.next().unwrap_or(generation))),
            Err(illegal) => Err(TaskError::Internal(illegal.to_string())),
        }
    }

    /// Takes the record away; the journal goes with it.
    pub(crate) fn remove(&mut self) -> TaskResult<()> {
        match self.store.remove(&self.execution_id) {
            Ok(_) | Err(StoreError::NotFound(_)) => Ok(()),
            // Gone all the same: it was the last sync that failed, and there is nothing to try again.
            Err(error) if matches!(self.store.get(&self.execution_id), Ok(None)) => {
                warn!(execution_id = %self.execution_id, %error, "the removal of a record may not be durable");
                Ok(())
            }
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

fn apply(
    record: &mut BoxRecord,
    task: &TaskRecord,
    (state, generation): (ManagedExecutionState, ExecutionGeneration),
    claim: Option<ManagedExecutionOperation>,
) {
    let is_live = !state.is_terminal();
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
    let recorded = managed.pending_operation.take();
    managed.pending_operation = [claim, recorded]
        .into_iter()
        .flatten()
        .find(|operation| operation.belongs_to(state))
        .filter(|_| state.is_transitional());
    if !is_live {
        managed.finished_at = task.init.exit.as_ref().map(|exit| exit.exited_at);
        record.stopped_by_user = task.is_killed;
    }
    managed.task = Some(task.clone());
}

/// Class of a store failure at the task face.
pub(crate) fn store_error(error: StoreError) -> TaskError {
    let text = with_remedy(&error);
    match error {
        StoreError::NotFound(_) => TaskError::NotFound(text),
        StoreError::Conflict { .. } => TaskError::AlreadyExists(text),
        StoreError::IllegalTransition { .. } | StoreError::Owned { .. } => {
            TaskError::FailedPrecondition(text)
        }
        StoreError::Durable(source) => durable_class(&source, text),
        StoreError::Invalid { .. } | StoreError::UnknownSchema { .. } => TaskError::Internal(text),
    }
}

fn durable_error(error: a3sbox_durable::DurableError) -> TaskError {
    store_error(error.into())
}

fn durable_class(error: &a3sbox_durable::DurableError, text: String) -> TaskError {
    use std::io::ErrorKind;
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
