//! One layer laid over what is there: entries, links, whiteouts.
//!
//! The rules are those of the OCI image specification. A whiteout hides what earlier layers brought, not
//! what its own layer brings. Device nodes are passed over: a sandbox has its devices from the engine, and
//! its rootfs is mounted without any. Of the extended attributes those of users are kept; others would mean
//! something to the host.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, XattrFlags, fchmod, fsetxattr, linkat, mkdirat, mknodat,
    openat, symlinkat,
};
use sha2::{Digest as _, Sha256};
use tar::{Entry, EntryType};

use super::archive::hex;
use super::document::{Descriptor, Digest};
use super::error::{ImageError, ImageResult};
use super::tree::{self, Tree};
use crate::local::ids::ID_COUNT;

/// Most bytes of one layer when unpacked.
const MAX_LAYER_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Most entries of one layer.
const MAX_LAYER_ENTRIES: u64 = 1_000_000;
const WHITEOUT_PREFIX: &[u8] = b".wh.";
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
/// Bookkeeping of other storage drivers, not part of the tree.
const RESERVED_PREFIX: &[u8] = b".wh..wh.";
const XATTR_PREFIX: &str = "SCHILY.xattr.";
const KEPT_XATTRS: &str = "user.";
const COPY_BUFFER_BYTES: usize = 128 * 1024;

/// Lays the layer over `tree` and checks that its content has the digest that the config states.
pub(super) fn apply(
    tree: &Tree,
    blob: std::fs::File,
    layer: &Descriptor,
    diff_id: &Digest,
) -> ImageResult<()> {
    let media_type = layer.media_type.as_str();
    let reader: Box<dyn Read> = if media_type.ends_with("gzip") {
        Box::new(MultiGzDecoder::new(io::BufReader::new(blob)))
    } else if media_type.is_empty() || media_type.ends_with("tar") {
        Box::new(blob)
    } else {
        return ImageError::malformed(format!(
            "layer {} is of type {media_type}; tar and gzip are imported",
            layer.digest.as_str()
        ));
    };
    let mut archive = tar::Archive::new(Hashed::new(reader));
    Unpacking::new(tree, layer.digest.as_str()).run(&mut archive)?;
    let mut rest = archive.into_inner();
    // Padding behind the last entry belongs to the content.
    io::copy(&mut rest, &mut io::sink()).map_err(ImageError::io("read", layer.digest.as_str()))?;
    let found = hex(&rest.hasher.finalize());
    if found != diff_id.hex() {
        return ImageError::malformed(format!(
            "layer {} unpacks to sha256:{found}, not to {} as the config states",
            layer.digest.as_str(),
            diff_id.as_str()
        ));
    }
    Ok(())
}

/// Hashes what is read, and ends a layer that is too large.
struct Hashed {
    reader: Box<dyn Read>,
    hasher: Sha256,
    room: u64,
}

impl Hashed {
    fn new(reader: Box<dyn Read>) -> Self {
        Self {
            reader,
            hasher: Sha256::new(),
            room: MAX_LAYER_BYTES,
        }
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.room = self.room.checked_sub(count as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the layer has more than {MAX_LAYER_BYTES} bytes"),
            )
        })?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

struct Unpacking<'a> {
    tree: &'a Tree,
    layer: &'a str,
    /// What this layer has brought so far, which its own whiteouts do not hide.
    brought: HashSet<PathBuf>,
    /// Folders get their times last: every name made in them changes those.
    folder_times: Vec<(PathBuf, i64)>,
}

/// What all kinds of entries have.
struct Attributes {
    uid: u32,
    gid: u32,
    mode: u32,
    seconds: i64,
    xattrs: Vec<(String, Vec<u8>)>,
}

impl<'a> Unpacking<'a> {
    fn new(tree: &'a Tree, layer: &'a str) -> Self {
        Self {
            tree,
            layer,
            brought: HashSet::new(),
            folder_times: Vec::new(),
        }
    }

