//! Folders that must survive a crash: creation and the sync of their entries.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::error::{DurableError, DurableResult, Step};

/// State is for its owner alone.
const FOLDER_MODE: u32 = 0o700;

/// Makes renames, creations and removals inside `folder` durable.
pub fn sync(folder: &Path) -> DurableResult<()> {
    let handle = File::open(folder).map_err(|e| DurableError::io(Step::OpenFolder, folder, e))?;
    handle
        .sync_all()
        .map_err(|e| DurableError::io(Step::SyncFolder, folder, e))
}

/// Creates one folder below an existing parent and makes it durable. `false` when it was there. After an
/// error it is not there.
pub fn create(folder: &Path) -> DurableResult<bool> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Ok(()) => {
            if let Some(parent) = parent_of(folder)
                && let Err(error) = sync(parent)
            {
                // It was made for nothing, and the next attempt must not find it in its way.
                let _ = std::fs::remove_dir(folder);
                return Err(error);
            }
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(false),
        Err(error) => Err(DurableError::io(Step::CreateFolder, folder, error)),
    }
}

/// Creates `folder` and its missing ancestors, each durably.
pub fn create_all(folder: &Path) -> DurableResult<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = parent_of(folder) {
        create_all(parent)?;
    }
    create(folder).map(|_| ())
}

/// Removes `folder` with everything in it, durably. `false` when there was none.
pub fn remove_all(folder: &Path) -> DurableResult<bool> {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound && !folder.exists() => return Ok(false),
        Err(error) => return Err(DurableError::io(Step::Remove, folder, error)),
    }
    if let Some(parent) = parent_of(folder) {
        sync(parent)?;
    }
    Ok(true)
}

/// The parent of a path; the working directory for a bare name.
pub(crate) fn parent_of(path: &Path) -> Option<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(Path::new(".")),
        other => other,
    }
}

/// Renames a folder to a free name in the same parent, durably: it appears there whole.
#[expect(
    clippy::disallowed_methods,
    reason = "with `record::replace` the one place that the lint points everybody else to"
)]
pub fn publish(from: &Path, to: &Path) -> DurableResult<()> {
    std::fs::rename(from, to).map_err(|e| DurableError::io(Step::Rename, to, e))?;
    match parent_of(to) {
        Some(parent) => sync(parent),
        None => Ok(()),
    }
}
