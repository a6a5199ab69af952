//! Paths of a container, resolved by the kernel below the container's root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use a3sbox_oci::ErrorCode;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use super::fault::Fault;
use crate::native::identity::ProcessIdentity;

/// Links that one path may lead over, as in the kernel.
const MAX_LINKS: usize = 40;
/// A resolution that raced with a rename is tried again, as the kernel asks for.
const MAX_RACES: usize = 64;

/// The root of a container's mount namespace.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// A name in a folder of the container. The folder is held; the name may come and go.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
}

impl Root {
    pub(super) fn open(init: ProcessIdentity) -> Result<Self, Fault> {
        let path = format!("/proc/{}/root", init.pid);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty()).map_err(|_| Fault::gone())?;
        // The pid was in use the whole time if it still means the same process.
        if ProcessIdentity::of(init.pid) != Some(init) {
            return Err(Fault::gone());
        }
        Ok(Self(root))
    }

    /// Opens a path, links followed inside of the root.
    pub(super) fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        resolve(&self.0, path, flags, ResolveFlags::IN_ROOT)
    }

    pub(super) fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_at(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// The folder of a path and the name in it; the name itself is not followed. `None` for the root.
    pub(super) fn place(&self, path: &Path) -> io::Result<Option<Place>> {
        let Some((parent, name)) = split(path) else {
            return Ok(None);
        };
        Ok(Some(Place {
            folder: self.folder(&parent)?,
            name,
        }))
    }

    /// As [`Self::place`], with links at the name followed: where a file of this path would be made.
    pub(super) fn place_of_file(
        &self,
        path: &Path,
        mut parent_of: impl FnMut(&Path) -> io::Result<OwnedFd>,
    ) -> io::Result<Option<Place>> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some((parent, name)) = split(&path) else {
                return Ok(None);
            };
            let folder = parent_of(&parent)?;
            match kind(&folder, &name)? {
                Some(FileType::Symlink) => {
                    let target = link_target(&folder, &name)?;
                    // An absolute target replaces the whole path; it is absolute in the container.
                    path = parent.join(target);
                }
                _ => return Ok(Some(Place { folder, name })),
            }
        }
        Err(Errno::LOOP.into())
    }
}

impl Place {
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// `openat2` with the rules that hold for every path of a container.
fn resolve(
    folder: impl AsFd,
    path: &Path,
    flags: OFlags,
    scope: ResolveFlags,
) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let resolve = scope | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MAX_RACES {
        match openat2(
            &folder,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            // A rename or mount elsewhere crossed the way: nothing is known, the same call again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            found => return Ok(found?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// A folder below another one, not followed when it is a link and not entered when it is a mount.
pub(super) fn subfolder(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let scope = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    resolve(folder, Path::new(name), flags, scope)
}

/// The very object of a descriptor again, opened for use.
pub(super) fn reopen(found: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

pub(super) fn kind(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<FileType>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn link_target(folder: &OwnedFd, name: &OsStr) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;

    let target = readlinkat(folder, name, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// Parent and last name. What ends in `..` has no last name: it is a folder by another way, and refused.
fn split(path: &Path) -> Option<(PathBuf, OsString)> {
    match path.components().next_back()? {
        Component::Normal(name) => Some((
            path.parent().unwrap_or(Path::new("")).to_owned(),
            name.to_owned(),
        )),
        _ => None,
    }
}

/// The root cannot be moved, removed or written.
pub(super) fn root_refused(path: &str) -> Fault {
    Fault::refused(
        path,
        ErrorCode::FailedPrecondition,
        "it names no file: it is the root, or ends in a relative step",
    )
}
