//! What never changes of a container: written before the engine is asked for it, so that a service that
//! dies in between leaves something to clean up by.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use a3sbox_durable::DurableError;
use a3sbox_oci::oci_spec::runtime::Hook;
use a3sbox_oci::{ContainerId, EngineOptions, Generation, IsolationClass, StdioUris};
use serde::{Deserialize, Serialize};

use crate::journal::Operation;

pub(crate) const RECORD_FILE: &str = "record.json";
const SCHEMA_VERSION: u32 = 1;
/// Annotations and hooks are the largest part; a config has at most 16 MiB.
const MAX_RECORD_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContainerFile {
    pub(crate) schema_version: u32,
    /// The boot in which its processes run; after another one there are none.
    pub(crate) boot_id: String,
    pub(crate) id: ContainerId,
    pub(crate) generation: Generation,
    pub(crate) create: Operation,
    pub(crate) isolation: IsolationClass,
    pub(crate) bundle: PathBuf,
    pub(crate) config_digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attachments_digest: Option<String>,
    pub(crate) oci_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<HashMap<String, String>>,
    pub(crate) engine: EngineOptions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stdio: Option<StdioUris>,
    pub(crate) terminal: bool,
    /// The end of init does not end the others: it has no pid namespace of its own.
    pub(crate) shares_pid_namespace: bool,
    /// Path of the cgroup as the config has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroups_path: Option<PathBuf>,
    /// Hooks that the driver runs after the container is gone, instead of the engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) poststop: Vec<Hook>,
    /// Longest timeout of a poststart hook, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) poststart_timeout: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error("cannot encode the record")]
    Encode(#[source] serde_json::Error),
    #[error("record {} cannot be read", path.display())]
    Decode {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("record {} has schema version {found}, this version knows {SCHEMA_VERSION}", path.display())]
    Schema { path: PathBuf, found: u32 },
    #[error("record {} is of container {found}", path.display())]
    Misplaced { path: PathBuf, found: ContainerId },
}

/// Read first: a record of another version need not have the fields of this one.
#[derive(Deserialize)]
struct SchemaOnly {
    schema_version: u32,
}

impl ContainerFile {
    pub(crate) const SCHEMA_VERSION: u32 = SCHEMA_VERSION;

    pub(crate) fn write(&self, folder: &Path) -> Result<(), RecordError> {
        let contents = serde_json::to_vec(self).map_err(RecordError::Encode)?;
        a3sbox_durable::replace(&folder.join(RECORD_FILE), &contents)?;
        Ok(())
    }

    /// `None` when the folder has no record: its container was never asked of the engine.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, RecordError> {
        let path = folder.join(RECORD_FILE);
        let Some(contents) = a3sbox_durable::record::read(&path, MAX_RECORD_BYTES)? else {
            return Ok(None);
        };
        let decode = |source| RecordError::Decode {
            path: path.clone(),
            source,
        };
        let schema: SchemaOnly = serde_json::from_slice(&contents).map_err(decode)?;
        if schema.schema_version != SCHEMA_VERSION {
            return Err(RecordError::Schema {
                path,
                found: schema.schema_version,
            });
        }
        let record: Self = serde_json::from_slice(&contents).map_err(decode)?;
        if folder.file_name().and_then(|name| name.to_str()) != Some(record.id.as_str()) {
            return Err(RecordError::Misplaced {
                path,
                found: record.id,
            });
        }
        Ok(Some(record))
    }
}

/// The kernel's id of this boot; empty where it has none.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}
