//! Why a call of the client did not do what it was asked.

use a3sbox_core::ExecutionManagerError;
use a3sbox_core::error::BoxError;

pub type Result<T> = std::result::Result<T, ClientError>;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file of the client's own could not be read or written.
    #[error("client state: {0}")]
    State(#[from] std::io::Error),
    /// A store or a pure helper refused.
    #[error(transparent)]
    Runtime(#[from] BoxError),
    /// The manager's own error, unchanged.
    #[error(transparent)]
    Execution(#[from] ExecutionManagerError),
    /// Refused by the client itself; nothing was called and nothing written.
    #[error("{0}")]
    Validation(String),
    /// The workload's side answered that it did not succeed, or answered nonsense.
    #[error("{0}")]
    Guest(String),
    #[error("box {0} not found")]
    BoxNotFound(String),
    #[error("box query {query:?} matches {}", .matches.join(", "))]
    AmbiguousBoxQuery { query: String, matches: Vec<String> },
}

impl ClientError {
    /// Whether the execution asked for is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Execution(ExecutionManagerError::NotFound(_)) | Self::BoxNotFound(_)
        )
    }
}

pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(ClientError::Validation(message.into()))
}
