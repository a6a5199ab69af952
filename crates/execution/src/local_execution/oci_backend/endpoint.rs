//! The durable address of a runtime service.

use std::path::{Path, PathBuf};

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use serde::{Deserialize, Serialize};

const WINDOWS_PIPE_PREFIX: &str = r"\\.\pipe\";

/// Where a runtime service listens. Constructing one opens nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum OciRuntimeEndpoint {
    UnixSocket { path: PathBuf },
    WindowsNamedPipe { name: String },
}

impl OciRuntimeEndpoint {
    /// # Errors
    /// `InvalidRequest` when the path is not absolute.
    pub fn unix_socket(path: impl Into<PathBuf>) -> ExecutionManagerResult<Self> {
        let endpoint = Self::UnixSocket { path: path.into() };
        endpoint.validate()?;
        Ok(endpoint)
    }

    /// # Errors
    /// `InvalidRequest` when the name is not `\\.\pipe\<name>`.
    pub fn windows_named_pipe(name: impl Into<String>) -> ExecutionManagerResult<Self> {
        let endpoint = Self::WindowsNamedPipe { name: name.into() };
        endpoint.validate()?;
        Ok(endpoint)
    }

    /// Checks the syntax; an endpoint read from a record may be anything.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        match self {
            Self::UnixSocket { path } if is_absolute(path) => Ok(()),
            Self::UnixSocket { path } => Err(ExecutionManagerError::InvalidRequest(format!(
                "runtime socket path {} is not absolute",
                path.display()
            ))),
            Self::WindowsNamedPipe { name } => {
                let rest = name.strip_prefix(WINDOWS_PIPE_PREFIX).unwrap_or_default();
                if rest.is_empty() || rest.contains('\0') {
                    return Err(ExecutionManagerError::InvalidRequest(format!(
                        "runtime pipe name {name:?} is not of the form {WINDOWS_PIPE_PREFIX}<name>"
                    )));
                }
                Ok(())
            }
        }
    }
}

fn is_absolute(path: &Path) -> bool {
    path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0)
}
