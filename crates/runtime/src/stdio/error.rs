//! What can go wrong with a process's streams.

use std::io;
use std::path::PathBuf;

use a3sbox_oci::{Error, ErrorCode};

/// Failure of a stream operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdioError {
    #[error("unknown STDIO scheme {scheme}")]
    UnknownScheme { scheme: String },
    #[error("invalid stdio uri {uri:?}: {reason}")]
    InvalidUri { uri: String, reason: &'static str },
    #[error("opening {stream} {path:?} failed")]
    Open {
        stream: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot prepare {what}")]
    Prepare {
        what: &'static str,
        source: io::Error,
    },
    #[error("failed to start logging binary {path:?}")]
    LoggerStart { path: PathBuf, source: io::Error },
    #[error("logging binary {path:?} ended before it was ready")]
    LoggerEnded { path: PathBuf },
    #[error("logging binary {path:?} was not ready within {seconds} s")]
    LoggerNotReady { path: PathBuf, seconds: u64 },
    #[error("the engine sent no console within {seconds} s")]
    NoConsole { seconds: u64 },
    #[error("the engine sent something that is not a terminal")]
    NotAConsole,
    #[error("the console was already attached")]
    ConsoleTaken,
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("cannot resize the terminal")]
    Resize { source: io::Error },
    #[error("stdin of the process is closed")]
    StdinClosed,
    #[error("stdin of the process is not written through the service")]
    StdinNotPiped,
    #[error("the process did not take its stdin within {seconds} s")]
    StdinFull { seconds: u64 },
    #[error("output of the process is not captured")]
    NotCaptured,
}

impl StdioError {
    pub(crate) fn prepare(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Prepare { what, source }
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownScheme { .. } | Self::InvalidUri { .. } => ErrorCode::InvalidArgument,
            // A path that is missing is the caller's, but "not found" means a container in this contract.
            Self::Open { .. }
            | Self::LoggerStart { .. }
            | Self::LoggerEnded { .. }
            | Self::LoggerNotReady { .. }
            | Self::ConsoleTaken
            | Self::NoTerminal
            | Self::StdinClosed
            | Self::StdinNotPiped
            | Self::NotCaptured => ErrorCode::FailedPrecondition,
            Self::StdinFull { .. } => ErrorCode::ResourceExhausted,
            Self::Prepare { .. }
            | Self::NoConsole { .. }
            | Self::NotAConsole
            | Self::Resize { .. } => ErrorCode::Internal,
        }
    }
}

impl From<StdioError> for Error {
    fn from(error: StdioError) -> Self {
        let retryable = matches!(error, StdioError::StdinFull { .. });
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::new(error.code(), text).retryable(retryable)
    }
}
