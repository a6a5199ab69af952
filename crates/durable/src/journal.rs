//! An append-only journal of checksummed lines.
//!
//! Each line is the CRC-32 of the payload in eight hex digits, a space, the payload, a line feed. On open
//! the file is read up to the first line that does not hold; when nothing valid follows, that is the tail
//! which a crash tore, and it is cut off. When something valid follows, the journal was damaged by
//! something else and is refused.
//!
//! One process writes a journal at a time, under a lock of its caller.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{DurableError, DurableResult, Step};
use crate::{folder, record};

const FILE_MODE: u32 = 0o600;
/// Eight digits of the checksum and the space after it.
const LINE_PREFIX_BYTES: usize = 9;

/// Bounds of one journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    pub max_entry_bytes: usize,
    pub max_journal_bytes: u64,
}

impl JournalLimits {
    pub const DEFAULT: Self = Self {
        max_entry_bytes: 1024 * 1024,
        max_journal_bytes: 64 * 1024 * 1024,
    };
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What [`Journal::open`] found.
#[derive(Debug)]
pub struct Opened {
    pub journal: Journal,
    /// The payloads, oldest first.
    pub entries: Vec<Vec<u8>>,
    /// Bytes of a torn tail that were cut off.
    pub repaired_bytes: u64,
}

/// A journal open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    limits: JournalLimits,
    /// Length of what is known to be whole.
    length: u64,
    entries: usize,
    /// An append failed half way: bytes after `length` are cut off before the next one.
    torn: bool,
    /// The file was replaced and `file` still names the old one.
    is_stale: bool,
}

impl Journal {
    /// Opens or creates the journal, repairs a torn tail and returns the entries.
    pub fn open(path: &Path, limits: JournalLimits) -> DurableResult<Opened> {
        let contents = record::read(path, limits.max_journal_bytes)?;
        let is_new = contents.is_none();
        let contents = contents.unwrap_or_default();
        let parsed = parse(path, &contents)?;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(path)
            .map_err(|e| DurableError::io(Step::Open, path, e))?;
        if is_new && let Some(parent) = folder::parent_of(path) {
            folder::sync(parent)?;
        }
        let mut journal = Self {
            path: path.to_path_buf(),
            file,
            limits,
            length: parsed.whole_bytes,
            entries: parsed.entries.len(),
            torn: parsed.torn_bytes > 0,
            is_stale: false,
        };
        journal.cut_torn_tail()?;
        Ok(Opened {
            journal,
            entries: parsed.entries,
            repaired_bytes: parsed.torn_bytes,
        })
    }

    /// Appends one entry; durable when this returns. After an error the entry is not in the journal.
    pub fn append(&mut self, payload: &[u8]) -> DurableResult<()> {
        self.append_all(&[payload])
    }

    /// Appends several entries with one write and one sync.
    pub fn append_all(&mut self, payloads: &[&[u8]]) -> DurableResult<()> {
        let mut lines = Vec::new();
        for payload in payloads {
            self.encode(payload, &mut lines)?;
        }
        let added = lines.len() as u64;
        if self.length.saturating_add(added) > self.limits.max_journal_bytes {
            return Err(DurableError::JournalFull {
                path: self.path.clone(),
                limit: self.limits.max_journal_bytes,
            });
        }
        self.reopen_if_stale()?;
        self.cut_torn_tail()?;
        let written = self
            .file
            .write_all(&lines)
            .map_err(|e| DurableError::io(Step::Write, &self.path, e))
            .and_then(|()| self.sync());
        if let Err(error) = written {
            self.torn = true;
            // A tail that cannot be cut now is cut before the next append, or on the next open.
            let _ = self.cut_torn_tail();
            return Err(error);
        }
        self.length += added;
        self.entries += payloads.len();
        Ok(())
    }

