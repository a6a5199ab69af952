//! What is at a path: one entry, or those of a folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use a3sbox_oci::{ErrorCode, FilesystemEntry, FilesystemEntryKind};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, fstat, statat};
use rustix::io::Errno;

use super::actor::Actor;
use super::fault::Fault;
use super::resolve::{Root, link_target, reopen, subfolder};

/// Most entries of one listing.
const MAX_ENTRIES: usize = 4_096;

/// A path itself, with a link followed. A dangling link is an entry of its own; a loop is an error.
pub(super) fn stat(root: &Root, actor: &Actor, asked: &str) -> Result<FilesystemEntry, Fault> {
    let at = Fault::at(asked);
    let path = actor.path(asked);
    let Some(place) = root.place(&path).map_err(&at)? else {
        let folder = root.folder(&path).map_err(&at)?;
        let stat = fstat(&folder).map_err(|error| at(error.into()))?;
        return Ok(entry(actor, &path, &stat, None));
    };
    let own = place
        .stat()
        .map_err(&at)?
        .ok_or_else(|| at(Errno::NOENT.into()))?;
    if FileType::from_raw_mode(own.st_mode) != FileType::Symlink {
        return Ok(entry(actor, &path, &own, None));
    }
    let target = link_target(&place.folder, &place.name).map_err(&at)?;
    match root.open_at(&path, OFlags::PATH) {
        Ok(found) => {
            let stat = fstat(&found).map_err(|error| at(error.into()))?;
            Ok(entry(actor, &path, &stat, Some(&target)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(entry(actor, &path, &own, Some(&target)))
        }
        Err(error) => Err(at(error)),
    }
}

/// The entries below a folder, `depth` levels deep (0 is 1), each folder before what is in it. Links are
/// listed, not followed.
pub(super) fn list(
    root: &Root,
    actor: &Actor,
    asked: &str,
    depth: u32,
) -> Result<Vec<FilesystemEntry>, Fault> {
    let at = Fault::at(asked);
    let path = actor.path(asked);
    let found = root.folder(&path).map_err(&at)?;
    let folder_stat = fstat(&found).map_err(|error| at(error.into()))?;
    actor.turn_to(&folder_stat).map_err(&at)?;
    let folder = reopen(&found, OFlags::RDONLY | OFlags::DIRECTORY).map_err(&at)?;
    let mut listing = Listing {
        actor,
        entries: Vec::new(),
    };
    match listing.add(&folder, &path, depth.max(1)) {
        Ok(()) => Ok(listing.entries),
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Err(Fault::refused(
            asked,
            ErrorCode::ResourceExhausted,
            &format!("it has more than {MAX_ENTRIES} entries"),
        )),
        Err(error) => Err(at(error)),
    }
}

struct Listing<'a> {
    actor: &'a Actor,
    entries: Vec<FilesystemEntry>,
}

impl Listing<'_> {
    fn add(&mut self, folder: &OwnedFd, path: &Path, depth: u32) -> io::Result<()> {
        for name in names(folder, MAX_ENTRIES - self.entries.len())? {
            let name = OsStr::from_bytes(&name);
            let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone meanwhile.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            let below = path.join(name);
            let kind = FileType::from_raw_mode(stat.st_mode);
            let target = match kind {
                FileType::Symlink => link_target(folder, name).ok(),
                _ => None,
            };
            if self.entries.len() == MAX_ENTRIES {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            self.entries
                .push(entry(self.actor, &below, &stat, target.as_deref()));
            if kind == FileType::Directory && depth > 1 {
                match subfolder(folder, name) {
                    Ok(subfolder) => self.add(&subfolder, &below, depth - 1)?,
                    // Another mount, gone meanwhile, or not for this user: it is listed, not entered.
                    Err(_) => continue,
                }
            }
        }
        Ok(())
    }
}

/// The names in a folder, in order; more than `room` of them are an error.
pub(super) fn names(folder: &OwnedFd, room: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for found in Dir::read_from(folder)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == room {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        names.push(name.to_owned());
    }
    names.sort();
    Ok(names)
}

fn entry(actor: &Actor, path: &Path, stat: &Stat, target: Option<&Path>) -> FilesystemEntry {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    FilesystemEntry {
        name: path
            .file_name()
            .map_or_else(|| "/".to_owned(), |name| text(Path::new(name))),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FilesystemEntryKind::File,
            FileType::Directory => FilesystemEntryKind::Directory,
            _ => FilesystemEntryKind::Unspecified,
        },
        path: text(&plain(path)),
        size: stat.st_size,
        mode: stat.st_mode,
        permissions: permissions(stat.st_mode),
        owner: actor.owner(stat),
        group: actor.group(stat),
        modified_seconds: stat.st_mtime,
        modified_nanos: i32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        symlink_target: target.map(text),
        metadata: BTreeMap::new(),
    }
}

/// Without `.` and double slashes; `..` stays, since it means what the links before it say.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// As `ls -l` shows a mode.
fn permissions(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let bit = |mask: u32, sign: char| if mode & mask == 0 { '-' } else { sign };
    // A special bit takes the place of the execute bit, in upper case without one.
    let special = |mask: u32, execute: u32, sign: char| match (mode & mask, mode & execute) {
        (0, 0) => '-',
        (0, _) => 'x',
        (_, 0) => sign.to_ascii_uppercase(),
        _ => sign,
    };
    [
        kind,
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        special(0o4000, 0o100, 's'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        special(0o2000, 0o010, 's'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        special(0o1000, 0o001, 't'),
    ]
    .iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn modes_look_as_in_ls() {
        for (mode, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o104_755, "-rwsr-xr-x"),
            (0o041_777, "drwxrwxrwt"),
            (0o102_644, "-rw-r-Sr--"),
            (0o120_777, "lrwxrwxrwx"),
        ] {
            assert_eq!(permissions(mode), text);
        }
    }
}
