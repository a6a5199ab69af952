//! Mounts whose owners are shifted: for pods with a user namespace of their own, containerd gives the
//! maps as mount options.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::mount::unmount_stack;
use crate::sys;

/// A user namespace with the maps of a mount.
pub(super) struct UserNamespace(File);

/// Makes a user namespace with these maps (`container:host:size`, several by `,`).
///
/// A process has to be in it while its maps are written; the namespace then lives by its descriptor.
pub(super) fn user_namespace(uids: &str, gids: &str) -> io::Result<UserNamespace> {
    let uids = map_lines(uids)?;
    let gids = map_lines(gids)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(HOLD_ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut holder = command.spawn()?;
    let result = (|| {
        // One byte says that the holder is in its namespace.
        let mut ready = [0];
        let pipe = holder.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.read_exact(&mut ready)?;
        let proc = PathBuf::from(format!("/proc/{}", holder.id()));
        std::fs::write(proc.join("uid_map"), uids)?;
        std::fs::write(proc.join("gid_map"), gids)?;
        File::open(proc.join("ns/user"))
    })();
    // It ends when its standard input does; killing it is for the case that it never came so far.
    let _ = holder.kill();
    let _ = holder.wait();
    result.map(UserNamespace)
}

/// Argument by which the binary runs as the short-lived holder of a user namespace.
pub(crate) const HOLD_ARGUMENT: &str = "hold-user-namespace";

/// The holder: enters a new user namespace, says so, and waits for the end of its standard input.
pub(crate) fn hold() -> io::Result<()> {
    use std::io::Write as _;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER)?;
    io::stdout().write_all(b"1")?;
    io::stdout().flush()?;
    let mut rest = Vec::new();
    io::stdin().take(1).read_to_end(&mut rest)?;
    Ok(())
}

/// Clones the mount of `from` with shifted owners and puts it on `onto`.
pub(super) fn map_mount(
    from: &Path,
    onto: &Path,
    maps: &UserNamespace,
    read_only: bool,
) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree: OwnedFd = rustix::mount::open_tree(rustix::fs::CWD, from, flags)?;
    sys::idmap_tree(tree.as_fd(), maps.0.as_fd(), read_only)?;
    rustix::mount::move_mount(
        &tree,
        "",
        rustix::fs::CWD,
        onto,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}

/// Shifted copies of an overlay's lower folders. They are needed until the overlay is mounted.
pub(super) struct MappedLower {
    folder: PathBuf,
}

impl Drop for MappedLower {
    fn drop(&mut self) {
        // The overlay keeps what it uses; the name is all that goes.
        let _ = unmount_stack(&self.folder);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Replaces the lower folders in `options` by shifted ones.
pub(super) fn map_lowerdirs(
    options: &mut [String],
    maps: &UserNamespace,
) -> io::Result<MappedLower> {
    let invalid = |text: &'static str| io::Error::new(io::ErrorKind::InvalidInput, text);
    let lower = options
        .iter_mut()
        .find(|option| option.starts_with("lowerdir="))
        .ok_or_else(|| invalid("the overlay has no lower folders"))?;
    let folders: Vec<PathBuf> = lower["lowerdir=".len()..]
        .split(':')
        .map(PathBuf::from)
        .collect();
    let shared = shared_parent(&folders).ok_or_else(|| invalid("lower folders share no folder"))?;
    let folder = private_folder()?;
    let mapped = MappedLower { folder };
    map_mount(&shared, &mapped.folder, maps, true)?;
    let shifted: Vec<String> = folders
        .iter()
        .filter_map(|path| path.strip_prefix(&shared).ok())
        .map(|rest| mapped.folder.join(rest).display().to_string())
        .collect();
    *lower = format!("lowerdir={}", shifted.join(":"));
    Ok(mapped)
}

/// The deepest folder above all of these.
fn shared_parent(folders: &[PathBuf]) -> Option<PathBuf> {
    let first = folders.first()?.parent()?;
    let shared = first
        .ancestors()
        .find(|candidate| folders.iter().all(|folder| folder.starts_with(candidate)))?;
    (shared.parent().is_some()).then(|| shared.to_owned())
}

fn private_folder() -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("/run/a3sbox-idmap-{}-{number}", std::process::id());
    let folder = PathBuf::from(name);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Lines of `uid_map`: containerd joins ranges by commas.
fn map_lines(map: &str) -> io::Result<String> {
    let mut lines = String::new();
    for range in map.split(',') {
        let numbers: Vec<u32> = range
            .split(':')
            .map_while(|part| part.parse().ok())
            .collect();
        let [inside, outside, size] = numbers[..] else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("id map {range:?} is not container:host:size"),
            ));
        };
        lines.push_str(&format!("{inside} {outside} {size}\n"));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_become_lines_and_broken_ones_are_refused() {
        assert_eq!(map_lines("0:100000:65536").unwrap(), "0 100000 65536\n");
        assert_eq!(map_lines("0:1:2,2:9:1").unwrap(), "0 1 2\n2 9 1\n");
        assert!(map_lines("0:1").is_err());
        assert!(map_lines("a:b:c").is_err());
    }

    #[test]
    fn lower_folders_share_the_deepest_folder_above_them() {
        let folders = |words: &[&str]| words.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            shared_parent(&folders(&["/s/1/fs", "/s/2/fs"])),
            Some("/s".into())
        );
        assert_eq!(shared_parent(&folders(&["/s/1/fs"])), Some("/s/1".into()));
        assert_eq!(shared_parent(&folders(&["/a/1", "/b/1"])), None);
    }
}
