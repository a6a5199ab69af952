//! Operation id → execution id, so that a repeated create and a reconcile cost the same on a node with
//! one execution and with ten thousand.
//!
//! One small file per operation, named by the digest of its id. An entry is written before the record it
//! names, under the index lock: an entry without a record is a create that was interrupted before it
//! counted, and the next create of that operation takes it over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_core::{ExecutionId, OperationId};
use a3sbox_durable::record::read;
use a3sbox_durable::{FileLock, folder, remove, replace, sweep};
use serde::{Deserialize, Serialize};

use super::error::{StoreError, StoreResult};
use super::name::hex_digest;
use super::schema::invalid;

/// Hidden, so that no execution's folder can have this name.
const INDEX_FOLDER: &str = ".operations";
const LOCK_FILE: &str = ".lock";
const INDEX_SCHEMA_VERSION: u32 = 1;
/// An entry holds two ids of the caller's.
const MAX_ENTRY_BYTES: u64 = 1024 * 1024;
/// A reservation is a handful of small writes.
const LOCK_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    schema_version: u32,
    operation_id: OperationId,
    execution_id: ExecutionId,
}

/// The index below one state path.
#[derive(Debug)]
pub(crate) struct OperationIndex {
    folder: PathBuf,
}

impl OperationIndex {
    pub(crate) fn new(state_path: &Path) -> Self {
        Self {
            folder: state_path.join(INDEX_FOLDER),
        }
    }

    /// Serialises reservations. Creates the index when it is missing.
    pub(crate) fn lock(&self) -> StoreResult<FileLock> {
        folder::create_all(&self.folder)?;
        let lock = FileLock::lock_within(&self.folder.join(LOCK_FILE), LOCK_DEADLINE)?;
        Ok(lock)
    }

    /// Removes what interrupted writes left. Under the lock.
    pub(crate) fn sweep(&self) -> StoreResult<()> {
        sweep(&self.folder)?;
        Ok(())
    }

    pub(crate) fn find(&self, operation_id: &OperationId) -> StoreResult<Option<ExecutionId>> {
        let path = self.path_of(operation_id);
        let Some(bytes) = read(&path, MAX_ENTRY_BYTES)? else {
            return Ok(None);
        };
        let entry: Entry =
            serde_json::from_slice(&bytes).map_err(|error| invalid(&path, error.to_string()))?;
        if entry.schema_version != INDEX_SCHEMA_VERSION {
            return Err(StoreError::UnknownSchema {
                path,
                found: u64::from(entry.schema_version),
                known: INDEX_SCHEMA_VERSION,
            });
        }
        if entry.operation_id != *operation_id {
            return Err(invalid(&path, "it names another operation".to_owned()));
        }
        Ok(Some(entry.execution_id))
    }

    /// Points the operation at an execution, durably.
    pub(crate) fn claim(
        &self,
        operation_id: &OperationId,
        execution_id: &ExecutionId,
    ) -> StoreResult<()> {
        let path = self.path_of(operation_id);
        let entry = Entry {
            schema_version: INDEX_SCHEMA_VERSION,
            operation_id: operation_id.clone(),
            execution_id: execution_id.clone(),
        };
        let bytes = serde_json::to_vec(&entry).map_err(|e| invalid(&path, e.to_string()))?;
        replace(&path, &bytes)?;
        Ok(())
    }

    /// Forgets the operation when it still points at that execution.
    pub(crate) fn release(
        &self,
        operation_id: &OperationId,
        execution_id: &ExecutionId,
    ) -> StoreResult<()> {
        if self.find(operation_id)?.as_ref() == Some(execution_id) {
            remove(&self.path_of(operation_id))?;
        }
        Ok(())
    }

    fn path_of(&self, operation_id: &OperationId) -> PathBuf {
        self.folder
            .join(hex_digest(operation_id.as_str().as_bytes()))
    }
}
