//! A small file of named entries, shared by every process of the user.
//!
//! Readers take no lock, because a replacement is atomic. A writer holds the lock beside the file from
//! reading to replacing, and replaces nothing when its change is refused.

use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_core::error::BoxError;
use a3sbox_durable::{DurableError, FileLock, folder, record};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{ClientError, Result};

/// A change takes milliseconds; whoever holds the lock longer is stuck.
const LOCK_DEADLINE: Duration = Duration::from_secs(10);
/// Far above any list that a person keeps.
const MAX_STORE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<T> {
    schema: String,
    entries: BTreeMap<String, T>,
}

/// What is needed to read the version of a document of any version.
#[derive(Deserialize)]
struct Header {
    schema: Option<String>,
}

pub(super) struct NamedStore<'a, T> {
    file: &'a Path,
    schema: &'static str,
    entries: PhantomData<T>,
}

impl<'a, T: Serialize + DeserializeOwned> NamedStore<'a, T> {
    pub(super) fn new(file: &'a Path, schema: &'static str) -> Self {
        Self {
            file,
            schema,
            entries: PhantomData,
        }
    }

    /// The entries by name; none when there is no file.
    pub(super) fn read(&self) -> Result<BTreeMap<String, T>> {
        let Some(bytes) = record::read(self.file, MAX_STORE_BYTES).map_err(state)? else {
            return Ok(BTreeMap::new());
        };
        let header: Header = serde_json::from_slice(&bytes).map_err(|e| self.malformed(&e))?;
        if header.schema.as_deref() != Some(self.schema) {
            return Err(BoxError::StateError(format!(
                "{} has schema {:?}, this version reads {:?}",
                self.file.display(),
                header.schema.unwrap_or_default(),
                self.schema
            ))
            .into());
        }
        let document: Document<T> =
            serde_json::from_slice(&bytes).map_err(|e| self.malformed(&e))?;
        Ok(document.entries)
    }

    /// Changes the entries. What `change` refuses leaves the file as it was.
    pub(super) fn update<R>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, T>) -> Result<R>,
    ) -> Result<R> {
        if let Some(parent) = self.file.parent() {
            folder::create_all(parent).map_err(state)?;
        }
        let _lock = FileLock::lock_within(&self.lock_file(), LOCK_DEADLINE).map_err(state)?;
        let mut entries = self.read()?;
        let result = change(&mut entries)?;
        let document = Document {
            schema: self.schema.to_owned(),
            entries,
        };
        let mut bytes = serde_json::to_vec_pretty(&document).map_err(BoxError::from)?;
        bytes.push(b'\n');
        record::replace(self.file, &bytes).map_err(state)?;
        Ok(result)
    }

    fn lock_file(&self) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(".lock");
        PathBuf::from(name)
    }

    fn malformed(&self, error: &serde_json::Error) -> ClientError {
        BoxError::SerializationError(format!("{}: {error}", self.file.display())).into()
    }
}

/// Keeps the kind of the failed file operation, which tells a full disk from a missing permission.
pub(super) fn state(error: DurableError) -> ClientError {
    let kind = match &error {
        DurableError::Io { source, .. } => source.kind(),
        DurableError::Locked { .. } => io::ErrorKind::WouldBlock,
        _ => io::ErrorKind::Other,
    };
    ClientError::State(io::Error::new(kind, error))
}
