//! The manager on a small backend of its own: claims, conflicts, repeats and interrupted operations.

mod conflicts;
mod create;
mod interrupted;
mod lifecycle;
mod overlap;
mod probe;
mod races;
mod restart;
mod snapshots;

use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_core::{
    ExecutionGeneration, ExecutionLease, ExecutionManager, ExecutionManagerError,
    ExecutionManagerResult, OperationId,
};

use super::LocalExecutionManager;
use crate::BoxRecord;
use crate::store::test_fixture::{operation, request};
use probe::Probe;

/// A manager on a probe, with the files of both.
struct World {
    dir: tempfile::TempDir,
    probe: Arc<Probe>,
    manager: LocalExecutionManager,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let probe = Arc::new(Probe::default());
        let manager = open(&dir, &probe);
        Self {
            dir,
            probe,
            manager,
        }
    }

    /// Another process: nothing but the files and the backend is the same.
    fn reopen(&mut self) {
        self.manager = open(&self.dir, &self.probe);
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    async fn launch(&self) -> ExecutionLease {
        self.manager
            .create_and_start(request("alpine:3.20"), &create_op())
            .await
            .unwrap()
    }

    async fn stored(&self, lease: &ExecutionLease) -> BoxRecord {
        self.manager
            .get(&lease.execution_id)
            .await
            .unwrap()
            .unwrap()
    }
}

fn open(dir: &tempfile::TempDir, probe: &Arc<Probe>) -> LocalExecutionManager {
    let backend: Arc<Probe> = Arc::clone(probe);
    LocalExecutionManager::new(
        dir.path().join("boxes.json"),
        dir.path().join("home"),
        backend,
    )
}

fn create_op() -> OperationId {
    operation("create-op")
}

fn generation(value: u64) -> ExecutionGeneration {
    ExecutionGeneration::new(value).unwrap()
}

fn assert_conflict<T: std::fmt::Debug>(result: ExecutionManagerResult<T>) {
    assert!(
        matches!(result, Err(ExecutionManagerError::Conflict { .. })),
        "{result:?}"
    );
}

fn assert_unavailable<T: std::fmt::Debug>(result: ExecutionManagerResult<T>) {
    assert!(
        matches!(result, Err(ExecutionManagerError::Unavailable(_))),
        "{result:?}"
    );
}
