//! What can go wrong while state is written, with the path and the step.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub type DurableResult<T> = Result<T, DurableError>;

/// The file operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    CreateFolder,
    OpenFolder,
    ListFolder,
    SyncFolder,
    CreateTemporary,
    Open,
    Read,
    Write,
    SyncFile,
    Rename,
    Truncate,
    Remove,
    Lock,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateFolder => "create folder",
            Self::OpenFolder => "open folder",
            Self::ListFolder => "list folder",
            Self::SyncFolder => "sync folder",
            Self::CreateTemporary => "create temporary file",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::SyncFile => "sync",
            Self::Rename => "replace",
            Self::Truncate => "truncate",
            Self::Remove => "remove",
            Self::Lock => "lock",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    #[error("cannot {step} {}", path.display())]
    Io {
        step: Step,
        path: PathBuf,
        source: io::Error,
    },
    /// The path has no folder or no file name, so nothing beside it can be named.
    #[error("{} does not name a file in a folder", .0.display())]
    NotAFile(PathBuf),
    /// A line in the middle of a journal is damaged: valid lines follow it, so it was not torn by a crash.
    #[error("journal {} is damaged at byte {offset}", path.display())]
    Damaged { path: PathBuf, offset: u64 },
    #[error("an entry of {size} bytes exceeds the {limit} allowed in journal {}", path.display())]
    EntryTooLarge {
        path: PathBuf,
        size: usize,
        limit: usize,
    },
    #[error("an entry of journal {} is empty or holds a line break", .0.display())]
    EntryMalformed(PathBuf),
    #[error("journal {} would pass its limit of {limit} bytes", path.display())]
    JournalFull { path: PathBuf, limit: u64 },
    /// Somebody else holds the lock; `owner` is the process that wrote its id into the lock file.
    #[error("{} is locked{}", path.display(), owner_text(*owner))]
    Locked { path: PathBuf, owner: Option<u32> },
}

fn owner_text(owner: Option<u32>) -> String {
    owner.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl DurableError {
    pub(crate) fn io(step: Step, path: &Path, source: io::Error) -> Self {
        Self::Io {
            step,
            path: path.to_path_buf(),
            source,
        }
    }

    /// The kind of the underlying I/O error, when there is one.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::NotAFile(_)
            | Self::Damaged { .. }
            | Self::EntryTooLarge { .. }
            | Self::EntryMalformed(_)
            | Self::JournalFull { .. }
            | Self::Locked { .. } => None,
        }
    }
}
