//! The manager itself: what it holds, and how it reads and changes records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManagerError, ExecutionManagerResult, Fence,
};

use super::active::Active;
use super::backend::LocalExecutionBackend;
use super::span::name_container;
use crate::store::{
    BoxRecord, ManagedExecutionOperation, ManagedExecutionReservation, ManagedExecutionState,
    ManagedExecutionStore, RuntimeUpdate,
};
use crate::task::TaskHub;
use tracing::Instrument as _;

/// Manages the executions recorded below one path, on one backend.
///
/// Clones share everything. Managers of several processes may work on the same path: transactions are
/// compare-and-set on state and generation.
#[derive(Clone)]
pub struct LocalExecutionManager {
    pub(crate) store: ManagedExecutionStore,
    pub(crate) home_dir: PathBuf,
    pub(crate) backend: Arc<dyn LocalExecutionBackend>,
    pub(super) active: Active,
    /// The containers that this manager owns for containerd.
    pub(crate) tasks: Arc<TaskHub>,
}

impl std::fmt::Debug for LocalExecutionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalExecutionManager")
            .field("state_path", &self.store.path())
            .field("home_dir", &self.home_dir)
            .finish_non_exhaustive()
    }
}

impl LocalExecutionManager {
    /// A manager of records by execution id. No I/O.
    pub fn new(
        state_path: impl Into<PathBuf>,
        home_dir: impl Into<PathBuf>,
        backend: Arc<dyn LocalExecutionBackend>,
    ) -> Self {
        Self::with_store(
            ManagedExecutionStore::new(state_path),
            home_dir.into(),
            backend,
        )
    }

    /// A manager of the containers of one containerd namespace, found by container id. No I/O.
    pub fn for_containers(
        namespace_root: impl Into<PathBuf>,
        home_dir: impl Into<PathBuf>,
        backend: Arc<dyn LocalExecutionBackend>,
    ) -> Self {
        Self::with_store(
            ManagedExecutionStore::for_containers(namespace_root),
            home_dir.into(),
            backend,
        )
    }

    fn with_store(
        store: ManagedExecutionStore,
        home_dir: PathBuf,
        backend: Arc<dyn LocalExecutionBackend>,
    ) -> Self {
        let tasks = TaskHub::new(store.clone(), home_dir.clone(), Arc::clone(&backend));
        Self {
            store,
            home_dir,
            backend,
            active: Active::default(),
            tasks: Arc::new(tasks),
        }
    }

    #[must_use]
    pub fn state_path(&self) -> &Path {
        self.store.path()
    }

    /// The record as it is stored; nothing is asked of the backend.
    pub(crate) async fn get(
        &self,
        execution_id: &ExecutionId,
    ) -> ExecutionManagerResult<Option<BoxRecord>> {
        Ok(self.store.get(execution_id)?)
    }

    pub(crate) async fn reserve(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<ManagedExecutionReservation> {
        Ok(self.store.reserve(record)?)
    }

    /// One durable step of the state table, refused with `Conflict` when the record has moved on.
    pub(crate) async fn transition(
        &self,
        record: &BoxRecord,
        from: ManagedExecutionState,
        to: ManagedExecutionState,
        update: RuntimeUpdate,
    ) -> ExecutionManagerResult<BoxRecord> {
        let execution_id = record.execution_id()?;
        let generation = record.generation()?;
        let after = self
            .store
            .transition(&execution_id, generation, from, to, update)?;
        tracing::info!(
            execution_id = %execution_id,
            generation = after.generation()?.get(),
            %from,
            %to,
            "execution changed state"
        );
        Ok(after)
    }

    /// Records that the freeze of the claimed snapshot took effect.
    pub(crate) async fn mark_snapshot_freezer_applied(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let execution_id = record.execution_id()?;
        let metadata = record.metadata()?;
        let Some(ManagedExecutionOperation::Snapshot { operation_id, .. }) =
            &metadata.pending_operation
        else {
            return Err(ExecutionManagerError::Internal(format!(
                "execution {execution_id} has no pending snapshot"
            )));
        };
        Ok(self.store.mark_snapshot_freezer_applied(
            &execution_id,
            metadata.generation,
            operation_id,
        )?)
    }

    /// The record of an execution that must exist.
    pub(super) fn require(&self, execution_id: &ExecutionId) -> ExecutionManagerResult<BoxRecord> {
        self.store
            .get(execution_id)?
            .ok_or_else(|| ExecutionManagerError::NotFound(execution_id.clone()))
            .inspect(name_container)
    }

    /// The record of an execution that must exist in the caller's generation.
    pub(super) fn require_current(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<BoxRecord> {
        let record = self.require(execution_id)?;
        Fence::new(execution_id, record.generation()?).admit(generation)?;
        Ok(record)
    }

    /// Runs a verb to its end even when the caller hangs up: an effect that began is recorded.
    pub(super) async fn to_the_end<T: Send + 'static>(
        verb: impl Future<Output = ExecutionManagerResult<T>> + Send + 'static,
    ) -> ExecutionManagerResult<T> {
        match tokio::spawn(verb.in_current_span()).await {
            Ok(answer) => answer,
            Err(failure) => Err(ExecutionManagerError::Internal(format!(
                "the operation was not finished: {failure}"
            ))),
        }
    }
}
