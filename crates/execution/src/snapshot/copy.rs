//! A faithful copy of a file tree: owners, modes, times, extended attributes, hard links, devices.
//!
//! Nothing is followed: a symbolic link is copied as a link, and the walk stays below its root because
//! every entry is named by its parent's own listing. Sockets are left out; they mean nothing in a copy.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, mknodat, utimensat,
};

use super::error::{SnapshotError, SnapshotResult};

/// Linux bounds the list of names and each value of extended attributes by this.
const MAX_XATTR_BYTES: usize = 64 * 1024;
/// Deepest folder that is copied; a path of that depth passes no system call.
const MAX_DEPTH: usize = 4096;

/// Copies `source` to `target`, which must not exist; returns the bytes of the regular files.
pub(super) fn copy_tree(source: &Path, target: &Path) -> SnapshotResult<u64> {
    let mut links = HashMap::new();
    copy_folder(source, target, &mut links, 0)
}

type Links = HashMap<(u64, u64), PathBuf>;

fn copy_folder(
    source: &Path,
    target: &Path,
    links: &mut Links,
    depth: usize,
) -> SnapshotResult<u64> {
    if depth > MAX_DEPTH {
        return Err(failed("walk", source)(rustix::io::Errno::LOOP.into()));
    }
    let metadata = fs::symlink_metadata(source).map_err(failed("read", source))?;
    fs::create_dir(target).map_err(failed("create folder", target))?;
    let mut bytes = 0_u64;
    let entries = fs::read_dir(source).map_err(failed("list", source))?;
    for entry in entries {
        let entry = entry.map_err(failed("list", source))?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed("read", &from))?;
        bytes += if kind.is_dir() {
            copy_folder(&from, &to, links, depth + 1)?
        } else {
            copy_leaf(&from, &to, links)?
        };
    }
    // Last, because the entries change the folder's own times.
    copy_attributes(&metadata, source, target)?;
    Ok(bytes)
}

fn copy_leaf(source: &Path, target: &Path, links: &mut Links) -> SnapshotResult<u64> {
    let metadata = fs::symlink_metadata(source).map_err(failed("read", source))?;
    let kind = metadata.file_type();
    if kind.is_socket() {
        return Ok(0);
    }
    let identity = (metadata.dev(), metadata.ino());
    if metadata.nlink() > 1 {
        if let Some(first) = links.get(&identity) {
            fs::hard_link(first, target).map_err(failed("link", target))?;
            return Ok(0);
        }
        links.insert(identity, target.to_path_buf());
    }
    let mut bytes = 0;
    if kind.is_symlink() {
        let points_to = fs::read_link(source).map_err(failed("read", source))?;
        std::os::unix::fs::symlink(points_to, target).map_err(failed("create", target))?;
    } else if kind.is_file() {
        // The standard library clones the extents where the filesystem can.
        bytes = fs::copy(source, target).map_err(failed("copy", source))?;
    } else {
        let node = if kind.is_char_device() {
            FileType::CharacterDevice
        } else if kind.is_block_device() {
            FileType::BlockDevice
        } else {
            FileType::Fifo
        };
        mknodat(CWD, target, node, Mode::empty(), metadata.rdev())
            .map_err(|e| failed("create", target)(e.into()))?;
    }
    copy_attributes(&metadata, source, target)?;
    Ok(bytes)
}

fn copy_attributes(metadata: &Metadata, source: &Path, target: &Path) -> SnapshotResult<()> {
    std::os::unix::fs::lchown(target, Some(metadata.uid()), Some(metadata.gid()))
        .map_err(failed("set the owner of", target))?;
    // After the owner, whose change clears set-user-id bits and file capabilities.
    if !metadata.file_type().is_symlink() {
        fs::set_permissions(target, fs::Permissions::from_mode(metadata.mode()))
            .map_err(failed("set the mode of", target))?;
    }
    copy_xattrs(source, target)?;
    let times = Timestamps {
        last_access: timespec(metadata.atime(), metadata.atime_nsec()),
        last_modification: timespec(metadata.mtime(), metadata.mtime_nsec()),
    };
    utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| failed("set the times of", target)(e.into()))
}

fn timespec(tv_sec: i64, tv_nsec: i64) -> Timespec {
    Timespec { tv_sec, tv_nsec }
}

fn copy_xattrs(source: &Path, target: &Path) -> SnapshotResult<()> {
    let mut names = vec![0_u8; MAX_XATTR_BYTES];
    let length = match llistxattr(source, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(failed("list the attributes of", source)(error.into())),
    };
    let mut value = Vec::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        value.resize(MAX_XATTR_BYTES, 0);
        let size = lgetxattr(source, name, &mut value[..])
            .map_err(|e| failed("read the attributes of", source)(e.into()))?;
        lsetxattr(target, name, &value[..size], XattrFlags::empty())
            .map_err(|e| failed("set the attributes of", target)(e.into()))?;
    }
    Ok(())
}

pub(super) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.to_path_buf();
    move |source| SnapshotError::Io { step, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_with_what_belongs_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("sub/file"), b"contents").unwrap();
        fs::set_permissions(source.join("sub/file"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(source.join("sub/file"), source.join("again")).unwrap();
        std::os::unix::fs::symlink("/nowhere", source.join("link")).unwrap();
        mknodat(CWD, source.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let target = dir.path().join("target");
        assert_eq!(copy_tree(&source, &target).unwrap(), 8);

        let file = fs::symlink_metadata(target.join("sub/file")).unwrap();
        let again = fs::symlink_metadata(target.join("again")).unwrap();
        assert_eq!(file.ino(), again.ino());
        assert_eq!(file.mode() & 0o7777, 0o640);
        assert_eq!(fs::read(target.join("sub/file")).unwrap(), b"contents");
        assert_eq!(
            fs::read_link(target.join("link")).unwrap(),
            Path::new("/nowhere")
        );
        assert!(
            fs::symlink_metadata(target.join("pipe"))
                .unwrap()
                .file_type()
                .is_fifo()
        );
        let mtime = |path: PathBuf| fs::symlink_metadata(path).unwrap().mtime_nsec();
        assert_eq!(mtime(source.join("sub")), mtime(target.join("sub")));
    }
}
