//! What a launch needs on the host beside its bundle.
//!
//! So far that is one thing: an execution restored from a filesystem snapshot finds the snapshot's
//! rootfs named in a marker file of its folder, where the bundle provider looks for an overlay lower
//! layer. The marker stays while a runtime uses it and goes with the execution's folder.

use std::path::{Path, PathBuf};

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};

use super::error::{internal, invalid};
use super::record::Execution;

/// Below the execution's folder; holds the absolute path of the lower layer.
const SNAPSHOT_LOWER_MARKER: &str = ".snapshot-lower";
const SNAPSHOTS_DIRECTORY: &str = "snapshots";
const SNAPSHOT_ROOTFS_DIRECTORY: &str = "rootfs";

/// What was prepared, and so what is taken away again when no runtime took it over.
#[derive(Debug)]
pub(super) struct HostResources {
    snapshot_lower: Option<PathBuf>,
}

impl HostResources {
    pub(super) async fn prepare(execution: &Execution<'_>) -> ExecutionManagerResult<Self> {
        let Some(snapshot_id) = &execution.metadata.request.rootfs_snapshot_id else {
            return Ok(Self {
                snapshot_lower: None,
            });
        };
        let box_dir = execution.record.box_dir.clone();
        let rootfs = snapshots_directory(&box_dir)?
            .join(snapshot_id.as_str())
            .join(SNAPSHOT_ROOTFS_DIRECTORY);
        let marker = blocking(move || write_lower_marker(&box_dir, &rootfs)).await?;
        Ok(Self {
            snapshot_lower: Some(marker),
        })
    }

    pub(super) async fn roll_back(self) -> ExecutionManagerResult<()> {
        let Some(marker) = self.snapshot_lower else {
            return Ok(());
        };
        blocking(move || {
            a3sbox_durable::remove(&marker)
                .map(|_| ())
                .map_err(|error| internal(format!("cannot remove the snapshot marker: {error}")))
        })
        .await
    }
}

/// `<home>/snapshots`, found from `<home>/boxes/<id>`.
fn snapshots_directory(box_dir: &Path) -> ExecutionManagerResult<PathBuf> {
    box_dir
        .ancestors()
        .nth(2)
        .map(|home| home.join(SNAPSHOTS_DIRECTORY))
        .ok_or_else(|| {
            internal(format!(
                "execution folder {} is not below a home folder",
                box_dir.display()
            ))
        })
}

fn write_lower_marker(box_dir: &Path, rootfs: &Path) -> ExecutionManagerResult<PathBuf> {
    let lower = std::fs::canonicalize(rootfs)
        .ok()
        .filter(|path| path.is_dir())
        .ok_or_else(|| {
            invalid(format!(
                "snapshot rootfs {} does not exist",
                rootfs.display()
            ))
        })?;
    let text = lower
        .to_str()
        .ok_or_else(|| invalid(format!("snapshot rootfs {} is not UTF-8", lower.display())))?;
    std::fs::create_dir_all(box_dir)
        .map_err(|error| internal(format!("cannot create {}: {error}", box_dir.display())))?;
    let marker = box_dir.join(SNAPSHOT_LOWER_MARKER);
    a3sbox_durable::replace(&marker, text.as_bytes())
        .map_err(|error| internal(format!("cannot write the snapshot marker: {error}")))?;
    Ok(marker)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ExecutionManagerResult<T> + Send + 'static,
) -> ExecutionManagerResult<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        ExecutionManagerError::Internal(format!("a host preparation did not finish: {error}"))
    })?
}
