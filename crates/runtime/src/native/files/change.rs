//! Names made, moved and removed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, fstat, mkdirat, renameat, unlinkat};
use rustix::io::Errno;

use super::actor::Actor;
use super::entry::names;
use super::fault::Fault;
use super::resolve::{Root, kind, root_refused, subfolder};

const NEW_FOLDER_MODE: u32 = 0o755;
/// Deepest tree that is removed in one call.
const MAX_REMOVE_DEPTH: usize = 256;
/// Most names of one folder that a removal takes.
const MAX_REMOVE_NAMES: usize = 1_000_000;

/// Makes a folder and those above it. One that is there is fine.
pub(super) fn make_dir(root: &Root, actor: &Actor, asked: &str) -> Result<(), Fault> {
    folder_made(root, actor, &actor.path(asked))
        .map(drop)
        .map_err(Fault::at(asked))
}

/// The folder of a path, made where it is missing; it then belongs to the user.
pub(super) fn folder_made(root: &Root, actor: &Actor, path: &Path) -> io::Result<OwnedFd> {
    match root.folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let mut prefix = PathBuf::new();
    let mut folder = root.folder(&prefix)?;
    for part in path.components() {
        prefix.push(part);
        folder = match root.folder(&prefix) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = part.as_os_str();
                actor.turn_to(&fstat(&folder)?)?;
                match mkdirat(&folder, name, Mode::from_raw_mode(NEW_FOLDER_MODE)) {
                    // Or somebody else made it just now.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                root.folder(&prefix)?
            }
            found => found?,
        };
    }
    Ok(folder)
}

/// Gives a name to another place; a file there is replaced. Links at either end are not followed.
pub(super) fn rename(
    root: &Root,
    actor: &Actor,
    asked: &str,
    destination: &str,
) -> Result<(), Fault> {
    let from = root
        .place(&actor.path(asked))
        .map_err(Fault::at(asked))?
        .ok_or_else(|| root_refused(asked))?;
    let to = root
        .place(&actor.path(destination))
        .map_err(Fault::at(destination))?
        .ok_or_else(|| root_refused(destination))?;
    let renamed = || -> io::Result<()> {
        for folder in [&from.folder, &to.folder] {
            actor.turn_to(&fstat(folder)?)?;
        }
        Ok(renameat(&from.folder, &from.name, &to.folder, &to.name)?)
    };
    renamed().map_err(Fault::at(asked))
}

/// Removes a name with everything below it: a link itself, and nothing that is mounted below.
pub(super) fn remove(root: &Root, actor: &Actor, asked: &str) -> Result<(), Fault> {
    let at = Fault::at(asked);
    let place = root
        .place(&actor.path(asked))
        .map_err(&at)?
        .ok_or_else(|| root_refused(asked))?;
    if place.stat().map_err(&at)?.is_none() {
        return Err(at(Errno::NOENT.into()));
    }
    remove_below(actor, &place.folder, &place.name, 0).map_err(&at)
}

fn remove_below(actor: &Actor, folder: &OwnedFd, name: &OsStr, depth: usize) -> io::Result<()> {
    actor.turn_to(&fstat(folder)?)?;
    match kind(folder, name)? {
        None => return Ok(()),
        Some(FileType::Directory) => {}
        Some(_) => return ignore_gone(unlinkat(folder, name, AtFlags::empty())),
    }
    if depth == MAX_REMOVE_DEPTH {
        return Err(io::Error::other(format!(
            "it is nested deeper than {MAX_REMOVE_DEPTH} folders"
        )));
    }
    let below = subfolder(folder, name)?;
    for name in names(&below, MAX_REMOVE_NAMES)? {
        remove_below(actor, &below, OsStr::from_bytes(&name), depth + 1)?;
    }
    drop(below);
    ignore_gone(unlinkat(folder, name, AtFlags::REMOVEDIR))
}

/// Somebody else was faster: it is removed.
fn ignore_gone(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
