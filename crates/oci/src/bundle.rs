//! A bundle: a directory and the exact bytes of its `config.json`, bound by their digest.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::{canonical_value, sha256_digest};
use crate::error::{Error, ErrorCode, Result};
use crate::limits::MAX_CONFIG_BYTES;
use crate::validate::spec::check_version;

/// Name of the configuration inside a bundle.
pub const CONFIG_FILE_NAME: &str = "config.json";

/// Immutable configuration of one container; clones share the content.
///
/// Equality is that of the directory and of the exact bytes. `Debug` leaves the content out, since a
/// configuration carries the environment.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "WireBundle", try_from = "WireBundle")]
pub struct OciBundle(Arc<Content>);

struct Content {
    directory: PathBuf,
    config_digest: String,
    config_json: String,
    spec: Spec,
}

impl OciBundle {
    /// Reads `config.json` of a bundle directory, which is then known by its canonical path.
    pub async fn load(directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref().to_owned();
        tokio::task::spawn_blocking(move || Self::load_blocking(&directory))
            .await
            .map_err(|error| Error::internal(format!("cannot read the bundle: {error}")))?
    }

    fn load_blocking(directory: &Path) -> Result<Self> {
        let directory = directory
            .canonicalize()
            .map_err(|error| io_error("cannot resolve bundle directory", directory, &error))?;
        let path = directory.join(CONFIG_FILE_NAME);
        let failed = |error: std::io::Error| io_error("cannot read", &path, &error);
        // Asked before the open, which would block on a fifo.
        let metadata = path.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Error::invalid(format!(
                "{} is not a regular file",
                path.display()
            )));
        }
        let file = std::fs::File::open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_CONFIG_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        check_size(bytes.len())?;
        let config_json = String::from_utf8(bytes)
            .map_err(|_| Error::invalid(format!("{} is not UTF-8", path.display())))?;
        Self::from_json(directory, config_json)
    }

    /// A bundle of these exact bytes. The directory must be absolute; it need not exist.
    pub fn from_json(
        directory: impl Into<PathBuf>,
        config_json: impl Into<String>,
    ) -> Result<Self> {
        let config_json = config_json.into();
        check_size(config_json.len())?;
        let spec = serde_json::from_str(&config_json)
            .map_err(|error| Error::invalid(format!("{CONFIG_FILE_NAME} is malformed: {error}")))?;
        Self::assemble(directory.into(), config_json, spec)
    }

    /// A bundle whose bytes are the encoded specification; the same specification always gives the
    /// same bytes.
    pub fn from_spec(directory: impl Into<PathBuf>, spec: Spec) -> Result<Self> {
        let mut value = serde_json::to_value(&spec)
            .map_err(|error| Error::invalid(format!("cannot encode the specification: {error}")))?;
        sort_capability_sets(&mut value);
        Self::assemble(directory.into(), canonical_value(&value), spec)
    }

    fn assemble(directory: PathBuf, config_json: String, spec: Spec) -> Result<Self> {
        if !directory.is_absolute() {
            return Err(Error::invalid(format!(
                "bundle directory {} is not absolute",
                directory.display()
            )));
        }
        check_size(config_json.len())?;
        check_version(spec.version())?;
        Ok(Self(Arc::new(Content {
            directory,
            config_digest: sha256_digest(config_json.as_bytes()),
            config_json,
            spec,
        })))
    }

    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// `sha256:` and the hex digest of [`Self::config_bytes`].
    pub fn config_digest(&self) -> &str {
        &self.0.config_digest
    }

    /// The exact content of `config.json`.
    pub fn config_json(&self) -> &str {
        &self.0.config_json
    }

    pub fn config_bytes(&self) -> &[u8] {
        self.0.config_json.as_bytes()
    }

    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }
}

impl PartialEq for OciBundle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.directory == other.0.directory
                && self.0.config_digest == other.0.config_digest
                && self.0.config_json == other.0.config_json)
    }
}

impl Eq for OciBundle {}

impl fmt::Debug for OciBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OciBundle")
            .field("directory", &self.0.directory)
            .field("config_digest", &self.0.config_digest)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBundle {
    directory: PathBuf,
    config_digest: String,
    config_json: String,
}

impl From<OciBundle> for WireBundle {
    fn from(bundle: OciBundle) -> Self {
        Self {
            directory: bundle.0.directory.clone(),
            config_digest: bundle.0.config_digest.clone(),
            config_json: bundle.0.config_json.clone(),
        }
    }
}

impl TryFrom<WireBundle> for OciBundle {
    type Error = Error;

    fn try_from(wire: WireBundle) -> Result<Self> {
        let bundle = Self::from_json(wire.directory, wire.config_json)?;
        if bundle.config_digest() != wire.config_digest {
            return Err(Error::invalid(format!(
                "bundle digest is {}, not {} as stated",
                bundle.config_digest(),
                wire.config_digest
            )));
        }
        Ok(bundle)
    }
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes > MAX_CONFIG_BYTES {
        return Err(Error::invalid(format!(
            "{CONFIG_FILE_NAME} is larger than {MAX_CONFIG_BYTES} bytes"
        )));
    }
    Ok(())
}

/// The typed capability sets are hash sets, whose order differs from run to run.
fn sort_capability_sets(spec: &mut Value) {
    let Some(Value::Object(sets)) = spec.pointer_mut("/process/capabilities") else {
        return;
    };
    for set in sets.values_mut() {
        if let Value::Array(names) = set {
            names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        }
    }
}

fn io_error(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => ErrorCode::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
        _ => ErrorCode::Internal,
    };
    Error::new(code, format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
