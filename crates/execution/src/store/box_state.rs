//! A set of records written or read at once: import, export and tests. The verbs use
//! [`super::ManagedExecutionStore`].

use std::io;
use std::path::{Path, PathBuf};

use super::managed::ManagedExecutionStore;
use super::record::BoxRecord;
use super::schema;

/// Records with the path of the store that they belong to.
#[derive(Debug, Clone)]
pub struct BoxStateStore {
    path: PathBuf,
    records: Vec<BoxRecord>,
}

impl BoxStateStore {
    /// No I/O.
    pub fn from_records(path: impl Into<PathBuf>, records: Vec<BoxRecord>) -> Self {
        Self {
            path: path.into(),
            records,
        }
    }

    /// Reads every record below the path; a missing path has none. A record that breaks its rules is
    /// [`io::ErrorKind::InvalidData`].
    pub fn load(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let records = ManagedExecutionStore::new(&path).list()?;
        Ok(Self { path, records })
    }

    /// Writes every record, each atomically. A record that breaks its rules is
    /// [`io::ErrorKind::InvalidData`], and then none is written.
    pub fn save(&self) -> io::Result<()> {
        for record in &self.records {
            schema::encode(&self.path, record)?;
        }
        let store = ManagedExecutionStore::new(&self.path);
        for record in &self.records {
            store.write(record)?;
        }
        Ok(())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn records(&self) -> &[BoxRecord] {
        &self.records
    }
}
