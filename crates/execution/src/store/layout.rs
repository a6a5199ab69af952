//! Where the record of an execution lies.
//!
//! ```text
//! executions:  <state path>/<execution id>/{record.json,journal.log,.lock}      <state path>/.operations/<digest>
//! containers:  <namespace root>/<container id>/{record.json,journal.log,.lock,owner.lock}
//! ```
//! Ids that are no harmless file names are encoded (file `name.rs`). In the second layout the folder
//! is found by the container id; execution and operation ids are known for the containers that this
//! process reserved or loaded, which are the ones that it owns.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use a3sbox_core::{ExecutionId, OperationId};

use super::error::{StoreError, StoreResult};
use super::index::OperationIndex;
use super::name::folder_name;
use super::record::BoxRecord;
use crate::task::TaskKey;

pub(crate) const RECORD_FILE: &str = "record.json";
pub(crate) const JOURNAL_FILE: &str = "journal.log";
pub(crate) const LOCK_FILE: &str = ".lock";
pub(crate) const OWNER_LOCK_FILE: &str = "owner.lock";

#[derive(Debug)]
pub(crate) enum Layout {
    Executions(OperationIndex),
    Containers(Mutex<Known>),
}

/// The containers of this process.
#[derive(Debug, Default)]
pub(crate) struct Known {
    folders: HashMap<ExecutionId, String>,
    operations: HashMap<OperationId, ExecutionId>,
}

impl Layout {
    pub(crate) fn executions(state_path: &Path) -> Self {
        Self::Executions(OperationIndex::new(state_path))
    }

    pub(crate) fn containers() -> Self {
        Self::Containers(Mutex::new(Known::default()))
    }

    /// The folder of a known execution, below the state path.
    pub(crate) fn folder_of(&self, root: &Path, execution_id: &ExecutionId) -> Option<PathBuf> {
        match self {
            Self::Executions(_) => Some(root.join(folder_name(execution_id.as_str()))),
            Self::Containers(known) => lock(known)
                .folders
                .get(execution_id)
                .map(|name| root.join(name)),
        }
    }

    /// The folder that a new record goes to.
    pub(crate) fn folder_for(&self, root: &Path, record: &BoxRecord) -> StoreResult<PathBuf> {
        Ok(root.join(self.expected_name(record, root)?))
    }

    /// A record found in a folder must be the one that belongs there.
    pub(crate) fn check_place(&self, folder: &Path, record: &BoxRecord) -> StoreResult<()> {
        let expected = self.expected_name(record, folder)?;
        if folder
            .file_name()
            .is_some_and(|name| name == expected.as_str())
        {
            return Ok(());
        }
        Err(StoreError::Invalid {
            path: folder.join(RECORD_FILE),
            message: format!("it belongs to folder {expected}"),
        })
    }

    fn expected_name(&self, record: &BoxRecord, place: &Path) -> StoreResult<String> {
        match self {
            Self::Executions(_) => Ok(folder_name(&record.id)),
            Self::Containers(_) => key_of(record)
                .map(|key| folder_name(&key.container_id))
                .ok_or_else(|| StoreError::Invalid {
                    path: place.to_path_buf(),
                    message: format!("execution {} names no container", record.id),
                }),
        }
    }

    /// Remembers a record of this process.
    pub(crate) fn remember(&self, record: &BoxRecord, execution_id: &ExecutionId) {
        if let (Self::Containers(known), Some(metadata)) = (self, &record.managed_execution)
            && let Some(task) = &metadata.task
        {
            let mut known = lock(known);
            known
                .folders
                .insert(execution_id.clone(), folder_name(&task.key.container_id));
            known
                .operations
                .insert(metadata.operation_id.clone(), execution_id.clone());
        }
    }

    pub(crate) fn forget(&self, execution_id: &ExecutionId) {
        if let Self::Containers(known) = self {
            let mut known = lock(known);
            known.folders.remove(execution_id);
            known.operations.retain(|_, id| id != execution_id);
        }
    }

    pub(crate) fn find_operation(
        &self,
        operation_id: &OperationId,
    ) -> StoreResult<Option<ExecutionId>> {
        match self {
            Self::Executions(index) => index.find(operation_id),
            Self::Containers(known) => Ok(lock(known).operations.get(operation_id).cloned()),
        }
    }
}

pub(crate) fn key_of(record: &BoxRecord) -> Option<&TaskKey> {
    Some(&record.managed_execution.as_ref()?.task.as_ref()?.key)
}

/// A map that a panic left behind is still a map.
fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
