//! Whole files, in and out.
//!
//! An upload is written beside its name and appears by a rename: under the name is the old file or the new
//! one, never a part.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use a3sbox_oci::{Error, ErrorCode, MAX_FILE_TRANSFER_BYTES};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, openat, renameat, unlinkat,
};

use super::actor::Actor;
use super::change;
use super::fault::Fault;
use super::resolve::{Place, Root, reopen, root_refused};

/// Mode of a file that was not there.
const NEW_FILE_MODE: u32 = 0o644;
const UPLOAD_PREFIX: &str = ".a3sbox-upload-";

pub(super) fn decode(data: &str) -> Result<Vec<u8>, Error> {
    STANDARD
        .decode(data)
        .map_err(|_| Error::new(ErrorCode::InvalidArgument, "data is not valid base64"))
}

/// The content in base64, and its size.
pub(super) fn download(root: &Root, actor: &Actor, asked: &str) -> Result<(String, u64), Fault> {
    let at = Fault::at(asked);
    // Looked at before it is opened: the open of a device may do something.
    let found = root
        .open_at(&actor.path(asked), OFlags::PATH)
        .map_err(&at)?;
    let stat = fstat(&found).map_err(|error| at(error.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(at(rustix::io::Errno::ISDIR.into())),
        _ => {
            return Err(Fault::refused(
                asked,
                ErrorCode::FailedPrecondition,
                "it is not a regular file",
            ));
        }
    }
    let limit = MAX_FILE_TRANSFER_BYTES as u64;
    let too_large = || {
        Fault::refused(
            asked,
            ErrorCode::ResourceExhausted,
            &format!("it has more than the {limit} bytes of a transfer"),
        )
    };
    if u64::try_from(stat.st_size).is_ok_and(|size| size > limit) {
        return Err(too_large());
    }
    actor.turn_to(&stat).map_err(&at)?;
    let file = reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK).map_err(&at)?;
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(&at)?;
    let size = bytes.len() as u64;
    if size > limit {
        return Err(too_large());
    }
    Ok((STANDARD.encode(&bytes), size))
}

/// Writes a whole file. Folders above it that are missing are made; links are followed in the container.
pub(super) fn upload(root: &Root, actor: &Actor, asked: &str, bytes: &[u8]) -> Result<(), Fault> {
    let at = Fault::at(asked);
    let place = root
        .place_of_file(&actor.path(asked), |parent| {
            change::folder_made(root, actor, parent)
        })
        .map_err(&at)?
        .ok_or_else(|| root_refused(asked))?;
    let old = place.stat().map_err(&at)?;
    let (mode, uid, gid) = match &old {
        Some(old) => {
            let kind = FileType::from_raw_mode(old.st_mode);
            if kind == FileType::Directory {
                return Err(at(rustix::io::Errno::ISDIR.into()));
            }
            if kind != FileType::RegularFile {
                return Err(Fault::refused(
                    asked,
                    ErrorCode::FailedPrecondition,
                    "it is not a regular file",
                ));
            }
            // Set-id bits go with a new content.
            (old.st_mode & 0o777, old.st_uid, old.st_gid)
        }
        None => (NEW_FILE_MODE, actor.uid, actor.gid),
    };
    if let Some(old) = &old {
        actor.turn_to(old).map_err(&at)?;
        require_writable(&place).map_err(&at)?;
    }
    let folder = fstat(&place.folder).map_err(|error| at(error.into()))?;
    actor.turn_to(&folder).map_err(&at)?;
    let temporary = OsString::from(format!("{UPLOAD_PREFIX}{}", unique()));
    let written = write(&place, &temporary, bytes, mode, uid, gid).and_then(|()| {
        Ok(renameat(
            &place.folder,
            &temporary,
            &place.folder,
            &place.name,
        )?)
    });
    if let Err(error) = written {
        // Its own error is the one to report.
        let _ = unlinkat(&place.folder, &temporary, AtFlags::empty());
        return Err(at(error));
    }
    Ok(())
}

/// A file that the user may not write must not be replaced either.
fn require_writable(place: &Place) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(&place.folder, &place.name, flags, Mode::empty()) {
        // A program that runs is replaced all the same: the rename leaves it its own.
        Ok(_) | Err(rustix::io::Errno::TXTBSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn write(
    place: &Place,
    name: &OsString,
    bytes: &[u8],
    mode: u32,
    uid: u32,
    gid: u32,
) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: OwnedFd = openat(&place.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    let made = fstat(&file)?;
    if (made.st_uid, made.st_gid) != (uid, gid) {
        match fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            // An ordinary user who replaces another one's file becomes its owner.
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    fchmod(&file, Mode::from_raw_mode(mode))?;
    file.sync_all()
}

/// A name that no other upload has.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};

    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(
        "{}-{}-{:x}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed),
        crate::native::reaper::now_unix_ns()
    )
}
