//! The folder of published snapshots.
//!
//! ```text
//! <base>/<id>/{manifest.json,rootfs/}     published: whole, or not there
//! <base>/.staging-<id>/                   a capture under way, or what a crash left of one
//! <base>/.removed-<id>-<uuid>/            a deletion under way, or what a crash left of one
//! <base>/.lock-<id>                       held by the capture or deletion of that id
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use a3sbox_core::{ExecutionSnapshotId, SnapshotMetadata};
use a3sbox_durable::record::read;
use a3sbox_durable::{DurableError, FileLock, folder, remove, replace};
use serde::{Deserialize, Serialize};

use super::copy::{copy_tree, failed};
use super::error::{SnapshotError, SnapshotResult};

const MANIFEST_FILE: &str = "manifest.json";
const ROOTFS_FOLDER: &str = "rootfs";
const STAGING_PREFIX: &str = ".staging-";
const REMOVED_PREFIX: &str = ".removed-";
const LOCK_PREFIX: &str = ".lock-";
const MANIFEST_SCHEMA_VERSION: u32 = 1;
const MAX_MANIFEST_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Manifest {
    schema_version: u32,
    snapshot: SnapshotMetadata,
}

/// Published snapshots below one folder. Each is there as a whole or not at all.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    base: PathBuf,
}

impl SnapshotStore {
    /// Opens the store, creating its folder, and removes what interrupted captures and deletions left.
    pub fn new(base: &Path) -> SnapshotResult<Self> {
        folder::create_all(base)?;
        let store = Self::at(base);
        store.sweep()?;
        Ok(store)
    }

    /// The store at a folder that need not exist; no I/O.
    #[must_use]
    pub fn at(base: &Path) -> Self {
        Self {
            base: base.to_path_buf(),
        }
    }

    /// Copies `source` and publishes it under the metadata's id; returns the metadata with its size.
    pub fn save(
        &self,
        metadata: SnapshotMetadata,
        source: &Path,
    ) -> SnapshotResult<SnapshotMetadata> {
        self.save_if(metadata, source, || true)
    }

    /// As [`Self::save`], asking between copy and publication whether the copy still counts.
    pub(crate) fn save_if(
        &self,
        metadata: SnapshotMetadata,
        source: &Path,
        may_publish: impl FnOnce() -> bool,
    ) -> SnapshotResult<SnapshotMetadata> {
        let id = checked(&metadata.id)?;
        if !source.is_dir() {
            return Err(SnapshotError::NoSource(source.to_path_buf()));
        }
        let _lock = self.lock(&id)?;
        let published = self.base.join(id.as_str());
        if published.exists() {
            return Err(SnapshotError::Exists(metadata.id));
        }
        let staging = self.base.join(format!("{STAGING_PREFIX}{id}"));
        folder::remove_all(&staging)?;
        folder::create(&staging)?;
        let captured = self.capture(metadata, source, &staging);
        let published = captured.and_then(|metadata| {
            if !may_publish() {
                return Err(SnapshotError::Void(metadata.id));
            }
            folder::publish(&staging, &published)?;
            Ok(metadata)
        });
        if published.is_err() {
            // The capture's own error is the one to report; leftovers are swept on the next open.
            let _ = folder::remove_all(&staging);
        }
        published
    }

    /// The metadata of a published snapshot.
    pub fn get(&self, id: &ExecutionSnapshotId) -> SnapshotResult<Option<SnapshotMetadata>> {
        let path = self.base.join(id.as_str()).join(MANIFEST_FILE);
        let damaged = |message: String| SnapshotError::Damaged {
            path: path.clone(),
            message,
        };
        let Some(bytes) = read(&path, MAX_MANIFEST_BYTES)? else {
            return Ok(None);
        };
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if manifest.schema_version != MANIFEST_SCHEMA_VERSION {
            let found = manifest.schema_version;
            return Err(damaged(format!("unknown schema version {found}")));
        }
        if manifest.snapshot.id != id.as_str() {
            return Err(damaged("it names another snapshot".to_owned()));
        }
        Ok(Some(manifest.snapshot))
    }

    /// Deletes a published snapshot; whether there was one.
    pub fn delete(&self, id: &ExecutionSnapshotId) -> SnapshotResult<bool> {
        let _lock = self.lock(id)?;
        let published = self.base.join(id.as_str());
        if !published.exists() {
            return Ok(false);
        }
        // Out of sight first: a half deleted snapshot must not be restored.
        let removed = self
            .base
            .join(format!("{REMOVED_PREFIX}{id}-{}", uuid::Uuid::new_v4()));
        folder::publish(&published, &removed)?;
        folder::remove_all(&removed)?;
        remove(&self.lock_path(id))?;
        Ok(true)
    }

    /// Where a published snapshot's tree lies.
    #[must_use]
    pub fn rootfs(&self, id: &ExecutionSnapshotId) -> PathBuf {
        self.base.join(id.as_str()).join(ROOTFS_FOLDER)
    }

