//! Makes the mounts that containerd gives for a rootfs, and takes them away.
//!
//! All of it blocks and runs on blocking threads. Mounting stops at the first fault and then takes away
//! what it made; taking away may be repeated and ends with no mount, also where something still uses it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use a3sbox_execution::task::RootfsMount;
use nix::mount::{MntFlags, MsFlags};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::options::{self, MountOptions};
use super::{idmap, loopdev};

/// The kernel copies one page of options.
const DATA_MAX_BYTES: usize = 4096;
/// Layers of mounts on one folder that are taken away: far more than anyone stacks.
const STACK_LIMIT: usize = 128;

/// Why a rootfs could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("{0}")]
    Option(String),
    #[error("mount options of {fs_type} are longer than {DATA_MAX_BYTES} bytes")]
    TooLong { fs_type: String },
    #[error("cannot resolve mount target {target:?} below {root}")]
    Target {
        root: PathBuf,
        target: String,
        source: io::Error,
    },
    #[error("cannot create {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot set up a loop device for {file}")]
    Loop { file: PathBuf, source: io::Error },
    #[error("cannot map ids of {what}")]
    IdMap { what: String, source: io::Error },
    #[error("mount source: {source_path:?}, target: {target:?}, fstype: {fs_type}, data: {data:?}")]
    Mount {
        source_path: String,
        target: PathBuf,
        fs_type: String,
        data: String,
        source: io::Error,
    },
    #[error("mount helper {helper} failed: {output}")]
    Helper { helper: String, output: String },
    #[error("cannot unmount {target}")]
    Unmount { target: PathBuf, source: io::Error },
}

/// Makes all mounts below `root`, in order. After an error none of them is left.
pub(super) fn mount_all(mounts: &[RootfsMount], root: &Path) -> Result<(), MountError> {
    let mode = 0o711;
    match rustix::fs::mkdir(root, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => {
            return Err(MountError::Folder {
                path: root.to_owned(),
                source: errno.into(),
            });
        }
    }
    let mounted = mounts.iter().try_for_each(|entry| mount_one(entry, root));
    if mounted.is_err() {
        // The first error is the one to tell; `cleanup` runs again for what this could not do.
        let _ = unmount_all(mounts, root);
    }
    mounted
}

/// Takes away everything that is mounted at the targets of these mounts, the last one first.
pub(super) fn unmount_all(mounts: &[RootfsMount], root: &Path) -> Result<(), MountError> {
    for entry in mounts.iter().rev() {
        if entry.target.is_empty() || entry.target == "/" {
            continue;
        }
        // A target that is gone, or whose parent was not mounted, holds nothing of ours.
        if let Ok(target) = resolve(root, &entry.target) {
            unmount_stack(&fd_path(&target))?;
        }
    }
    unmount_stack(root)
}

/// Unmounts whatever lies on a folder, however deep it is stacked.
pub(crate) fn unmount_stack(target: &Path) -> Result<(), MountError> {
    for _ in 0..STACK_LIMIT {
        use nix::errno::Errno;
        // A busy mount leaves the tree at once, with all that is mounted below it, and ends with its
        // last user: the name must not stay.
        let unmounted = match nix::mount::umount2(target, MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EBUSY) => {
                nix::mount::umount2(target, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH)
            }
            result => result,
        };
        match unmounted {
            Ok(()) => {}
            // Not a mount point, or not there at all.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(errno) => {
                return Err(MountError::Unmount {
                    target: target.to_owned(),
                    source: errno.into(),
                });
            }
        }
    }
    Err(MountError::Unmount {
        target: target.to_owned(),
        source: io::ErrorKind::ResourceBusy.into(),
    })
}

