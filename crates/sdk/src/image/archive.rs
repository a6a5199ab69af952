//! From an OCI archive to blobs on disk, each checked against its digest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::document::{Descriptor, Digest, Index, parse};
use super::error::{ImageError, ImageResult};

/// Most bytes of all blobs together.
const MAX_ARCHIVE_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Most members of an archive, blobs or not.
const MAX_MEMBERS: usize = 16 * 1024;
/// Largest JSON document that is read whole.
const MAX_DOCUMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Indexes within indexes that are followed.
const MAX_INDEX_DEPTH: usize = 3;
const COPY_BUFFER_BYTES: usize = 128 * 1024;

/// The blobs of one archive in a folder of their own.
#[derive(Debug)]
pub(super) struct Blobs {
    folder: PathBuf,
    index: Vec<u8>,
}

impl Blobs {
    /// Copies the blobs of the archive at `path` into `folder`. Members other than blobs and the two
    /// documents of a layout are passed over.
    pub(super) fn extract(path: &Path, folder: &Path) -> ImageResult<Self> {
        let file = File::open(path).map_err(ImageError::io("open", path))?;
        let unread = |error| ImageError::io("read", path)(error);
        let mut archive = tar::Archive::new(file);
        let (mut index, mut has_layout, mut total) = (None, false, 0);
        for (number, entry) in archive.entries().map_err(unread)?.enumerate() {
            if number == MAX_MEMBERS {
                return Err(ImageError::TooLarge {
                    what: "the number of members",
                    bound: MAX_MEMBERS as u64,
                });
            }
            let mut entry = entry.map_err(unread)?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let name = entry.path().map_err(unread)?.into_owned();
            let Some(name) = name.to_str() else { continue };
            match name.strip_prefix("./").unwrap_or(name) {
                "oci-layout" => has_layout = true,
                "index.json" => index = Some(read_bounded(&mut entry, path)?),
                name => {
                    let Some(digest) = name
                        .strip_prefix("blobs/sha256/")
                        .and_then(Digest::from_hex)
                    else {
                        continue;
                    };
                    total += store(&mut entry, &digest, folder, MAX_ARCHIVE_BYTES - total)?;
                }
            }
        }
        match index {
            Some(index) if has_layout => Ok(Self {
                folder: folder.to_owned(),
                index,
            }),
            _ => ImageError::malformed(format!(
                "{} is no OCI image archive: it has no oci-layout or no index.json",
                path.display()
            )),
        }
    }

    /// The manifest for this host, and the image's name where the archive states one.
    pub(super) fn manifest(&self) -> ImageResult<(Digest, Option<String>)> {
        let mut name = None;
        let mut note = |entry: &Descriptor| {
            if name.is_none() {
                name = entry.image_name().map(str::to_owned);
            }
        };
        let index: Index = parse("index.json", &self.index)?;
        let mut entry = index.choose("the archive")?;
        note(&entry);
        for _ in 0..MAX_INDEX_DEPTH {
            if !entry.is_index() {
                return Ok((entry.digest, name));
            }
            let index: Index = parse("an index", &self.document(&entry.digest)?)?;
            entry = index.choose("an index of the archive")?;
            note(&entry);
        }
        ImageError::malformed("the archive's indexes are nested too deep")
    }

    /// A JSON document.
    pub(super) fn document(&self, digest: &Digest) -> ImageResult<Vec<u8>> {
        let path = self.folder.join(digest.hex());
        let mut file = self.open(digest)?;
        read_bounded(&mut file, &path)
    }

    pub(super) fn open(&self, digest: &Digest) -> ImageResult<File> {
        let path = self.folder.join(digest.hex());
        File::open(&path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                ImageError::Malformed(format!("the archive lacks blob {}", digest.as_str()))
            } else {
                ImageError::io("open", path)(error)
            }
        })
    }
}

fn read_bounded(reader: &mut impl Read, path: &Path) -> ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(ImageError::io("read", path))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_DOCUMENT_BYTES) {
        return Err(ImageError::TooLarge {
            what: "a document of the archive",
            bound: MAX_DOCUMENT_BYTES,
        });
    }
    Ok(bytes)
}

fn store(reader: &mut impl Read, digest: &Digest, folder: &Path, room: u64) -> ImageResult<u64> {
    let path = folder.join(digest.hex());
    let mut file = match File::options().write(true).create_new(true).open(&path) {
        Ok(file) => file,
        // The same blob again, already checked.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(0),
        Err(error) => return Err(ImageError::io("create", path)(error)),
    };
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    let mut size = 0;
    loop {
        let count = reader
            .read(&mut buffer)
            .map_err(ImageError::io("read the archive for", &path))?;
        if count == 0 {
            break;
        }
        size += count as u64;
        if size > room {
            return Err(ImageError::TooLarge {
                what: "the archive",
                bound: MAX_ARCHIVE_BYTES,
            });
        }
        hasher.update(&buffer[..count]);
        file.write_all(&buffer[..count])
            .map_err(ImageError::io("write", &path))?;
    }
    let found = hex(&hasher.finalize());
    if found != digest.hex() {
        return ImageError::malformed(format!(
            "blob {} is damaged: its content has digest sha256:{found}",
            digest.as_str()
        ));
    }
    Ok(size)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