    /// Replaces the journal by `payloads`, atomically: after a crash it holds the old or the new entries.
    pub fn compact(&mut self, payloads: &[&[u8]]) -> DurableResult<()> {
        let mut lines = Vec::new();
        for payload in payloads {
            self.encode(payload, &mut lines)?;
        }
        // From here on the descriptor may name a replaced file, also when the replacement reports an error
        // (its last step can fail after the rename): nothing is appended before the path is opened again.
        self.is_stale = true;
        record::replace(&self.path, &lines)?;
        self.length = lines.len() as u64;
        self.entries = payloads.len();
        self.torn = false;
        self.reopen_if_stale()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.length
    }

    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.entries
    }

    fn encode(&self, payload: &[u8], lines: &mut Vec<u8>) -> DurableResult<()> {
        if payload.len() > self.limits.max_entry_bytes {
            return Err(DurableError::EntryTooLarge {
                path: self.path.clone(),
                size: payload.len(),
                limit: self.limits.max_entry_bytes,
            });
        }
        if payload.is_empty() || payload.contains(&b'\n') {
            return Err(DurableError::EntryMalformed(self.path.clone()));
        }
        lines.extend_from_slice(format!("{:08x} ", crc32(payload)).as_bytes());
        lines.extend_from_slice(payload);
        lines.push(b'\n');
        Ok(())
    }

    fn reopen_if_stale(&mut self) -> DurableResult<()> {
        if self.is_stale {
            self.file = OpenOptions::new()
                .append(true)
                .open(&self.path)
                .map_err(|e| DurableError::io(Step::Open, &self.path, e))?;
            let metadata = self.file.metadata();
            self.length = metadata
                .map_err(|e| DurableError::io(Step::Read, &self.path, e))?
                .len();
            self.torn = false;
            self.is_stale = false;
        }
        Ok(())
    }

    fn cut_torn_tail(&mut self) -> DurableResult<()> {
        if !self.torn {
            return Ok(());
        }
        self.file
            .set_len(self.length)
            .map_err(|e| DurableError::io(Step::Truncate, &self.path, e))?;
        self.sync()?;
        self.torn = false;
        Ok(())
    }

    fn sync(&self) -> DurableResult<()> {
        self.file
            .sync_data()
            .map_err(|e| DurableError::io(Step::SyncFile, &self.path, e))
    }
}

/// Reads the entries without repairing anything, for a reader beside the writer. `None` when there is no
/// journal; a torn tail is left out.
pub fn read(path: &Path, limits: JournalLimits) -> DurableResult<Option<Vec<Vec<u8>>>> {
    match record::read(path, limits.max_journal_bytes) {
        Ok(Some(contents)) => parse(path, &contents).map(|parsed| Some(parsed.entries)),
        Ok(None) => Ok(None),
        Err(error) if error.io_kind() == Some(ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Parsed {
    entries: Vec<Vec<u8>>,
    whole_bytes: u64,
    torn_bytes: u64,
}

fn parse(path: &Path, contents: &[u8]) -> DurableResult<Parsed> {
    let mut entries = Vec::new();
    let mut whole = 0;
    let mut rest = contents;
    while let Some((line, after)) = split_line(rest) {
        let Some(payload) = payload_of(line) else {
            break;
        };
        entries.push(payload.to_vec());
        whole += line.len() + 1;
        rest = after;
    }
    // The first line of the rest does not hold. Anything valid behind it was synced after it, so it had
    // been whole once.
    let mut behind = split_line(rest).map_or(&[][..], |(_, after)| after);
    while let Some((line, after)) = split_line(behind) {
        if payload_of(line).is_some() {
            return Err(DurableError::Damaged {
                path: path.to_path_buf(),
                offset: whole as u64,
            });
        }
        behind = after;
    }
    Ok(Parsed {
        entries,
        whole_bytes: whole as u64,
        torn_bytes: rest.len() as u64,
    })
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn payload_of(line: &[u8]) -> Option<&[u8]> {
    let (prefix, payload) = line.split_at_checked(LINE_PREFIX_BYTES)?;
    let digits = std::str::from_utf8(prefix.strip_suffix(b" ")?).ok()?;
    let is_canonical = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let expected = u32::from_str_radix(digits, 16).ok()?;
    (is_canonical && !payload.is_empty() && crc32(payload) == expected).then_some(payload)
}

/// CRC-32 as in gzip and PNG (reflected, polynomial 0xEDB88320).
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        let index = (crc ^ u32::from(*byte)) & 0xff;
        crc = (crc >> 8) ^ CRC_TABLE[index as usize];
    }
    !crc
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut value: u32 = 0;
    while index < table.len() {
        let mut crc = value;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        value += 1;
    }
    table
}

#[cfg(test)]
mod tests;