fn mount_one(entry: &RootfsMount, root: &Path) -> Result<(), MountError> {
    // Held while its path through /proc is in use.
    let mut held = None;
    let target = if entry.target.is_empty() || entry.target == "/" {
        root.to_owned()
    } else {
        let target = resolve(root, &entry.target).map_err(|source| MountError::Target {
            root: root.to_owned(),
            target: entry.target.clone(),
            source,
        })?;
        fd_path(held.insert(target))
    };
    for helper in ["mount.fuse3", "mount.fuse"] {
        let prefix = format!("{}.", &helper["mount.".len()..]);
        if let Some(kind) = entry.fs_type.strip_prefix(&prefix) {
            return mount_with_helper(helper, kind, entry, &target);
        }
    }
    let mut words = entry.options.clone();
    let mut parsed = options::parse(&words).map_err(MountError::Option)?;
    let is_overlay = entry.fs_type == "overlay";
    let maps = match (parsed.uid_map.take(), parsed.gid_map.take()) {
        (Some(uids), Some(gids)) => Some(idmap::user_namespace(&uids, &gids).map_err(
            |source| MountError::IdMap {
                what: entry.source.clone(),
                source,
            },
        )?),
        _ => None,
    };
    // An overlay cannot be mapped itself: its lower folders are, in a folder that goes away afterwards.
    let mut mapped_lower = None;
    if let Some(maps) = maps.as_ref().filter(|_| is_overlay) {
        let mapped =
            idmap::map_lowerdirs(&mut words, maps).map_err(|source| MountError::IdMap {
                what: "the lower folders of an overlay".to_owned(),
                source,
            })?;
        mapped_lower = Some(mapped);
    }
    let mut inside = None;
    if is_overlay {
        inside = options::compact_lowerdirs(&mut words);
        if inside.is_some() || mapped_lower.is_some() {
            parsed.data = options::parse(&words).map_err(MountError::Option)?.data;
        }
    }
    let result = mount_parsed(entry, &parsed, &target, inside.as_deref());
    drop(mapped_lower);
    result?;
    if let Some(maps) = maps.as_ref().filter(|_| !is_overlay) {
        idmap::map_mount(&target, &target, maps, false).map_err(|source| MountError::IdMap {
            what: entry.source.clone(),
            source,
        })?;
    }
    Ok(())
}

fn mount_parsed(
    entry: &RootfsMount,
    parsed: &MountOptions,
    target: &Path,
    inside: Option<&str>,
) -> Result<(), MountError> {
    let data = parsed.data.join(",");
    if data.len() > DATA_MAX_BYTES {
        return Err(MountError::TooLong {
            fs_type: entry.fs_type.clone(),
        });
    }
    let flags = parsed.flags.0;
    let failed = |errno: nix::errno::Errno| MountError::Mount {
        source_path: entry.source.clone(),
        target: target.to_owned(),
        fs_type: entry.fs_type.clone(),
        data: data.clone(),
        source: errno.into(),
    };
    // A remount without data only changes flags, and the calls below do that.
    if !flags.contains(MsFlags::MS_REMOUNT) || !data.is_empty() {
        let mut source = entry.source.clone();
        let mut device = None;
        if parsed.is_loop {
            let read_only = flags.contains(MsFlags::MS_RDONLY);
            let file = Path::new(&entry.source);
            let made = loopdev::attach(file, read_only, parsed.direct_io).map_err(|source| {
                MountError::Loop {
                    file: file.to_owned(),
                    source,
                }
            })?;
            source = made.path.display().to_string();
            device = Some(made);
        }
        mount_at(inside, &source, target, &entry.fs_type, flags, &data).map_err(failed)?;
        // From here on the mount keeps the device; it clears itself with the mount.
        drop(device);
    }
    if let Some(kind) = parsed.propagation {
        change(target, kind.0).map_err(failed)?;
    }
    let read_only_bind = MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    if flags.contains(read_only_bind) {
        // The first call of a bind ignores every flag but the recursive one.
        change(target, flags | MsFlags::MS_REMOUNT).map_err(failed)?;
    }
    Ok(())
}

fn change(target: &Path, flags: MsFlags) -> nix::Result<()> {
    nix::mount::mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}

/// Mounts from inside a folder, where there is one: on a thread that has a working folder of its own.
fn mount_at(
    inside: Option<&str>,
    source: &str,
    target: &Path,
    fs_type: &str,
    flags: MsFlags,
    data: &str,
) -> nix::Result<()> {
    let data = (!data.is_empty()).then_some(data);
    let mount = || nix::mount::mount(Some(source), target, Some(fs_type), flags, data);
    let Some(inside) = inside else {
        return mount();
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("a3sbox-mount".to_owned())
            .spawn_scoped(scope, || {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
                nix::unistd::chdir(inside)?;
                mount()
            });
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(nix::errno::Errno::EAGAIN),
        }
    })
}

fn mount_with_helper(
    helper: &str,
    kind: &str,
    entry: &RootfsMount,
    target: &Path,
) -> Result<(), MountError> {
    let mut command = Command::new(helper);
    command.arg(&entry.source).arg(target);
    for option in &entry.options {
        command.args(["-o", option]);
    }
    command.args(["-t", kind]);
    let failed = |output: String| MountError::Helper {
        helper: helper.to_owned(),
        output,
    };
    let output = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(failed(format!("{}: {said}", output.status)))
    }
}

/// A folder below `root`, whatever links lie on the way: nothing leads out of it.
fn resolve(root: &Path, target: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags | OFlags::DIRECTORY, Mode::empty())?;
    Ok(rustix::fs::openat2(
        &root,
        target.trim_start_matches('/'),
        flags,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )?)
}

fn fd_path(fd: &OwnedFd) -> PathBuf {
    // The calls take a path; this one leads to the very file that was resolved.
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(&link).unwrap_or_else(|_| PathBuf::from(link))
}

#[cfg(test)]
mod tests;
