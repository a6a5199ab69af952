//! Advisory locks (flock) on files: ownership for life, and short transactions.
//!
//! The lock ends with the [`FileLock`], also when the process dies. The lock file stays: removing it would
//! let two holders lock two files of the same name. A lock whose file was removed (with its whole folder)
//! while somebody waited for it is detected and taken again on the file that is there now.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{DurableError, DurableResult, Step};

const FILE_MODE: u32 = 0o600;
/// Pause between attempts while a transaction of somebody else is under way (it lasts about as long).
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The longest decimal process id, with room to spare.
const MAX_OWNER_TEXT_BYTES: u64 = 16;

/// A held lock.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// Takes the lock for life and writes this process's id into it, so that others can name the owner.
    /// [`DurableError::Locked`] when it is held.
    pub fn try_own(path: &Path) -> DurableResult<Self> {
        let mut lock = Self::try_lock(path)?;
        lock.write_owner()?;
        Ok(lock)
    }

    /// Takes the lock, waiting at most `deadline` for its holder. Writes nothing.
    pub fn lock_within(path: &Path, deadline: Duration) -> DurableResult<Self> {
        let give_up_at = Instant::now() + deadline;
        loop {
            match Self::try_lock(path) {
                Err(DurableError::Locked { path, owner }) => {
                    if Instant::now() >= give_up_at {
                        return Err(DurableError::Locked { path, owner });
                    }
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                other => return other,
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(path: &Path) -> DurableResult<Self> {
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(FILE_MODE)
                .open(path)
                .map_err(|e| DurableError::io(Step::Open, path, e))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(DurableError::Locked {
                        path: path.to_path_buf(),
                        owner: read_owner(&mut file),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(DurableError::io(Step::Lock, path, error));
                }
            }
            if is_still_there(&file, path)? {
                return Ok(Self {
                    file,
                    path: path.to_path_buf(),
                });
            }
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_owner(&mut self) -> DurableResult<()> {
        let text = format!("{}\n", std::process::id());
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(text.as_bytes()))
            .map_err(|e| DurableError::io(Step::Write, &self.path, e))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A child between fork and exec holds a copy of the descriptor; closing ours alone would leave the
        // lock to it. Unlocking acts on the shared description.
        let _ = self.file.unlock();
    }
}

/// The process that wrote its id into the lock file, held or not. `None` when there is none.
#[must_use]
pub fn owner_of(path: &Path) -> Option<u32> {
    read_owner(&mut File::open(path).ok()?)
}

/// The process that holds the lock right now. The lock is not touched: a probe that took it, if only for
/// a moment, would refuse an owner that comes in that moment. `None` when nobody holds it, and where this
/// process may not look into that one.
///
/// The kernel tells by descriptor (`lock:` in `/proc/<pid>/fdinfo/<fd>`). The list of all locks, `/proc/locks`,
/// will not do: it is read in pieces and can miss an entry while others come and go.
#[must_use]
pub fn holder_of(path: &Path) -> Option<u32> {
    let file = std::fs::metadata(path).ok()?;
    let owner = owner_of(path)?;
    let process = PathBuf::from(format!("/proc/{owner}"));
    let descriptors = std::fs::read_dir(process.join("fd")).ok()?;
    let holds = descriptors.flatten().any(|descriptor| {
        let is_same = std::fs::metadata(descriptor.path())
            .is_ok_and(|open| open.ino() == file.ino() && open.dev() == file.dev());
        is_same
            && std::fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()))
                .is_ok_and(|info| info.lines().any(is_flock))
    });
    holds.then_some(owner)
}

/// `lock:  1: FLOCK  ADVISORY  WRITE 4242 00:2f:1234 0 EOF`.
fn is_flock(line: &str) -> bool {
    line.starts_with("lock:") && line.split_ascii_whitespace().any(|field| field == "FLOCK")
}

fn read_owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(MAX_OWNER_TEXT_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    text.trim().parse().ok()
}

fn is_still_there(file: &File, path: &Path) -> DurableResult<bool> {
    let held = file
        .metadata()
        .map_err(|e| DurableError::io(Step::Lock, path, e))?;
    match std::fs::metadata(path) {
        Ok(current) => Ok(current.ino() == held.ino() && current.dev() == held.dev()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DurableError::io(Step::Lock, path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_owner_is_told_who_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owner.lock");
        let held = FileLock::try_own(&path).unwrap();
        match FileLock::try_own(&path).unwrap_err() {
            DurableError::Locked { owner, .. } => assert_eq!(owner, Some(std::process::id())),
            other => panic!("unexpected {other:?}"),
        }
        assert_eq!(owner_of(&path), Some(std::process::id()));
        assert_eq!(holder_of(&path), Some(std::process::id()));
        drop(held);
        assert_eq!(holder_of(&path), None, "the text stays, the lock does not");
        FileLock::try_own(&path).unwrap();
    }

    #[test]
    fn waiting_ends_at_the_deadline_or_with_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("transaction.lock");
        let held = FileLock::try_lock(&path).unwrap();
        let error = FileLock::lock_within(&path, Duration::from_millis(5)).unwrap_err();
        assert!(matches!(error, DurableError::Locked { owner: None, .. }));
        let waiting = {
            let path = path.clone();
            std::thread::spawn(move || FileLock::lock_within(&path, Duration::from_secs(10)))
        };
        drop(held);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_lock_on_a_removed_file_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owner.lock");
        let old = FileLock::try_own(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let new = FileLock::try_own(&path).unwrap();
        assert!(!is_still_there(&old.file, &path).unwrap());
        assert!(is_still_there(&new.file, &path).unwrap());
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = FileLock::try_lock(&dir.path().join("gone/lock")).unwrap_err();
        assert_eq!(error.io_kind(), Some(ErrorKind::NotFound));
    }
}
