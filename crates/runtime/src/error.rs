//! Errors of the driver, and the one place that turns them into those of the contract.

use std::io;

use a3sbox_oci::{Error, ErrorCode};

use crate::journal::JournalError;
use crate::native::cgroup::CgroupError;
use crate::native::engine::{EngineError, FailureKind};
use crate::owner::record::RecordError;
use crate::stdio::StdioError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    /// `what` begins the text that clients of the stock shim know, as "OCI runtime create failed".
    #[error("{what}: {source}")]
    Engine {
        what: &'static str,
        source: EngineError,
    },
    #[error(transparent)]
    Contract(#[from] Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Durable(#[from] a3sbox_durable::DurableError),
    #[error(transparent)]
    Stdio(#[from] StdioError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
}

impl RuntimeError {
    pub(crate) fn engine(what: &'static str) -> impl FnOnce(EngineError) -> Self {
        move |source| Self::Engine { what, source }
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        let code = match &error {
            RuntimeError::Engine { source, .. } => engine_code(source),
            RuntimeError::Contract(error) => return error.clone(),
            RuntimeError::Stdio(_) => {
                let RuntimeError::Stdio(error) = error else {
                    unreachable!("just matched")
                };
                return error.into();
            }
            RuntimeError::Journal(JournalError::Durable(error))
            | RuntimeError::Record(RecordError::Durable(error))
            | RuntimeError::Durable(error) => durable_code(error),
            RuntimeError::Journal(
                JournalError::Decode(_)
                | JournalError::Ids
                | JournalError::Encode(_)
                | JournalError::Illegal(_),
            )
            | RuntimeError::Record(
                RecordError::Encode(_)
                | RecordError::Decode { .. }
                | RecordError::Schema { .. }
                | RecordError::Misplaced { .. },
            )
            | RuntimeError::Cgroup(_) => ErrorCode::Internal,
            RuntimeError::Io { source, .. } => io_code(source.kind()),
        };
        Self::new(code, with_sources(&error))
    }
}

fn engine_code(error: &EngineError) -> ErrorCode {
    match error {
        EngineError::Deadline { .. } => ErrorCode::DeadlineExceeded,
        EngineError::Missing { .. }
        | EngineError::Spawn { .. }
        | EngineError::Prepare { .. }
        | EngineError::NoPid { .. } => ErrorCode::Internal,
        EngineError::Failed { kind, .. } => match kind {
            FailureKind::NoContainer => ErrorCode::NotFound,
            FailureKind::ContainerExists => ErrorCode::AlreadyExists,
            FailureKind::NotRunning
            | FailureKind::Paused
            | FailureKind::NotPaused
            | FailureKind::LimitBelowUse => ErrorCode::FailedPrecondition,
            FailureKind::StartProcess | FailureKind::Hook | FailureKind::Other => {
                ErrorCode::Internal
            }
        },
    }
}

fn durable_code(error: &a3sbox_durable::DurableError) -> ErrorCode {
    error.io_kind().map_or(ErrorCode::Internal, io_code)
}

fn io_code(kind: io::ErrorKind) -> ErrorCode {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::ResourceExhausted,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorCode::PermissionDenied
        }
        _ => ErrorCode::Internal,
    }
}

/// The text of an error and of everything below it, since it leaves the process as one string.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some of our own errors print their source already.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