    fn run(mut self, archive: &mut tar::Archive<Hashed>) -> ImageResult<()> {
        let unread = |error| ImageError::io("read", self.layer.to_owned())(error);
        let mut count = 0;
        for entry in archive.entries().map_err(unread)? {
            let mut entry = entry.map_err(|error| ImageError::io("read", self.layer)(error))?;
            count += 1;
            if count > MAX_LAYER_ENTRIES {
                return Err(ImageError::TooLarge {
                    what: "the number of entries of a layer",
                    bound: MAX_LAYER_ENTRIES,
                });
            }
            let Some(path) = tree::plain(&entry.path_bytes()) else {
                return ImageError::malformed(format!(
                    "layer {} has an entry {:?}, which leads out of the image",
                    self.layer,
                    String::from_utf8_lossy(&entry.path_bytes())
                ));
            };
            self.entry(&mut entry, &path)
                .map_err(ImageError::io("unpack", path))?;
        }
        for (path, seconds) in self.folder_times.iter().rev() {
            // Gone again when a later entry took its place.
            if let Ok(folder) = self.tree.folder(path) {
                tree::set_time(&folder, OsStr::new("."), *seconds)
                    .map_err(ImageError::io("set the time of", path))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &mut Entry<'_, Hashed>, path: &Path) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if matches!(
            kind,
            EntryType::XGlobalHeader | EntryType::Char | EntryType::Block
        ) {
            return Ok(());
        }
        let attributes = attributes(entry)?;
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (parent, name.to_owned()),
            // The root itself.
            _ => return self.root_folder(kind, &attributes),
        };
        let folder = self.tree.folder_made(parent)?;
        if name.as_bytes().starts_with(WHITEOUT_PREFIX) {
            return self.whiteout(&folder, parent, &name);
        }
        self.brought.insert(path.to_owned());
        if kind == EntryType::Directory {
            self.folder_times
                .push((path.to_owned(), attributes.seconds));
            return self.subfolder(&folder, &name, &attributes);
        }
        tree::remove(&folder, &name)?;
        match kind {
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default();
                self.hard_link(&target, &folder, &name)
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default();
                symlinkat(OsStr::from_bytes(&target), &folder, &name)?;
                self.finish(&folder, &name, &attributes, true)
            }
            EntryType::Fifo => {
                mknodat(&folder, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
                self.finish(&folder, &name, &attributes, false)
            }
            kind if kind.is_file() => self.file(entry, &folder, &name, &attributes),
            other => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("entries of type {other:?} are not known"),
            )),
        }
    }

    fn root_folder(&mut self, kind: EntryType, attributes: &Attributes) -> io::Result<()> {
        if kind != EntryType::Directory {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the root is not a folder",
            ));
        }
        self.folder_times.push((PathBuf::new(), attributes.seconds));
        let root = self.tree.folder(Path::new(""))?;
        self.finish(&root, OsStr::new("."), attributes, false)
    }

    fn subfolder(&self, folder: &OwnedFd, name: &OsStr, attributes: &Attributes) -> io::Result<()> {
        if tree::kind(folder, name)? != Some(FileType::Directory) {
            tree::remove(folder, name)?;
            mkdirat(folder, name, Mode::RWXU)?;
        }
        self.finish(folder, name, attributes, false)
    }

    fn file(
        &self,
        entry: &mut Entry<'_, Hashed>,
        folder: &OwnedFd,
        name: &OsStr,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = std::fs::File::from(file);
        let mut buffer = vec![0; COPY_BUFFER_BYTES];
        loop {
            let count = entry.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            file.write_all(&buffer[..count])?;
        }
        for (key, value) in &attributes.xattrs {
            fsetxattr(&file, key.as_str(), value, XattrFlags::empty())?;
        }
        self.tree
            .own(folder, name, attributes.uid, attributes.gid)?;
        // Behind the owner, whose change clears the set-id bits.
        fchmod(&file, Mode::from_raw_mode(attributes.mode & 0o7777))?;
        tree::set_time(folder, name, attributes.seconds)
    }

    fn hard_link(&self, target: &[u8], folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let target = tree::plain(target).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a link that leads out of the image",
            )
        })?;
        let (Some(parent), Some(file)) = (target.parent(), target.file_name()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a hard link to the root",
            ));
        };
        let parent = self.tree.folder(parent)?;
        Ok(linkat(&parent, file, folder, name, AtFlags::empty())?)
    }

    fn finish(
        &self,
        folder: &OwnedFd,
        name: &OsStr,
        attributes: &Attributes,
        is_link: bool,
    ) -> io::Result<()> {
        self.tree
            .own(folder, name, attributes.uid, attributes.gid)?;
        if !is_link {
            tree::set_mode(folder, name, attributes.mode)?;
        }
        tree::set_time(folder, name, attributes.seconds)
    }

    fn whiteout(&self, folder: &OwnedFd, parent: &Path, name: &OsStr) -> io::Result<()> {
        let name = name.as_bytes();
        if name == OPAQUE_WHITEOUT {
            return self.hide_earlier(folder, parent);
        }
        if name.starts_with(RESERVED_PREFIX) {
            return Ok(());
        }
        let hidden = OsStr::from_bytes(&name[WHITEOUT_PREFIX.len()..]);
        if hidden.is_empty() || hidden == "." || hidden == ".." {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a whiteout without a name",
            ));
        }
        if self.brought.contains(&parent.join(hidden)) {
            return Ok(());
        }
        tree::remove(folder, hidden)
    }

    /// Removes from a folder what this layer has not brought.
    fn hide_earlier(&self, folder: &OwnedFd, path: &Path) -> io::Result<()> {
        for name in tree::names(folder)? {
            let below: PathBuf = path.join(&name);
            if !self.brought.contains(&below) {
                tree::remove(folder, &name)?;
            } else if tree::kind(folder, &name)? == Some(FileType::Directory) {
                self.hide_earlier(&self.tree.folder(&below)?, &below)?;
            }
        }
        Ok(())
    }
}

/// What an entry says of itself; its extended header wins over the old one.
fn attributes(entry: &mut Entry<'_, Hashed>) -> io::Result<Attributes> {
    let header = entry.header();
    let (mut uid, mut gid) = (header.uid()?, header.gid()?);
    let mode = header.mode()?;
    let mut seconds = i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0);
    let mut xattrs = Vec::new();
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions {
            let extension = extension?;
            let Ok(key) = extension.key() else { continue };
            let number = || extension.value().ok().and_then(|text| text.parse().ok());
            match key {
                "uid" => uid = number().unwrap_or(uid),
                "gid" => gid = number().unwrap_or(gid),
                "mtime" => {
                    let whole = extension
                        .value()
                        .ok()
                        .and_then(|text| text.split('.').next());
                    seconds = whole.and_then(|text| text.parse().ok()).unwrap_or(seconds);
                }
                _ => {
                    if let Some(name) = key.strip_prefix(XATTR_PREFIX)
                        && name.starts_with(KEPT_XATTRS)
                    {
                        xattrs.push((name.to_owned(), extension.value_bytes().to_owned()));
                    }
                }
            }
        }
    }
    let checked = |id: u64, what: &str| {
        u32::try_from(id)
            .ok()
            .filter(|id| *id < ID_COUNT)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{what} {id} is outside the {ID_COUNT} ids that a sandbox has"),
                )
            })
    };
    Ok(Attributes {
        uid: checked(uid, "owner")?,
        gid: checked(gid, "group")?,
        mode,
        seconds,
        xattrs,
    })
}
