//! The capture of a filesystem snapshot: from a quiescent rootfs to a published copy of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use a3sbox_core::{
    ExecutionManagerError, ExecutionManagerResult, ExecutionSnapshotId, SnapshotImageConfig,
    SnapshotMetadata,
};

use super::backend::LocalExecutionBackend;
use super::evidence::internal;
use crate::snapshot::SnapshotStore;
use crate::store::BoxRecord;

pub(super) const SNAPSHOTS_FOLDER: &str = "snapshots";
const ROOTFS_FOLDER: &str = "rootfs";

/// One snapshot that is to be taken, and where it goes.
#[derive(Clone)]
pub(crate) struct SnapshotSource {
    backend: Arc<dyn LocalExecutionBackend>,
    home: PathBuf,
    snapshot_id: ExecutionSnapshotId,
}

impl std::fmt::Debug for SnapshotSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotSource")
            .field("home", &self.home)
            .field("snapshot_id", &self.snapshot_id)
            .finish_non_exhaustive()
    }
}

impl SnapshotSource {
    pub(crate) const fn new(
        backend: Arc<dyn LocalExecutionBackend>,
        home: PathBuf,
        snapshot_id: ExecutionSnapshotId,
    ) -> Self {
        Self {
            backend,
            home,
            snapshot_id,
        }
    }

    /// Publishes the snapshot unless it is published already. `is_void` is asked between copy and
    /// publication: a container that ended while it was copied may have lost its mounts.
    pub(crate) async fn capture(
        &self,
        record: &BoxRecord,
        is_void: Option<&Arc<AtomicBool>>,
    ) -> ExecutionManagerResult<()> {
        if self.published(record)?.is_some() {
            return Ok(());
        }
        self.backend.prepare_quiescent_rootfs(record).await?;
        let captured = self.copy_rootfs(record, is_void.map(Arc::clone)).await;
        let cleaned = self.backend.cleanup_quiescent_rootfs(record).await;
        captured.and(cleaned)
    }

    /// The size of the published snapshot of this execution; one of another execution is a conflict.
    pub(crate) fn published(&self, record: &BoxRecord) -> ExecutionManagerResult<Option<u64>> {
        let stored = SnapshotStore::at(&self.home.join(SNAPSHOTS_FOLDER)).get(&self.snapshot_id)?;
        match stored {
            Some(metadata) if metadata.source_execution == record.id => {
                Ok(Some(metadata.size_bytes))
            }
            Some(_) => Err(ExecutionManagerError::Conflict {
                execution_id: record.execution_id()?,
                message: format!("snapshot {} is of another execution", self.snapshot_id),
            }),
            None => Ok(None),
        }
    }

    async fn copy_rootfs(
        &self,
        record: &BoxRecord,
        is_void: Option<Arc<AtomicBool>>,
    ) -> ExecutionManagerResult<()> {
        let rootfs = rootfs_of(record);
        let base = self.home.join(SNAPSHOTS_FOLDER);
        let mut metadata = SnapshotMetadata::new(
            self.snapshot_id.as_str(),
            self.snapshot_id.as_str(),
            record.id.clone(),
            record.image.clone(),
        );
        metadata.image_config = Some(image_config(record));
        let id = record.id.clone();
        tokio::task::spawn_blocking(move || {
            if !is_populated(&rootfs) {
                return Err(ExecutionManagerError::Unavailable(format!(
                    "execution {id} has no populated managed rootfs to snapshot"
                )));
            }
            let may_publish = || is_void.is_none_or(|is_void| !is_void.load(Ordering::Acquire));
            SnapshotStore::new(&base)?.save_if(metadata, &rootfs, may_publish)?;
            Ok(())
        })
        .await
        .map_err(|error| internal(format!("the capture was not finished: {error}")))?
    }
}

/// Where the host sees the execution's filesystem: containerd's mount for a task, else our own folder.
fn rootfs_of(record: &BoxRecord) -> PathBuf {
    let bundle = record
        .managed_execution
        .as_ref()
        .and_then(|managed| managed.task.as_ref())
        .map(|task| task.bundle.as_path());
    bundle.unwrap_or(&record.box_dir).join(ROOTFS_FOLDER)
}

fn is_populated(rootfs: &Path) -> bool {
    std::fs::read_dir(rootfs).is_ok_and(|mut entries| entries.next().is_some())
}

/// What a restore has to know; the record's own settings stand for the image's.
fn image_config(record: &BoxRecord) -> SnapshotImageConfig {
    SnapshotImageConfig {
        entrypoint: record.entrypoint.clone(),
        cmd: (!record.cmd.is_empty()).then(|| record.cmd.clone()),
        env: record
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        working_dir: record.workdir.clone(),
        user: record.user.clone(),
        stop_signal: record.stop_signal.clone(),
        labels: record
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    }
}
