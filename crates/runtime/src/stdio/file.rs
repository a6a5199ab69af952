//! Files that output is appended to (`file://`).
//!
//! The container never holds the file: the engine would give it to the container's user, who could then
//! truncate it. A pump writes what comes out of a pipe, on a thread of the blocking pool, because a disk
//! may stall and the calls about the container must not.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::error::StdioError;

/// Modes of what is created, as containerd's own shim has them.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// A file that output is appended to; clones share it.
#[derive(Debug, Clone)]
pub(super) struct LogFile(Arc<File>);

impl LogFile {
    /// Opens the file for appending, creating it and the folders above it.
    pub(super) fn open(path: &Path, stream: &'static str) -> Result<Self, StdioError> {
        let attempt = || {
            if let Some(folder) = path.parent() {
                DirBuilder::new()
                    .recursive(true)
                    .mode(FOLDER_MODE)
                    .create(folder)?;
            }
            OpenOptions::new()
                .append(true)
                .create(true)
                .mode(FILE_MODE)
                .open(path)
        };
        attempt()
            .map(|file| Self(Arc::new(file)))
            .map_err(|source| StdioError::Open {
                stream,
                path: path.to_owned(),
                source,
            })
    }

    /// Appends the buffer and gives it back, empty.
    pub(super) async fn append(&self, mut buffer: Vec<u8>) -> (Vec<u8>, io::Result<()>) {
        let file = Arc::clone(&self.0);
        let written = tokio::task::spawn_blocking(move || {
            let result = (&*file).write_all(&buffer);
            buffer.clear();
            (buffer, result)
        });
        match written.await {
            Ok(done) => done,
            Err(stopped) => (Vec::new(), Err(io::Error::other(stopped))),
        }
    }
}
