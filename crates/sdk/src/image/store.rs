//! The images that were imported, by name.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_durable::record::read;
use a3sbox_durable::{FileLock, folder, replace};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::archive::{Blobs, hex};
use super::document::{Digest, ImageConfig, Manifest, ProcessDefaults, parse};
use super::error::{ImageError, ImageResult};
use super::layer;
use super::name::canonical;
use super::tree::Tree;
use crate::local::ids::FIRST_HOST_ID;

const SCHEMA_VERSION: u32 = 1;
const NAMES_FOLDER: &str = "names";
const ROOTFS_FOLDER: &str = "rootfs";
const IMPORT_PREFIX: &str = ".import-";
const LOCK_FILE: &str = ".lock";
/// How long an import waits for another one.
const LOCK_DEADLINE: Duration = Duration::from_secs(120);
const MAX_RECORD_BYTES: u64 = 8 * 1024 * 1024;
/// Mode of a root folder whose layers do not say.
const ROOT_MODE: u32 = 0o755;

/// An image that sandboxes can be made from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageSummary {
    /// As the archive states it.
    pub name: String,
    /// Digest of the manifest.
    pub digest: String,
    /// Bytes of the unpacked root filesystem, the same content counted once.
    pub size: u64,
    /// RFC 3339.
    pub imported_at: String,
}

/// One imported image, ready to be run.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) rootfs: PathBuf,
    pub(crate) defaults: ProcessDefaults,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageRecord {
    schema_version: u32,
    name: String,
    manifest: Digest,
    chain_id: Digest,
    size: u64,
    imported_at: String,
    defaults: ProcessDefaults,
}

/// Files only: opening it does nothing, reading it makes nothing.
#[derive(Debug, Clone)]
pub(crate) struct ImageStore {
    root: PathBuf,
}

impl ImageStore {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The image of this name, in any of its spellings.
    pub(crate) fn find(&self, name: &str) -> ImageResult<Option<Image>> {
        let Some(record) = read_record(&self.record_path(name))? else {
            return Ok(None);
        };
        let rootfs = self.rootfs_path(&record.chain_id);
        if !rootfs.is_dir() {
            return ImageError::malformed(format!(
                "image {name} has lost its root filesystem {}; import it again",
                rootfs.display()
            ));
        }
        Ok(Some(Image {
            rootfs,
            defaults: record.defaults,
        }))
    }

    /// All images, by name.
    pub(crate) fn list(&self) -> ImageResult<Vec<ImageSummary>> {
        let names = self.root.join(NAMES_FOLDER);
        let entries = match std::fs::read_dir(&names) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ImageError::io("list", names)(error)),
        };
        let mut images = Vec::new();
        for entry in entries {
            let path = entry.map_err(ImageError::io("list", &names))?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
                && let Some(record) = read_record(&path)?
            {
                images.push(summary(record));
            }
        }
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Takes in an archive under the name that it states. An image of that name is replaced; sandboxes that
    /// run from the old one keep it.
    pub(crate) fn import(&self, archive: &Path) -> ImageResult<ImageSummary> {
        folder::create_all(&self.root)?;
        let _lock = FileLock::lock_within(&self.root.join(LOCK_FILE), LOCK_DEADLINE)?;
        self.sweep()?;
        let staging = self
            .root
            .join(format!("{IMPORT_PREFIX}{}", uuid::Uuid::new_v4()));
        folder::create(&staging)?;
        let imported = self.import_in(archive, &staging);
        // What cannot be removed now is swept by the next import.
        let _ = folder::remove_all(&staging);
        imported
    }

    fn import_in(&self, archive: &Path, staging: &Path) -> ImageResult<ImageSummary> {
        let blobs = staging.join("blobs");
        folder::create(&blobs)?;
        let blobs = Blobs::extract(archive, &blobs)?;
        let (manifest_digest, name) = blobs.manifest()?;
        let name = name.ok_or_else(|| {
            ImageError::Malformed(format!(
                "{} does not name its image (annotation io.containerd.image.name)",
                archive.display()
            ))
        })?;
        let manifest: Manifest = parse("the manifest", &blobs.document(&manifest_digest)?)?;
        let config: ImageConfig = parse(
            "the image's config",
            &blobs.document(&manifest.config.digest)?,
        )?;
        let diff_ids = config.diff_ids(manifest.layers.len())?;
        let chain_id = chain_id(diff_ids)?;
        let rootfs = self.rootfs_path(&chain_id);
        if !rootfs.is_dir() {
            let unpacked = staging.join("rootfs");
            unpack(&blobs, &manifest, diff_ids, &unpacked)?;
            folder::create_all(&self.root.join(ROOTFS_FOLDER))?;
            folder::publish(&unpacked, &rootfs)?;
        }
        let record = ImageRecord {
            schema_version: SCHEMA_VERSION,
            size: size_of_tree(&rootfs).map_err(ImageError::io("measure", &rootfs))?,
            manifest: manifest_digest,
            chain_id,
            imported_at: chrono::Utc::now().to_rfc3339(),
            defaults: config.config,
            name,
        };
        let path = self.record_path(&record.name);
        folder::create_all(&self.root.join(NAMES_FOLDER))?;
        let bytes = serde_json::to_vec(&record)
            .map_err(|error| ImageError::Malformed(error.to_string()))?;
        replace(&path, &bytes)?;
        Ok(summary(record))
    }

    /// Imports that a crash left.
    fn sweep(&self) -> ImageResult<()> {
        let unread = ImageError::io("list", &self.root);
        for entry in std::fs::read_dir(&self.root).map_err(unread)? {
            let entry = entry.map_err(ImageError::io("list", &self.root))?;
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(IMPORT_PREFIX)
            {
                folder::remove_all(&entry.path())?;
            }
        }
        Ok(())
    }

    fn record_path(&self, name: &str) -> PathBuf {
        let digest = Sha256::digest(canonical(name).as_bytes());
        self.root
            .join(NAMES_FOLDER)
            .join(format!("{}.json", hex(&digest)))
    }

    fn rootfs_path(&self, chain_id: &Digest) -> PathBuf {
        self.root.join(ROOTFS_FOLDER).join(chain_id.hex())
    }
}

