//! The errors of the vocabulary: one for managers, one for pure helpers and stores.

use crate::ids::ExecutionId;

/// Why a manager did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionManagerError {
    /// The request can never be honoured.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// No such execution.
    #[error("execution {0} not found")]
    NotFound(ExecutionId),
    /// Stale generation, wrong state, or an operation id reused with other content.
    #[error("conflict on execution {execution_id}: {message}")]
    Conflict {
        execution_id: ExecutionId,
        message: String,
    },
    /// This manager or backend cannot do it, or not now.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// An invariant is broken.
    #[error("internal error: {0}")]
    Internal(String),
}

pub type ExecutionManagerResult<T> = std::result::Result<T, ExecutionManagerError>;

/// Error of pure helpers and of stores.
#[derive(Debug, thiserror::Error)]
pub enum BoxError {
    #[error("configuration error: {0}")]
    ConfigError(String),
    #[error("I/O error: {0}")]
    IoError(#[from] std::io::Error),
    #[error("serialization error: {0}")]
    SerializationError(String),
    #[error("network error: {0}")]
    NetworkError(String),
    #[error("state error: {0}")]
    StateError(String),
    #[error("{0}")]
    Other(String),
    #[error("boot failed: {message}{}", hint_text(.hint))]
    BoxBootError {
        message: String,
        hint: Option<String>,
    },
    #[error("timed out: {0}")]
    TimeoutError(String),
    #[error("trusted execution configuration error: {0}")]
    TeeConfig(String),
    #[error("trusted execution is not supported: {0}")]
    TeeNotSupported(String),
    #[error("attestation error: {0}")]
    AttestationError(String),
    #[error("OCI image error: {0}")]
    OciImageError(String),
    #[error("registry {registry}: {message}")]
    RegistryError { registry: String, message: String },
    #[error("cache error: {0}")]
    CacheError(String),
    #[error("pool error: {0}")]
    PoolError(String),
    #[error("exec error: {0}")]
    ExecError(String),
    #[error("build error: {0}")]
    BuildError(String),
    #[error("audit error: {0}")]
    AuditError(String),
    #[error("resize error: {0}")]
    ResizeError(String),
}

pub type Result<T> = std::result::Result<T, BoxError>;

impl From<serde_json::Error> for BoxError {
    fn from(error: serde_json::Error) -> Self {
        Self::SerializationError(error.to_string())
    }
}

fn hint_text(hint: &Option<String>) -> String {
    hint.as_ref()
        .map(|hint| format!(" (hint: {hint})"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_errors_show_the_inner_text_unchanged() {
        let id = ExecutionId::new("e-1").unwrap();
        let text = "Keep THIS = as it is";
        for error in [
            ExecutionManagerError::InvalidRequest(text.into()),
            ExecutionManagerError::Unavailable(text.into()),
            ExecutionManagerError::Internal(text.into()),
            ExecutionManagerError::Conflict {
                execution_id: id.clone(),
                message: text.into(),
            },
        ] {
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(
            ExecutionManagerError::NotFound(id)
                .to_string()
                .contains("e-1")
        );
    }

    #[test]
    fn box_errors_show_the_inner_text_unchanged() {
        let text = "Keep THIS";
        for error in [
            BoxError::ConfigError(text.into()),
            BoxError::SerializationError(text.into()),
            BoxError::NetworkError(text.into()),
            BoxError::StateError(text.into()),
            BoxError::Other(text.into()),
            std::io::Error::other(text).into(),
            BoxError::BoxBootError {
                message: "m".into(),
                hint: Some(text.into()),
            },
        ] {
            assert!(error.to_string().contains(text), "{error}");
        }
        let parse = serde_json::from_str::<u8>("x").unwrap_err();
        assert!(matches!(
            BoxError::from(parse),
            BoxError::SerializationError(_)
        ));
    }
}
