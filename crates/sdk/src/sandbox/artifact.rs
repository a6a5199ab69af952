//! Taking one file out of a sandbox, with its size and digest.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use a3sbox_core::{FilesystemEntryKind, MAX_BOUNDED_FILE_BYTES};
use sha2::{Digest, Sha256};

use super::files::{Filesystem, FilesystemOptions};
use crate::client::{ClientError, Result, invalid};

/// Largest file that can be taken out in one piece.
pub const MAX_ARTIFACT_BYTES: u64 = MAX_BOUNDED_FILE_BYTES;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactExportOptions {
    /// 1 to [`MAX_ARTIFACT_BYTES`].
    pub max_bytes: u64,
    /// A file of the host to make; one that is there is never overwritten.
    pub destination: Option<PathBuf>,
    pub user: Option<String>,
}

impl Default for ArtifactExportOptions {
    fn default() -> Self {
        Self {
            max_bytes: MAX_ARTIFACT_BYTES,
            destination: None,
            user: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub path: String,
    pub data: Vec<u8>,
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub host_path: Option<PathBuf>,
}

impl Filesystem {
    pub async fn export(&self, path: impl Into<String>) -> Result<Artifact> {
        self.export_with_options(path, ArtifactExportOptions::default())
            .await
    }

    /// # Errors
    /// `Validation` for a bad bound, or for anything but a file within it; `Guest` when the file changed
    /// its size meanwhile; `State` when the host's file exists or cannot be written.
    pub async fn export_with_options(
        &self,
        path: impl Into<String>,
        options: ArtifactExportOptions,
    ) -> Result<Artifact> {
        check_bound(options.max_bytes)?;
        let path = path.into();
        let as_user = FilesystemOptions { user: options.user };
        let entry = self
            .stat_with_options(path.clone(), as_user.clone())
            .await?;
        if entry.kind != FilesystemEntryKind::File {
            return invalid(format!("{path} is not a file"));
        }
        let size = u64::try_from(entry.size).map_err(|_| {
            ClientError::Guest(format!("{path} was announced with {} bytes", entry.size))
        })?;
        if size > options.max_bytes {
            return invalid(format!(
                "{path} has {size} bytes, more than the {} allowed",
                options.max_bytes
            ));
        }
        let data = self
            .read_bounded_with_options(path.clone(), options.max_bytes, as_user)
            .await?;
        if u64::try_from(data.len()) != Ok(size) {
            return Err(ClientError::Guest(format!(
                "{path} had {size} bytes and came with {}",
                data.len()
            )));
        }
        if let Some(destination) = &options.destination {
            write_new(destination, &data)?;
        }
        Ok(Artifact {
            path,
            size,
            sha256: hex(&Sha256::digest(&data)),
            data,
            host_path: options.destination,
        })
    }
}

pub(super) fn check_bound(max_bytes: u64) -> Result<()> {
    if (1..=MAX_ARTIFACT_BYTES).contains(&max_bytes) {
        return Ok(());
    }
    invalid(format!(
        "bound of {max_bytes} bytes is outside 1..={MAX_ARTIFACT_BYTES}"
    ))
}

/// Takes back a file that could not be written whole.
fn write_new(path: &Path, data: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = file.write_all(data).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // The first error is the one to tell; the caller sees the path either way.
        let _ = std::fs::remove_file(path);
        return Err(error.into());
    }
    Ok(())
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
