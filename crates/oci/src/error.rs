//! The error of the runtime contract: a code that callers act on, and words for people.

use serde::{Deserialize, Serialize};

/// Result of every call of the runtime contract.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller may conclude from a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request itself is malformed; sending it again cannot help.
    InvalidArgument,
    /// No such container or process.
    NotFound,
    /// A create for an id that exists.
    AlreadyExists,
    /// Wrong lifecycle state or stale generation. On `wait` for a stopped container: the exit
    /// status is unknown and will never be known.
    FailedPrecondition,
    /// The runtime does not have this verb or this option.
    Unsupported,
    /// The caller may not do this.
    PermissionDenied,
    /// A named bound was reached.
    ResourceExhausted,
    /// The time that the caller gave ran out; for waits: still running.
    DeadlineExceeded,
    /// An operation id or process id was used before with other content.
    Conflict,
    /// Transport or service failure; the effect may or may not have happened.
    Unavailable,
    /// A broken promise inside the runtime.
    Internal,
}

/// What [`Error::operation`] is on an error about a path of the container.
const PATH: &str = "path";

/// Failure of a runtime call.
///
/// `Display` prints the message alone, so that a caller may wrap it in words of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: ErrorCode,
    /// Label of the operation that failed, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    pub message: String,
    /// The same request, with the same operation id, may be sent again unchanged.
    #[serde(default)]
    pub retryable: bool,
}

impl Error {
    /// An error without an operation, not retryable.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            operation: None,
            message: message.into(),
            retryable: false,
        }
    }

    /// Names the operation that failed.
    #[must_use]
    pub fn for_operation(mut self, operation: impl Into<String>) -> Self {
        self.operation = Some(operation.into());
        self
    }

    /// Says whether the same request may be sent again.
    #[must_use]
    pub const fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The runtime does not implement `operation`.
    pub fn unsupported(operation: &'static str) -> Self {
        Self::new(
            ErrorCode::Unsupported,
            format!("operation {operation} is not supported by this runtime"),
        )
        .for_operation(operation)
    }

    /// The container's own filesystem refused something about a path: the call reached it, and an answer of
    /// it is what this is, not a failure of the runtime.
    pub fn of_path(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(code, message).for_operation(PATH)
    }

    /// Whether this is an error of [`Self::of_path`].
    #[must_use]
    pub fn is_of_path(&self) -> bool {
        self.operation.as_deref() == Some(PATH)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// A broken or missing stream: the caller may send the same request again.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message).retryable(true)
    }

    pub(crate) fn exhausted(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ResourceExhausted, message)
    }
}
