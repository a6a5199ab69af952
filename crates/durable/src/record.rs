//! Replacement of a whole file: temporary in the same folder, write, sync, rename, sync of the folder.
//!
//! A reader sees the old or the new contents, never a mixture, and needs no lock. Writers of one file
//! serialise among themselves (see [`crate::lock`]); an unserialised second writer loses no bytes, but one
//! of the two replacements wins.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{DurableError, DurableResult, Step};
use crate::folder;

/// Start of the name of every temporary; [`crate::sweep()`] knows leftovers by it.
pub const TEMPORARY_PREFIX: &str = ".a3sbox-tmp-";
/// Records may hold environment variables: for their owner alone.
const FILE_MODE: u32 = 0o600;
/// Attempts to find a free temporary name; a name is taken only after a crash at the same nanosecond.
const TEMPORARY_NAME_ATTEMPTS: u32 = 16;

static NEXT_TEMPORARY: AtomicU64 = AtomicU64::new(0);

/// Replaces `path` by `contents`. When this returns `Ok`, the contents survive a crash of the machine.
///
/// On error before the rename the old file is untouched and the temporary is removed. An error of the last
/// step, the sync of the folder, leaves the new contents visible and their durability unknown.
pub fn replace(path: &Path, contents: &[u8]) -> DurableResult<()> {
    let parent = containing_folder(path)?;
    let (temporary, mut file) = create_temporary(parent)?;
    let written =
        write_and_sync(&mut file, &temporary, contents).and_then(|()| rename(&temporary, path));
    if let Err(error) = written {
        // The first error is the one that matters; what cannot be removed now is swept on the next open.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    folder::sync(parent)
}

/// Removes the file durably. `false` when there was none.
pub fn remove(path: &Path) -> DurableResult<bool> {
    let parent = containing_folder(path)?;
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(DurableError::io(Step::Remove, path, error)),
    }
    folder::sync(parent)?;
    Ok(true)
}

/// Reads a whole file of at most `limit` bytes. `None` when it does not exist.
pub fn read(path: &Path, limit: u64) -> DurableResult<Option<Vec<u8>>> {
    use std::io::Read as _;

    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DurableError::io(Step::Open, path, error)),
    };
    let mut contents = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut contents)
        .map_err(|e| DurableError::io(Step::Read, path, e))?;
    if u64::try_from(contents.len()).is_ok_and(|len| len > limit) {
        let source = std::io::Error::new(
            ErrorKind::InvalidData,
            format!("file is larger than {limit} bytes"),
        );
        return Err(DurableError::io(Step::Read, path, source));
    }
    Ok(Some(contents))
}

fn containing_folder(path: &Path) -> DurableResult<&Path> {
    if path.file_name().is_none() {
        return Err(DurableError::NotAFile(path.to_path_buf()));
    }
    folder::parent_of(path).ok_or_else(|| DurableError::NotAFile(path.to_path_buf()))
}

fn create_temporary(parent: &Path) -> DurableResult<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        let temporary = parent.join(temporary_name());
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&temporary);
        match created {
            Ok(file) => return Ok((temporary, file)),
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && attempt < TEMPORARY_NAME_ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(error) => {
                return Err(DurableError::io(Step::CreateTemporary, &temporary, error));
            }
        }
    }
}

fn temporary_name() -> String {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_nanos());
    let counter = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
    format!(
        "{TEMPORARY_PREFIX}{}-{counter}-{nanos:x}",
        std::process::id()
    )
}

fn write_and_sync(file: &mut File, temporary: &Path, contents: &[u8]) -> DurableResult<()> {
    file.write_all(contents)
        .map_err(|e| DurableError::io(Step::Write, temporary, e))?;
    file.sync_all()
        .map_err(|e| DurableError::io(Step::SyncFile, temporary, e))
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one function that the lint points everybody else to"
)]
fn rename(temporary: &Path, path: &Path) -> DurableResult<()> {
    std::fs::rename(temporary, path).map_err(|e| DurableError::io(Step::Rename, path, e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn replaces_and_leaves_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["record.json"]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn failed_rename_keeps_the_old_file_and_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        // A folder in the way makes exactly the rename fail.
        std::fs::create_dir(&path).unwrap();
        let error = replace(&path, b"new").unwrap_err();
        assert!(
            matches!(
                error,
                DurableError::Io {
                    step: Step::Rename,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(names(dir.path()), ["record.json"]);
        assert!(path.is_dir());
    }

    #[test]
    fn a_missing_folder_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let error = replace(&dir.path().join("gone/record.json"), b"x").unwrap_err();
        assert!(matches!(
            error,
            DurableError::Io {
                step: Step::CreateTemporary,
                ..
            }
        ));
        assert_eq!(error.io_kind(), Some(ErrorKind::NotFound));
        assert!(error.to_string().contains("gone"), "{error}");
    }

    #[test]
    fn reads_with_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        assert!(read(&path, 3).unwrap().is_none());
        replace(&path, b"abc").unwrap();
        assert_eq!(read(&path, 3).unwrap().unwrap(), b"abc");
        assert_eq!(
            read(&path, 2).unwrap_err().io_kind(),
            Some(ErrorKind::InvalidData)
        );
    }

    #[test]
    fn remove_tells_whether_there_was_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        replace(&path, b"abc").unwrap();
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
    }
}
