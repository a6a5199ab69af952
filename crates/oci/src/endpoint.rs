//! The durable address of a runtime service.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const PIPE_PREFIX: &str = r"\\.\pipe\";

/// Where a runtime service listens. Purely an address: nothing need listen there yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", try_from = "RawEndpoint")]
pub enum OciRuntimeEndpoint {
    UnixSocket { path: PathBuf },
    WindowsNamedPipe { name: String },
}

/// The connectable form of an endpoint; the same type serves as both.
pub type LocalIpcEndpoint = OciRuntimeEndpoint;

impl OciRuntimeEndpoint {
    /// `InvalidArgument` unless the path is absolute.
    pub fn unix_socket(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        if !path.is_absolute() {
            return Err(Error::invalid(format!(
                "socket path {} is not absolute",
                path.display()
            )));
        }
        Ok(Self::UnixSocket { path })
    }

    /// `InvalidArgument` unless the name is `\\.\pipe\` and something, without NUL.
    pub fn windows_named_pipe(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let well_formed = name
            .strip_prefix(PIPE_PREFIX)
            .is_some_and(|rest| !rest.is_empty() && !rest.contains('\0'));
        if !well_formed {
            return Err(Error::invalid(format!(
                "pipe name {name:?} is not {PIPE_PREFIX} and a name"
            )));
        }
        Ok(Self::WindowsNamedPipe { name })
    }

    pub fn as_unix_socket(&self) -> Option<&Path> {
        match self {
            Self::UnixSocket { path } => Some(path),
            Self::WindowsNamedPipe { .. } => None,
        }
    }

    pub fn as_windows_named_pipe(&self) -> Option<&str> {
        match self {
            Self::UnixSocket { .. } => None,
            Self::WindowsNamedPipe { name } => Some(name),
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum RawEndpoint {
    UnixSocket { path: PathBuf },
    WindowsNamedPipe { name: String },
}

impl TryFrom<RawEndpoint> for OciRuntimeEndpoint {
    type Error = Error;

    fn try_from(raw: RawEndpoint) -> Result<Self> {
        match raw {
            RawEndpoint::UnixSocket { path } => Self::unix_socket(path),
            RawEndpoint::WindowsNamedPipe { name } => Self::windows_named_pipe(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked_and_tagged() {
        let endpoint = OciRuntimeEndpoint::unix_socket("/run/x.sock").unwrap();
        let text = serde_json::to_string(&endpoint).unwrap();
        assert_eq!(text, r#"{"kind":"unix-socket","path":"/run/x.sock"}"#);
        assert_eq!(
            serde_json::from_str::<OciRuntimeEndpoint>(&text).unwrap(),
            endpoint
        );
        assert_eq!(endpoint.as_unix_socket(), Some(Path::new("/run/x.sock")));
        assert!(OciRuntimeEndpoint::unix_socket("x.sock").is_err());
        assert!(
            serde_json::from_str::<OciRuntimeEndpoint>(r#"{"kind":"unix-socket","path":"x"}"#)
                .is_err()
        );
        let pipe = OciRuntimeEndpoint::windows_named_pipe(r"\\.\pipe\a3s").unwrap();
        assert_eq!(pipe.as_windows_named_pipe(), Some(r"\\.\pipe\a3s"));
        for name in ["a3s", r"\\.\pipe\", "\\\\.\\pipe\\a\0"] {
            assert!(OciRuntimeEndpoint::windows_named_pipe(name).is_err());
        }
    }
}
