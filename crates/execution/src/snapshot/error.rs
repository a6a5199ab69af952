//! Why a snapshot was not stored, read or deleted.

use std::io;
use std::path::PathBuf;

use a3sbox_core::ExecutionManagerError;
use a3sbox_durable::DurableError;

use crate::store::error_chain;

pub type SnapshotResult<T> = Result<T, SnapshotError>;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("invalid snapshot id: {0}")]
    InvalidId(String),
    #[error("snapshot {0} exists already")]
    Exists(String),
    #[error("snapshot {0} is being captured")]
    Busy(String),
    /// The container ended while it was copied.
    #[error("snapshot {0} is void: its execution ended while it was captured")]
    Void(String),
    #[error("snapshot source {} is not a folder", .0.display())]
    NoSource(PathBuf),
    #[error("manifest {} is damaged: {message}", path.display())]
    Damaged { path: PathBuf, message: String },
    #[error("cannot {step} {}", path.display())]
    Io {
        step: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl From<SnapshotError> for ExecutionManagerError {
    fn from(error: SnapshotError) -> Self {
        let text = error_chain(&error);
        match error {
            SnapshotError::InvalidId(_) => Self::InvalidRequest(text),
            SnapshotError::Exists(_)
            | SnapshotError::Busy(_)
            | SnapshotError::Void(_)
            | SnapshotError::NoSource(_)
            | SnapshotError::Io { .. }
            | SnapshotError::Durable(_) => Self::Unavailable(text),
            SnapshotError::Damaged { .. } => Self::Internal(text),
        }
    }
}
