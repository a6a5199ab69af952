//! Why a task call did not happen, in the classes that containerd's clients tell apart.

/// Error of the task face. The text is what a person at `ctr` or `kubectl` reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// No such container or exec.
    #[error("{0}")]
    NotFound(String),
    /// The container id or exec id is taken.
    #[error("{0}")]
    AlreadyExists(String),
    /// The process is in a state in which the verb makes no sense.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The same, where containerd's runc shim has a text and no code for it.
    #[error("{0}")]
    WrongState(String),
    #[error("{0}")]
    InvalidArgument(String),
    /// This engine, driver or host cannot do it.
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    ResourceExhausted(String),
    #[error("{0}")]
    DeadlineExceeded(String),
    #[error("{0}")]
    PermissionDenied(String),
    /// The runtime service did not answer; the effect may have happened.
    #[error("{0}")]
    Unavailable(String),
    /// The engine failed in a way that has no class of its own, or an invariant is broken.
    #[error("{0}")]
    Internal(String),
}
