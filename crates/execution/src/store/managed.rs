//! The store of managed executions: reservations, reads and compare-and-set transactions.
//!
//! Every call is synchronous and short: it touches the files of one execution. Writers take the lock of
//! that execution's folder for the time of one transaction; readers take none, since a record is replaced
//! as a whole. Several stores, in one process or several, may work on the same path.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use a3sbox_core::{ExecutionGeneration, ExecutionId, OperationId};
use a3sbox_durable::lock::holder_of;
use a3sbox_durable::{DurableError, FileLock, folder, remove, replace, sweep};
use chrono::Utc;

use super::error::{StoreError, StoreResult};
use super::layout::{JOURNAL_FILE, LOCK_FILE, Layout, OWNER_LOCK_FILE, RECORD_FILE, key_of};
use super::name::folder_name;
use super::operation::ManagedExecutionOperation;
use super::record::BoxRecord;
use super::schema;
use super::state::ManagedExecutionState;
use super::update::{RuntimeUpdate, apply_transition};
use crate::process::boot_id;
use crate::task::TaskKey;

/// A transaction of somebody else lasts for a few writes; beyond this something holds the lock.
const TRANSACTION_DEADLINE: Duration = Duration::from_secs(10);

/// Records of executions below one path. Opens nothing by itself; clones share what it knows.
#[derive(Debug, Clone)]
pub struct ManagedExecutionStore {
    path: PathBuf,
    layout: Arc<Layout>,
    /// Folders whose leftovers this store has removed.
    swept: Arc<Mutex<HashSet<PathBuf>>>,
}

/// What a reservation led to.
#[derive(Debug, Clone)]
pub enum ManagedExecutionReservation {
    Reserved(BoxRecord),
    /// The same operation with the same intent was reserved before.
    Existing(BoxRecord),
}

impl ManagedExecutionReservation {
    #[must_use]
    pub fn record(&self) -> &BoxRecord {
        match self {
            Self::Reserved(record) | Self::Existing(record) => record,
        }
    }

    #[must_use]
    pub fn into_record(self) -> BoxRecord {
        match self {
            Self::Reserved(record) | Self::Existing(record) => record,
        }
    }
}

/// Ownership of one container's folder, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct OwnerLock {
    _lock: FileLock,
}

/// Whether a container's folder has an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// A living process holds it.
    Owned { pid: u32 },
    /// Nobody holds it: never owned, given up, or the owner died.
    Free,
}

