//! The file form of a record: a schema version around it, refused when unknown.
//!
//! An older record is read as it is and written in the present form by its next change, behind a copy of the
//! old file (`record.json.v1`): a build that is taken back finds what it can read.

use std::path::Path;

use a3sbox_durable::record::read;
use a3sbox_durable::replace;
use serde::{Deserialize, Serialize};

use super::error::{StoreError, StoreResult};
use super::record::BoxRecord;

/// Version of the file form. It grows when an older build would misread a newer file.
///
/// - 1: the first.
/// - 2: states of a task's owner for the contract's verbs; the boot of the host. What it lacks is unknown.
pub(crate) const RECORD_SCHEMA_VERSION: u32 = 2;
/// The oldest form that is still read.
const OLDEST_SCHEMA_VERSION: u64 = 1;
/// Largest record that is read; one with thousands of execs stays far below.
const MAX_RECORD_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Serialize)]
struct Stored<'a> {
    schema_version: u32,
    record: &'a BoxRecord,
}

#[derive(Deserialize)]
struct Loaded {
    schema_version: u64,
    record: BoxRecord,
}

#[derive(Deserialize)]
struct Version {
    schema_version: u64,
}

/// The bytes of a record that obeys its rules.
pub(crate) fn encode(path: &Path, record: &BoxRecord) -> StoreResult<Vec<u8>> {
    record.check().map_err(|message| invalid(path, message))?;
    serde_json::to_vec(&Stored {
        schema_version: RECORD_SCHEMA_VERSION,
        record,
    })
    .map_err(|error| invalid(path, format!("cannot be encoded: {error}")))
}

/// Reads and checks a record. `None` when there is no file.
pub(crate) fn load(path: &Path) -> StoreResult<Option<BoxRecord>> {
    let Some(bytes) = read(path, MAX_RECORD_BYTES)? else {
        return Ok(None);
    };
    let loaded = decode(path, &bytes)?;
    loaded
        .record
        .check()
        .map_err(|message| invalid(path, message))?;
    Ok(Some(loaded.record))
}

/// Keeps the file of an older form beside itself before the first change in the present form.
pub(crate) fn back_up_older(path: &Path) -> StoreResult<()> {
    let Some(bytes) = read(path, MAX_RECORD_BYTES)? else {
        return Ok(());
    };
    let version = decode(path, &bytes)?.schema_version;
    if version < u64::from(RECORD_SCHEMA_VERSION) {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".v{version}"));
        replace(Path::new(&name), &bytes)?;
    }
    Ok(())
}

fn decode(path: &Path, bytes: &[u8]) -> StoreResult<Loaded> {
    let unknown = |found| StoreError::UnknownSchema {
        path: path.to_path_buf(),
        found,
        known: RECORD_SCHEMA_VERSION,
    };
    let is_known =
        |version| (OLDEST_SCHEMA_VERSION..=u64::from(RECORD_SCHEMA_VERSION)).contains(&version);
    match serde_json::from_slice::<Loaded>(bytes) {
        Ok(loaded) if is_known(loaded.schema_version) => Ok(loaded),
        Ok(loaded) => Err(unknown(loaded.schema_version)),
        // A record of another schema need not have this build's shape: the version explains it better.
        Err(error) => match serde_json::from_slice::<Version>(bytes) {
            Ok(version) if !is_known(version.schema_version) => {
                Err(unknown(version.schema_version))
            }
            Ok(_) | Err(_) => Err(invalid(path, error.to_string())),
        },
    }
}

pub(crate) fn invalid(path: &Path, message: String) -> StoreError {
    StoreError::Invalid {
        path: path.to_path_buf(),
        message,
    }
}
