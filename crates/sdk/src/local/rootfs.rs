//! A sandbox's root filesystem: an overlay of its image and of what it wrote.
//!
//! ```text
//! <box>/rootfs      the overlay: below it the image, or the snapshot that it was restored from
//! <box>/upper       what the sandbox wrote; it stays from restart to restart
//! <run>/<home>/<id> the same overlay again, where the engine finds it
//! ```
//!
//! The engine enters the user namespace first and looks for the root then, with the rights of an id that is
//! nobody on the host: folders above a home may be closed to that one, those above the second place are not. They
//! are closed to everybody else.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use sha2::{Digest as _, Sha256};

use super::ids::FIRST_HOST_ID;

/// Where the engine finds the roots of all homes.
const RUN_FOLDER: &str = "/run/a3sbox-sdk";
/// Bytes of a home's digest that name its folder there.
const HOME_DIGEST_BYTES: usize = 6;
const SEARCHABLE: u32 = 0o711;
/// For root, and for the group that is the sandboxes' own.
const SEARCHABLE_FOR_SANDBOXES: u32 = 0o710;
const ROOT_MODE: u32 = 0o755;
const PRIVATE: u32 = 0o700;
/// Attempts to make folders that others take away.
const MAX_FOLDER_RACES: usize = 64;
/// Mounts that are taken off one place before it is called stuck.
const MAX_STACKED_MOUNTS: usize = 8;

/// Where the parts of one sandbox's root are.
#[derive(Debug, Clone)]
pub(super) struct Rootfs {
    box_dir: PathBuf,
    home_run: PathBuf,
    /// What the engine is told.
    pub(super) engine_root: PathBuf,
}

impl Rootfs {
    pub(super) fn of(home: &Path, box_dir: &Path, id: &str) -> Self {
        let digest = Sha256::digest(home.as_os_str().as_encoded_bytes());
        let name: String = digest
            .iter()
            .take(HOME_DIGEST_BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let home_run = Path::new(RUN_FOLDER).join(name);
        Self {
            box_dir: box_dir.to_owned(),
            engine_root: home_run.join(id),
            home_run,
        }
    }

    /// The overlay in its own place.
    pub(super) fn path(&self) -> PathBuf {
        self.box_dir.join("rootfs")
    }

    /// Mounts the overlay over `lower`. What an earlier attempt left is taken off first.
    pub(super) fn mount(&self, lower: &Path) -> io::Result<()> {
        self.unmount()?;
        let upper = self.box_dir.join("upper");
        let work = self.box_dir.join("work");
        folder(&self.path(), ROOT_MODE)?;
        folder(&work, PRIVATE)?;
        if folder(&upper, ROOT_MODE)? {
            // The merged root shows the upper folder's own attributes.
            let root = fs::metadata(lower)?;
            chown(&upper, Some(FIRST_HOST_ID), Some(FIRST_HOST_ID))?;
            fs::set_permissions(
                &upper,
                fs::Permissions::from_mode(root.permissions().mode()),
            )?;
        }
        self.make_engine_root()?;
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            escaped(lower)?,
            escaped(&upper)?,
            escaped(&work)?
        );
        let options = std::ffi::CString::new(options)?;
        mount(
            "overlay",
            self.path(),
            "overlay",
            MountFlags::NODEV | MountFlags::NOSUID,
            Some(options.as_c_str()),
        )?;
        // Mounts of the container must not come back here.
        mount_change(self.path(), MountPropagationFlags::PRIVATE)?;
        mount_bind(self.path(), &self.engine_root)?;
        mount_change(&self.engine_root, MountPropagationFlags::PRIVATE)?;
        Ok(())
    }

    /// The last sandbox of a home, and of all homes, takes the folders above away, perhaps just now.
    fn make_engine_root(&self) -> io::Result<()> {
        let attempt = || {
            folder(Path::new(RUN_FOLDER), SEARCHABLE)?;
            folder(&self.home_run, SEARCHABLE_FOR_SANDBOXES)?;
            chown(&self.home_run, Some(0), Some(FIRST_HOST_ID))?;
            folder(&self.engine_root, ROOT_MODE).map(drop)
        };
        for _ in 1..MAX_FOLDER_RACES {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => return made,
            }
        }
        attempt()
    }

    /// Takes everything off again; what the sandbox wrote stays.
    pub(super) fn unmount(&self) -> io::Result<()> {
        take_off(&self.engine_root)?;
        take_off(&self.path())?;
        for folder in [&self.engine_root, &self.home_run, Path::new(RUN_FOLDER)] {
            match fs::remove_dir(folder) {
                Ok(()) => {}
                // Another sandbox, or another home, is in it.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn take_off(place: &Path) -> io::Result<()> {
    for _ in 0..MAX_STACKED_MOUNTS {
        match unmount(place, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => {
                return Err(io::Error::new(
                    io::Error::from(error).kind(),
                    format!("cannot unmount {}: {error}", place.display()),
                ));
            }
        }
    }
    Err(io::Error::other(format!(
        "{} has more than {MAX_STACKED_MOUNTS} mounts",
        place.display()
    )))
}

/// Makes a folder with exactly this mode; whether it was not there.
fn folder(path: &Path, mode: u32) -> io::Result<bool> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {
            // The process's umask has taken bits away.
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// A path as overlayfs reads it among its options.
fn escaped(path: &Path) -> io::Result<String> {
    let text = path.to_str().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not UTF-8", path.display()),
        )
    })?;
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        if matches!(sign, '\\' | ':' | ',') {
            escaped.push('\\');
        }
        escaped.push(sign);
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_paths_are_escaped() {
        assert_eq!(escaped(Path::new("/a:b,c\\d")).unwrap(), "/a\\:b\\,c\\\\d");
    }

    #[test]
    fn homes_do_not_meet() {
        let place = |home: &str| Rootfs::of(Path::new(home), Path::new("/b"), "x").engine_root;
        assert_ne!(place("/a"), place("/b"));
        assert!(place("/a").starts_with(RUN_FOLDER));
    }
}