impl ManagedExecutionStore {
    /// A store with one folder per execution below `path`. No I/O.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            layout: Arc::new(Layout::executions(&path)),
            path,
            swept: Arc::default(),
        }
    }

    /// A store with one folder per container of a namespace below `root`. No I/O.
    pub fn for_containers(root: impl Into<PathBuf>) -> Self {
        Self {
            path: root.into(),
            layout: Arc::new(Layout::containers()),
            swept: Arc::default(),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record as it is stored.
    pub fn get(&self, execution_id: &ExecutionId) -> StoreResult<Option<BoxRecord>> {
        match self.layout.folder_of(&self.path, execution_id) {
            Some(folder) => Ok(self
                .load(&folder)?
                .filter(|record| record.id == execution_id.as_str())),
            None => Ok(None),
        }
    }

    /// The record of a container, found by its own name. It is known by its execution id from then on.
    pub fn find_container(&self, key: &TaskKey) -> StoreResult<Option<BoxRecord>> {
        let folder = self.container_folder(key);
        let Some(record) = self.load(&folder)? else {
            return Ok(None);
        };
        if key_of(&record) != Some(key) {
            return Err(StoreError::Invalid {
                path: folder.join(RECORD_FILE),
                message: "it belongs to another container".to_owned(),
            });
        }
        self.layout.remember(&record, &id_of(&record, &folder)?);
        Ok(Some(record))
    }

    /// The execution that a create with this operation id made.
    pub fn find_operation(&self, operation_id: &OperationId) -> StoreResult<Option<BoxRecord>> {
        match self.layout.find_operation(operation_id)? {
            Some(execution_id) => self.get(&execution_id),
            None => Ok(None),
        }
    }

    /// Stores a new record. The same operation with the same intent gives the existing one; with another
    /// intent, or when the place is taken, it is a conflict and nothing changes.
    pub fn reserve(&self, record: BoxRecord) -> StoreResult<ManagedExecutionReservation> {
        let path = self.layout.folder_for(&self.path, &record)?;
        let execution_id = id_of(&record, &path)?;
        // Refuse what can never be written before anything is created.
        let bytes = schema::encode(&path.join(RECORD_FILE), &record)?;
        match self.layout.as_ref() {
            Layout::Executions(index) => {
                let _index_lock = index.lock()?;
                if self.first_visit(&self.path) {
                    index.sweep()?;
                }
                let Some(metadata) = &record.managed_execution else {
                    return self.place(&path, record, &execution_id, &bytes);
                };
                if let Some(owner) = index.find(&metadata.operation_id)?
                    && let Some(existing) = self.get(&owner)?
                {
                    return same_intent(existing, &record);
                }
                index.claim(&metadata.operation_id, &execution_id)?;
                self.place(&path, record, &execution_id, &bytes)
            }
            Layout::Containers(_) => self.place(&path, record, &execution_id, &bytes),
        }
    }

    /// Changes a record that is still in the expected state and generation; durable when this returns.
    ///
    /// `change` may set any field; the result must obey the rules of a record and its generation may
    /// stay or grow by one.
    pub fn update(
        &self,
        execution_id: &ExecutionId,
        expected: (ManagedExecutionState, ExecutionGeneration),
        change: impl FnOnce(&mut BoxRecord),
    ) -> StoreResult<BoxRecord> {
        self.try_update(execution_id, expected, |record| {
            change(record);
            Ok(())
        })
    }

    /// As [`Self::update`], with a change that can refuse; nothing is written then.
    pub fn try_update(
        &self,
        execution_id: &ExecutionId,
        expected: (ManagedExecutionState, ExecutionGeneration),
        change: impl FnOnce(&mut BoxRecord) -> StoreResult<()>,
    ) -> StoreResult<BoxRecord> {
        let (folder, _lock) = self.lock(execution_id)?;
        let mut record = self.expect(&folder, execution_id, expected)?;
        change(&mut record)?;
        check_successor(&record, execution_id, expected.1)?;
        let path = folder.join(RECORD_FILE);
        replace(&path, &schema::encode(&path, &record)?)?;
        Ok(record)
    }

    /// One step of the state table with its data, as a compare-and-set on (state, generation).
    pub fn transition(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        from: ManagedExecutionState,
        to: ManagedExecutionState,
        update: RuntimeUpdate,
    ) -> StoreResult<BoxRecord> {
        self.try_update(execution_id, (from, generation), |record| {
            apply_transition(record, execution_id, from, to, update, Utc::now())?;
            let begins = matches!(
                to,
                ManagedExecutionState::Starting | ManagedExecutionState::RestartStarting
            );
            if let (true, Some(metadata)) = (begins, record.managed_execution.as_mut()) {
                metadata.boot_id = boot_id().map(str::to_owned);
            }
            Ok(())
        })
    }

    /// Marks the pending snapshot's freeze as done.
    pub fn mark_snapshot_freezer_applied(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        claimed: &OperationId,
    ) -> StoreResult<BoxRecord> {
        let expected = (ManagedExecutionState::Snapshotting, generation);
        self.try_update(execution_id, expected, |record| {
            let pending = record
                .managed_execution
                .as_mut()
                .and_then(|metadata| metadata.pending_operation.as_mut());
            match pending {
                Some(ManagedExecutionOperation::Snapshot {
                    operation_id,
                    freezer_applied,
                    ..
                }) if operation_id == claimed => {
                    *freezer_applied = true;
                    Ok(())
                }
                _ => Err(conflict(
                    execution_id,
                    "another snapshot is under way".to_owned(),
                )),
            }
        })
    }

    /// Takes the record and everything beside it away, durably. `false` when there was none.
    pub fn remove(&self, execution_id: &ExecutionId) -> StoreResult<bool> {
        let (path, lock) = match self.lock(execution_id) {
            Ok(locked) => locked,
            Err(StoreError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(record) = self.load(&path)? else {
            return Ok(false);
        };
        if record.id != execution_id.as_str() {
            return Ok(false);
        }
        // The record goes first: a crash behind it leaves a folder that means nothing. Where an index names
        // the record, its removal is durable before the entry goes; a container's record that comes back
        // with the power is found by its own name and removed again, so one sync of the parent is enough.
        match (self.layout.as_ref(), &record.managed_execution) {
            (Layout::Executions(index), Some(metadata)) => {
                remove(&path.join(RECORD_FILE))?;
                index.release(&metadata.operation_id, execution_id)?;
            }
            (Layout::Executions(_), None) | (Layout::Containers(_), _) => {
                remove_undurably(&path.join(RECORD_FILE))?;
            }
        }
        folder::remove_all(&path)?;
        self.swept_folders().remove(&path);
        self.layout.forget(execution_id);
        drop(lock);
        Ok(true)
    }

    /// Takes ownership of a container's folder for the life of the lock, creating the folder when needed.
    /// [`StoreError::Owned`] names the process that has it.
    pub fn lock_owner(&self, key: &TaskKey) -> StoreResult<OwnerLock> {
        let path = self.container_folder(key);
        folder::create_all(&self.path)?;
        folder::create(&path)?;
        match FileLock::try_own(&path.join(OWNER_LOCK_FILE)) {
            Ok(lock) => Ok(OwnerLock { _lock: lock }),
            Err(DurableError::Locked { owner, .. }) => Err(StoreError::Owned {
                container_id: key.container_id.clone(),
                owner,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Who holds a container's folder, without touching the lock.
    #[must_use]
    pub fn ownership(&self, key: &TaskKey) -> Ownership {
        holder_of(&self.container_folder(key).join(OWNER_LOCK_FILE))
            .map_or(Ownership::Free, |pid| Ownership::Owned { pid })
    }

    /// The journal beside a known execution's record.
    pub fn journal_path(&self, execution_id: &ExecutionId) -> StoreResult<PathBuf> {
        self.layout
            .folder_of(&self.path, execution_id)
            .map(|folder| folder.join(JOURNAL_FILE))
            .ok_or_else(|| StoreError::NotFound(execution_id.clone()))
    }

    /// The folder of a container, whether or not it exists.
    #[must_use]
    pub fn container_folder(&self, key: &TaskKey) -> PathBuf {
        self.path.join(folder_name(&key.container_id))
    }

    /// Every readable record, for listings; no verb needs it. A folder without a record is skipped.
    pub fn list(&self) -> StoreResult<Vec<BoxRecord>> {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(unlistable(&self.path, source)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| unlistable(&self.path, source))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            records.extend(self.load(&entry.path())?);
        }
        Ok(records)
    }

    /// Overwrites or creates a record as it is, beside any state machine: import and tests.
    pub(crate) fn write(&self, record: &BoxRecord) -> StoreResult<()> {
        let path = self.layout.folder_for(&self.path, record)?;
        let execution_id = id_of(record, &path)?;
        let file = path.join(RECORD_FILE);
        let bytes = schema::encode(&file, record)?;
        folder::create_all(&self.path)?;
        if let (Layout::Executions(index), Some(metadata)) =
            (self.layout.as_ref(), &record.managed_execution)
        {
            let _index_lock = index.lock()?;
            index.claim(&metadata.operation_id, &execution_id)?;
        }
        folder::create(&path)?;
        let _lock = FileLock::lock_within(&path.join(LOCK_FILE), TRANSACTION_DEADLINE)?;
        replace(&file, &bytes)?;
        self.layout.remember(record, &execution_id);
        Ok(())
    }

    fn place(
        &self,
        path: &Path,
        record: BoxRecord,
        execution_id: &ExecutionId,
        bytes: &[u8],
    ) -> StoreResult<ManagedExecutionReservation> {
        folder::create_all(&self.path)?;
        folder::create(path)?;
        let _lock = FileLock::lock_within(&path.join(LOCK_FILE), TRANSACTION_DEADLINE)?;
        self.sweep_once(path)?;
        if let Some(existing) = self.load(path)? {
            return same_intent(existing, &record);
        }
        replace(&path.join(RECORD_FILE), bytes)?;
        self.layout.remember(&record, execution_id);
        Ok(ManagedExecutionReservation::Reserved(record))
    }

    fn load(&self, folder: &Path) -> StoreResult<Option<BoxRecord>> {
        let Some(record) = schema::load(&folder.join(RECORD_FILE))? else {
            return Ok(None);
        };
        self.layout.check_place(folder, &record)?;
        Ok(Some(record))
    }

    fn lock(&self, execution_id: &ExecutionId) -> StoreResult<(PathBuf, FileLock)> {
        let not_found = || StoreError::NotFound(execution_id.clone());
        let folder = self
            .layout
            .folder_of(&self.path, execution_id)
            .ok_or_else(not_found)?;
        match FileLock::lock_within(&folder.join(LOCK_FILE), TRANSACTION_DEADLINE) {
            Ok(lock) => {
                self.sweep_once(&folder)?;
                Ok((folder, lock))
            }
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => Err(not_found()),
            Err(error) => Err(error.into()),
        }
    }

    fn expect(
        &self,
        folder: &Path,
        execution_id: &ExecutionId,
        (state, generation): (ManagedExecutionState, ExecutionGeneration),
    ) -> StoreResult<BoxRecord> {
        let record = self
            .load(folder)?
            .filter(|record| record.id == execution_id.as_str())
            .ok_or_else(|| StoreError::NotFound(execution_id.clone()))?;
        let Some(metadata) = &record.managed_execution else {
            return Err(conflict(execution_id, "it is not managed".to_owned()));
        };
        if metadata.generation != generation {
            return Err(conflict(
                execution_id,
                format!(
                    "generation {generation} is not the current one, {}",
                    metadata.generation
                ),
            ));
        }
        if record.status != state.as_status() {
            return Err(conflict(
                execution_id,
                format!("it is {}, not {state}", record.status),
            ));
        }
        Ok(record)
    }

    /// Under the folder's lock, before this store's first change in it.
    fn sweep_once(&self, folder: &Path) -> StoreResult<()> {
        if self.first_visit(folder) {
            let ready = sweep(folder)
                .map(|_| ())
                .map_err(StoreError::from)
                .and_then(|()| schema::back_up_older(&folder.join(RECORD_FILE)));
            if ready.is_err() {
                self.swept_folders().remove(folder);
            }
            return ready;
        }
        Ok(())
    }

    fn first_visit(&self, folder: &Path) -> bool {
        let mut swept = self.swept_folders();
        !swept.contains(folder) && swept.insert(folder.to_path_buf())
    }

    fn swept_folders(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn same_intent(
    existing: BoxRecord,
    wanted: &BoxRecord,
) -> StoreResult<ManagedExecutionReservation> {
    let message = match (&existing.managed_execution, &wanted.managed_execution) {
        (Some(mine), Some(theirs)) if mine.operation_id != theirs.operation_id => {
            "its place is taken by another operation"
        }
        (Some(mine), Some(theirs)) if mine.has_same_intent(theirs) => {
            return Ok(ManagedExecutionReservation::Existing(existing));
        }
        (Some(_), Some(_)) => "the operation id was used with another request",
        (None, _) | (_, None) => "its place is taken",
    };
    Err(conflict(
        &id_of(&existing, Path::new(&existing.id))?,
        message.to_owned(),
    ))
}

fn check_successor(
    record: &BoxRecord,
    execution_id: &ExecutionId,
    before: ExecutionGeneration,
) -> StoreResult<()> {
    let generation = record.managed_execution.as_ref().map(|m| m.generation);
    let is_next = generation == Some(before)
        || generation.is_some_and(|after| Some(after.get()) == before.get().checked_add(1));
    if record.id == execution_id.as_str() && is_next {
        return Ok(());
    }
    Err(conflict(
        execution_id,
        "a change may not replace the id or skip generations".to_owned(),
    ))
}

fn id_of(record: &BoxRecord, place: &Path) -> StoreResult<ExecutionId> {
    ExecutionId::new(record.id.clone()).map_err(|error| StoreError::Invalid {
        path: place.to_path_buf(),
        message: error.to_string(),
    })
}

fn conflict(execution_id: &ExecutionId, message: String) -> StoreError {
    StoreError::Conflict {
        execution_id: execution_id.clone(),
        message,
    }
}

fn remove_undurably(path: &Path) -> StoreResult<()> {
    std::fs::remove_file(path).map_err(|source| {
        StoreError::Durable(DurableError::Io {
            step: a3sbox_durable::Step::Remove,
            path: path.to_path_buf(),
            source,
        })
    })
}

fn unlistable(path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Durable(DurableError::Io {
        step: a3sbox_durable::Step::ListFolder,
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests;