fn unpack(
    blobs: &Blobs,
    manifest: &Manifest,
    diff_ids: &[Digest],
    rootfs: &Path,
) -> ImageResult<()> {
    std::fs::DirBuilder::new()
        .mode(ROOT_MODE)
        .create(rootfs)
        .and_then(|()| chown(rootfs, Some(FIRST_HOST_ID), Some(FIRST_HOST_ID)))
        .map_err(ImageError::io("create", rootfs))?;
    let tree = Tree::open(rootfs, FIRST_HOST_ID).map_err(ImageError::io("open", rootfs))?;
    for (layer, diff_id) in manifest.layers.iter().zip(diff_ids) {
        layer::apply(&tree, blobs.open(&layer.digest)?, layer, diff_id)?;
    }
    // One sync for all files, before the rename makes them a rootfs.
    File::open(rootfs)
        .and_then(|root| rustix::fs::syncfs(&root).map_err(Into::into))
        .map_err(ImageError::io("sync", rootfs))
}

/// The digest that stands for a stack of unpacked layers (OCI image specification, "Layer ChainID").
fn chain_id(diff_ids: &[Digest]) -> ImageResult<Digest> {
    let mut ids = diff_ids.iter();
    let first = ids
        .next()
        .cloned()
        .ok_or_else(|| ImageError::Malformed("the image has no layers".to_owned()))?;
    ids.try_fold(first, |chain, diff_id| {
        let text = format!("{} {}", chain.as_str(), diff_id.as_str());
        Digest::from_hex(&hex(&Sha256::digest(text.as_bytes())))
            .ok_or_else(|| ImageError::Malformed("a digest has no digits".to_owned()))
    })
}

fn read_record(path: &Path) -> ImageResult<Option<ImageRecord>> {
    let Some(bytes) = read(path, MAX_RECORD_BYTES)? else {
        return Ok(None);
    };
    let record: ImageRecord = parse(&path.display().to_string(), &bytes)?;
    if record.schema_version != SCHEMA_VERSION {
        return ImageError::malformed(format!(
            "{} has unknown schema version {}",
            path.display(),
            record.schema_version
        ));
    }
    Ok(Some(record))
}

fn summary(record: ImageRecord) -> ImageSummary {
    ImageSummary {
        name: record.name,
        digest: record.manifest.into(),
        size: record.size,
        imported_at: record.imported_at,
    }
}

fn size_of_tree(folder: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;

    let (mut size, mut seen) = (0, std::collections::HashSet::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.nlink() == 1 || seen.insert(metadata.ino()) {
                size += metadata.len();
            }
        }
    }
    Ok(size)
}