    fn capture(
        &self,
        mut metadata: SnapshotMetadata,
        source: &Path,
        staging: &Path,
    ) -> SnapshotResult<SnapshotMetadata> {
        metadata.size_bytes = copy_tree(source, &staging.join(ROOTFS_FOLDER))?;
        let path = staging.join(MANIFEST_FILE);
        let manifest = Manifest {
            schema_version: MANIFEST_SCHEMA_VERSION,
            snapshot: metadata,
        };
        let bytes = serde_json::to_vec(&manifest).map_err(|error| SnapshotError::Damaged {
            path: path.clone(),
            message: error.to_string(),
        })?;
        replace(&path, &bytes)?;
        // One sync for all the copied files, before the rename makes them a snapshot.
        let handle = fs::File::open(staging).map_err(failed("open", staging))?;
        rustix::fs::syncfs(&handle).map_err(|error| failed("sync", staging)(error.into()))?;
        Ok(manifest.snapshot)
    }

    fn sweep(&self) -> SnapshotResult<()> {
        for entry in fs::read_dir(&self.base).map_err(failed("list", &self.base))? {
            let entry = entry.map_err(failed("list", &self.base))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let id = if let Some(id) = name.strip_prefix(STAGING_PREFIX) {
                id
            } else if let Some(rest) = name.strip_prefix(REMOVED_PREFIX) {
                // The uuid has five groups behind the id, which may hold dashes itself.
                rest.rsplitn(6, '-').last().unwrap_or(rest)
            } else {
                continue;
            };
            let Ok(id) = checked(id) else { continue };
            match self.lock(&id) {
                Ok(_lock) => folder::remove_all(&entry.path())?,
                Err(SnapshotError::Busy(_)) => continue,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn lock(&self, id: &ExecutionSnapshotId) -> SnapshotResult<FileLock> {
        match FileLock::try_own(&self.lock_path(id)) {
            Ok(lock) => Ok(lock),
            Err(DurableError::Locked { .. }) => Err(SnapshotError::Busy(id.as_str().to_owned())),
            Err(error) if error.io_kind() == Some(ErrorKind::NotFound) => {
                folder::create_all(&self.base)?;
                Ok(FileLock::try_own(&self.lock_path(id))?)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn lock_path(&self, id: &ExecutionSnapshotId) -> PathBuf {
        self.base.join(format!("{LOCK_PREFIX}{id}"))
    }
}

fn checked(id: &str) -> SnapshotResult<ExecutionSnapshotId> {
    ExecutionSnapshotId::new(id).map_err(|error| SnapshotError::InvalidId(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), b"12345").unwrap();
        let base = dir.path().join("snapshots");
        (dir, source, base)
    }

    fn metadata(id: &str) -> SnapshotMetadata {
        SnapshotMetadata::new(id, id, "source-execution", "alpine:3.20")
    }

    fn id(id: &str) -> ExecutionSnapshotId {
        ExecutionSnapshotId::new(id).unwrap()
    }

    #[test]
    fn a_snapshot_is_published_once_and_deleted_once() {
        let (_dir, source, base) = fixture();
        let store = SnapshotStore::new(&base).unwrap();
        assert!(store.get(&id("one")).unwrap().is_none());
        let saved = store.save(metadata("one"), &source).unwrap();
        assert_eq!(saved.size_bytes, 5);
        assert_eq!(store.get(&id("one")).unwrap().unwrap(), saved);
        assert_eq!(fs::read(base.join("one/rootfs/file")).unwrap(), b"12345");
        assert!(matches!(
            store.save(metadata("one"), &source),
            Err(SnapshotError::Exists(_))
        ));
        assert!(store.delete(&id("one")).unwrap());
        assert!(!store.delete(&id("one")).unwrap());
        assert!(store.get(&id("one")).unwrap().is_none());
    }

    #[test]
    fn what_a_crash_left_is_swept_and_a_live_capture_is_not() {
        let (_dir, source, base) = fixture();
        let store = SnapshotStore::new(&base).unwrap();
        let uuid = uuid::Uuid::new_v4();
        for name in [
            ".staging-a-b",
            ".staging-live",
            &format!(".removed-a-b-{uuid}"),
        ] {
            fs::create_dir_all(base.join(name).join("rootfs")).unwrap();
        }
        let _live = store.lock(&id("live")).unwrap();
        SnapshotStore::new(&base).unwrap();
        assert!(!base.join(".staging-a-b").exists());
        assert!(!base.join(format!(".removed-a-b-{uuid}")).exists());
        assert!(base.join(".staging-live").exists());
        assert!(matches!(
            store.save(metadata("live"), &source),
            Err(SnapshotError::Busy(_))
        ));
    }

    #[test]
    fn an_id_never_names_a_path() {
        let (_dir, source, base) = fixture();
        let store = SnapshotStore::new(&base).unwrap();
        for bad in ["", "../x", "a/b", "."] {
            assert!(matches!(
                store.save(metadata(bad), &source),
                Err(SnapshotError::InvalidId(_))
            ));
        }
    }
}
