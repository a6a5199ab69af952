//! The folder that layers are unpacked into: every name is resolved inside of it, whatever links are there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timestamps, Uid, chmodat, chownat,
    mkdirat, openat, openat2, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

/// Longest name in a layer.
const MAX_PATH_BYTES: usize = 4_096;
/// Mode of a folder that a layer has entries in and no entry of.
const IMPLIED_FOLDER_MODE: u32 = 0o755;

#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    /// First host id of the range that the files' owners are shifted into.
    first_id: u32,
}

impl Tree {
    pub(super) fn open(root: &Path, first_id: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self {
            root: openat(CWD, root, flags, Mode::empty())?,
            first_id,
        })
    }

    /// A folder of the tree, links followed inside of it.
    pub(super) fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.root, path, flags, Mode::empty(), resolve)?)
    }

    /// As [`Self::folder`]; what is missing of it is made.
    pub(super) fn folder_made(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut prefix = PathBuf::new();
        let mut folder = self.folder(&prefix)?;
        for part in path.components() {
            prefix.push(part);
            folder = match self.folder(&prefix) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let name = part.as_os_str();
                    mkdirat(&folder, name, Mode::from_raw_mode(IMPLIED_FOLDER_MODE))?;
                    self.own(&folder, name, 0, 0)?;
                    // The process's umask has taken bits away.
                    set_mode(&folder, name, IMPLIED_FOLDER_MODE)?;
                    self.folder(&prefix)?
                }
                found => found?,
            };
        }
        Ok(folder)
    }

    /// Gives a name the owner that it has in the layer, shifted.
    pub(super) fn own(&self, folder: &OwnedFd, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
        let owner = Some(Uid::from_raw(self.first_id + uid));
        let group = Some(Gid::from_raw(self.first_id + gid));
        Ok(chownat(
            folder,
            name,
            owner,
            group,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }
}

/// A name of a layer as a plain relative path: no `..`, no `.`, no leading slash.
pub(super) fn plain(bytes: &[u8]) -> Option<PathBuf> {
    if bytes.len() > MAX_PATH_BYTES || bytes.contains(&0) {
        return None;
    }
    let mut path = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(bytes)).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// What is at a name, links not followed.
pub(super) fn kind(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<FileType>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes a name with everything below it; a link itself, never what it names.
pub(super) fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match kind(folder, name)? {
        None => Ok(()),
        Some(FileType::Directory) => {
            // By descriptor: the standard library then goes down by descriptors as well.
            let path = Path::new("/proc/self/fd")
                .join(folder.as_raw_fd().to_string())
                .join(name);
            std::fs::remove_dir_all(path)
        }
        Some(_) => Ok(unlinkat(folder, name, AtFlags::empty())?),
    }
}

/// The names in a folder.
pub(super) fn names(folder: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

/// Sets the mode of what is no link.
pub(super) fn set_mode(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<()> {
    Ok(chmodat(
        folder,
        name,
        Mode::from_raw_mode(mode & 0o7777),
        AtFlags::empty(),
    )?)
}

pub(super) fn set_time(folder: &OwnedFd, name: &OsStr, seconds: i64) -> io::Result<()> {
    let time = rustix::fs::Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
