//! Why the store did not do it.

use std::io;
use std::path::PathBuf;

use a3sbox_core::{ExecutionId, ExecutionManagerError};
use a3sbox_durable::DurableError;

use super::state::IllegalTransition;

pub type StoreResult<T> = Result<T, StoreError>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("execution {0} is not recorded")]
    NotFound(ExecutionId),
    /// The record is not in the state or generation that the caller decided on, or its place is taken.
    #[error("execution {execution_id}: {message}")]
    Conflict {
        execution_id: ExecutionId,
        message: String,
    },
    #[error("execution {execution_id}: {source}")]
    IllegalTransition {
        execution_id: ExecutionId,
        source: IllegalTransition,
    },
    /// A record breaks its own rules; it is neither written nor believed.
    #[error(
        "record {} is invalid: {message}; it is left as it is: put back a copy, or delete its container",
        path.display()
    )]
    Invalid { path: PathBuf, message: String },
    #[error(
        "record {} has schema version {found}, this build knows {known}; it is left as it is: use the build \
         that wrote it, or delete its container with that build",
        path.display()
    )]
    UnknownSchema {
        path: PathBuf,
        found: u64,
        known: u32,
    },
    #[error("container {container_id} is owned{}", owner.map_or_else(String::new, |pid| format!(" by process {pid}")))]
    Owned {
        container_id: String,
        owner: Option<u32>,
    },
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl From<StoreError> for ExecutionManagerError {
    fn from(error: StoreError) -> Self {
        let message = with_remedy(&error);
        match error {
            StoreError::NotFound(id) => Self::NotFound(id),
            StoreError::Conflict {
                execution_id,
                message,
            } => Self::Conflict {
                execution_id,
                message,
            },
            StoreError::IllegalTransition { execution_id, .. } => Self::Conflict {
                execution_id,
                message,
            },
            StoreError::Owned { .. } => Self::Unavailable(message),
            StoreError::Durable(source) => match source {
                DurableError::Io { .. }
                | DurableError::Locked { .. }
                | DurableError::JournalFull { .. } => Self::Unavailable(message),
                DurableError::NotAFile(_)
                | DurableError::Damaged { .. }
                | DurableError::EntryTooLarge { .. }
                | DurableError::EntryMalformed(_) => Self::Internal(message),
            },
            StoreError::Invalid { .. } | StoreError::UnknownSchema { .. } => {
                Self::Internal(message)
            }
        }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::NotFound(_) => io::ErrorKind::NotFound,
            StoreError::Conflict { .. } | StoreError::IllegalTransition { .. } => {
                io::ErrorKind::AlreadyExists
            }
            StoreError::Invalid { .. } | StoreError::UnknownSchema { .. } => {
                io::ErrorKind::InvalidData
            }
            StoreError::Owned { .. } => io::ErrorKind::WouldBlock,
            StoreError::Durable(source) => source.io_kind().unwrap_or(io::ErrorKind::InvalidData),
        };
        Self::new(kind, error)
    }
}

/// As [`error_chain`], with what to do about it where the cause names it.
pub(crate) fn with_remedy(error: &StoreError) -> String {
    let kind = match error {
        StoreError::Durable(source) => source.io_kind(),
        _ => None,
    };
    let text = error_chain(error);
    match kind.and_then(remedy) {
        Some(remedy) => format!("{text}; {remedy}"),
        None => text,
    }
}

/// What makes the next attempt succeed.
const fn remedy(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free space on that filesystem")
        }
        io::ErrorKind::ReadOnlyFilesystem => Some("mount that filesystem writable"),
        io::ErrorKind::PermissionDenied => Some("check owner, mode and attributes of that path"),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Some("its folder was removed: put it back, or delete the container")
        }
        _ => None,
    }
}

/// The text of an error and of its sources, for edges whose error holds only a string.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}
