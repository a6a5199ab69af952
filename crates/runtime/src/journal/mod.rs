//! What a container's journal says: which operations were carried out, and what became of its processes.
//!
//! One small line per verb, in the container's folder. An operation id that comes again with an equal
//! request is answered from here without a second effect; with another request it is a `Conflict`.
//!
//! | operations | are kept whole | then |
//! |---|---|---|
//! | create | in the record, as long as the container | |
//! | start, kill | as long as the container, the last 1,024 | their ids |
//! | pause, resume, update | the last 256 | their ids |
//! | exec, signals of an added process | until it is deleted, or its session expires | the exec's ids |
//! | write-stdin | the last one, with the process's streams | the ids of 2,048 before it |
//! | delete | the last 256 of the service | the container is not found |
//!
//! An id that is left of an operation refuses a late repetition: it is never run again. There are 2,048 of them
//! per container. The file is rewritten when most of it is about things that are gone, so that a container that
//! is probed every second stays small.

mod digest;
mod entry;
mod image;
mod operations;
mod past;

use std::path::Path;

use a3sbox_durable::{DurableError, JournalLimits};

pub(crate) use digest::RequestDigest;
pub(crate) use entry::{Entry, ExecEntry, Exit, Operation};
pub(crate) use image::Image;
pub(crate) use operations::{Keep, Operations, conflict};
pub(crate) use past::{PastId, PastIds};

use crate::owner::state::IllegalEvent;

const JOURNAL_FILE: &str = "journal.log";
/// A journal below this is not worth rewriting.
const COMPACT_FROM_BYTES: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error("journal holds a line that this version does not know")]
    Decode(#[source] serde_json::Error),
    #[error("journal holds ids that are malformed")]
    Ids,
    #[error("cannot encode a journal line")]
    Encode(#[source] serde_json::Error),
    #[error("journal contradicts itself")]
    Illegal(#[from] IllegalEvent),
}

/// The journal of one container and what it adds up to.
#[derive(Debug)]
pub(crate) struct ContainerJournal {
    file: a3sbox_durable::Journal,
    pub(crate) image: Image,
    /// Rewrite when the file passes this size.
    compact_at_bytes: u64,
    /// A fact is true and not in the file: the next one may not follow what the file says, so that the file is
    /// rewritten first.
    is_behind: bool,
}

impl ContainerJournal {
    /// Opens or creates the journal in a container's folder and reads it back.
    pub(crate) fn open(folder: &Path) -> Result<Self, JournalError> {
        let opened =
            a3sbox_durable::Journal::open(&folder.join(JOURNAL_FILE), JournalLimits::DEFAULT)?;
        let mut image = Image::default();
        for line in &opened.entries {
            image.apply(decode(line)?)?;
        }
        Ok(Self {
            file: opened.journal,
            image,
            compact_at_bytes: COMPACT_FROM_BYTES,
            is_behind: false,
        })
    }

    /// Makes a fact durable, then true.
    pub(crate) fn commit(&mut self, entry: Entry) -> Result<(), JournalError> {
        // An entry that cannot follow must not reach the file: it would never be read back.
        self.image.check(&entry)?;
        let line = serde_json::to_vec(&entry).map_err(JournalError::Encode)?;
        if self.is_behind || self.file.size_bytes() > self.compact_at_bytes {
            self.compact()?;
            self.is_behind = false;
        }
        self.file.append(&line)?;
        self.image.apply(entry)?;
        Ok(())
    }

    /// Makes a fact true that already is, and durable if that is possible.
    pub(crate) fn note(&mut self, entry: Entry) -> Result<(), JournalError> {
        self.commit(entry.clone()).inspect_err(|error| {
            if !matches!(error, JournalError::Illegal(_)) {
                // Checked by the attempt to commit it.
                let _ = self.image.apply(entry);
                self.is_behind = true;
            }
        })
    }

    fn compact(&mut self) -> Result<(), JournalError> {
        let lines = self
            .image
            .entries()
            .iter()
            .map(serde_json::to_vec)
            .collect::<Result<Vec<_>, _>>()
            .map_err(JournalError::Encode)?;
        let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        self.file.compact(&lines)?;
        // Rewriting costs what is alive; it is due again when that much has been added.
        self.compact_at_bytes = COMPACT_FROM_BYTES.max(self.file.size_bytes().saturating_mul(2));
        Ok(())
    }
}

/// One line of a journal.
fn decode(line: &[u8]) -> Result<Entry, JournalError> {
    let entry = serde_json::from_slice(line).map_err(JournalError::Decode)?;
    if let Entry::Past { ids } = &entry
        && PastIds::parse(ids).is_none()
    {
        return Err(JournalError::Ids);
    }
    Ok(entry)
}

#[cfg(test)]
mod tests;
