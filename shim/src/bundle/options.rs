//! Mount options as containerd's mount package writes them: flags, propagation, and data for the
//! filesystem.

use nix::mount::MsFlags;

/// Size from which an overlay's options are shortened: the kernel takes one page.
const COMPACT_FROM_BYTES: usize = 4096 - 512;

/// Options of one mount, sorted by who handles them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MountOptions {
    pub(super) flags: Flags,
    /// Kind of propagation, set by a call of its own after the mount.
    pub(super) propagation: Option<Flags>,
    pub(super) data: Vec<String>,
    pub(super) is_loop: bool,
    pub(super) direct_io: bool,
    pub(super) uid_map: Option<String>,
    pub(super) gid_map: Option<String>,
}

/// Mount flags with an empty default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(pub(super) MsFlags);

impl Default for Flags {
    fn default() -> Self {
        Self(MsFlags::empty())
    }
}

/// Sorts options. An option that names no flag is the filesystem's.
pub(super) fn parse(options: &[String]) -> Result<MountOptions, String> {
    let mut parsed = MountOptions::default();
    for option in options {
        if option.starts_with("X-containerd.") {
            // These are instructions for containerd's mount manager, which did not follow them.
            return Err(format!(
                "internal mount option {option:?} was not consumed by the mount manager"
            ));
        }
        if let Some((set, flag)) = flag(option) {
            parsed.flags.0.set(flag, set);
        } else if let Some(kind) = propagation(option) {
            parsed.propagation = Some(Flags(kind));
        } else if let Some(map) = option.strip_prefix("uidmap=") {
            parsed.uid_map = Some(map.to_owned());
        } else if let Some(map) = option.strip_prefix("gidmap=") {
            parsed.gid_map = Some(map.to_owned());
        } else {
            match option.as_str() {
                "loop" => parsed.is_loop = true,
                "defaults" | "" => {}
                _ => parsed.data.push(option.clone()),
            }
        }
    }
    if parsed.is_loop {
        parsed.data.retain(|option| {
            let is_direct = option == "direct-io";
            parsed.direct_io |= is_direct;
            !is_direct
        });
    }
    Ok(parsed)
}

/// The flag of an option, and whether the option sets or clears it.
fn flag(option: &str) -> Option<(bool, MsFlags)> {
    Some(match option {
        "async" => (false, MsFlags::MS_SYNCHRONOUS),
        "atime" => (false, MsFlags::MS_NOATIME),
        "bind" => (true, MsFlags::MS_BIND),
        "dev" => (false, MsFlags::MS_NODEV),
        "diratime" => (false, MsFlags::MS_NODIRATIME),
        "dirsync" => (true, MsFlags::MS_DIRSYNC),
        "exec" => (false, MsFlags::MS_NOEXEC),
        "mand" => (true, MsFlags::MS_MANDLOCK),
        "noatime" => (true, MsFlags::MS_NOATIME),
        "nodev" => (true, MsFlags::MS_NODEV),
        "nodiratime" => (true, MsFlags::MS_NODIRATIME),
        "noexec" => (true, MsFlags::MS_NOEXEC),
        "nomand" => (false, MsFlags::MS_MANDLOCK),
        "norelatime" => (false, MsFlags::MS_RELATIME),
        "nostrictatime" => (false, MsFlags::MS_STRICTATIME),
        "nosuid" => (true, MsFlags::MS_NOSUID),
        "rbind" => (true, MsFlags::MS_BIND.union(MsFlags::MS_REC)),
        "relatime" => (true, MsFlags::MS_RELATIME),
        "remount" => (true, MsFlags::MS_REMOUNT),
        "ro" => (true, MsFlags::MS_RDONLY),
        "rw" => (false, MsFlags::MS_RDONLY),
        "strictatime" => (true, MsFlags::MS_STRICTATIME),
        "suid" => (false, MsFlags::MS_NOSUID),
        "sync" => (true, MsFlags::MS_SYNCHRONOUS),
        _ => return None,
    })
}

fn propagation(option: &str) -> Option<MsFlags> {
    let (kind, recursive) = match option.strip_prefix('r') {
        Some(rest) => (rest, MsFlags::MS_REC),
        None => (option, MsFlags::empty()),
    };
    let kind = match kind {
        "private" => MsFlags::MS_PRIVATE,
        "shared" => MsFlags::MS_SHARED,
        "slave" => MsFlags::MS_SLAVE,
        "unbindable" => MsFlags::MS_UNBINDABLE,
        _ => return None,
    };
    Some(kind | recursive)
}

/// An overlay whose options would not fit into a page gets its lower folders relative to the folder
/// that they share; the mount is then made from inside it. Returns that folder.
pub(super) fn compact_lowerdirs(options: &mut [String]) -> Option<String> {
    let size: usize = options.iter().map(String::len).sum();
    if size < COMPACT_FROM_BYTES {
        return None;
    }
    let lower = options
        .iter_mut()
        .find(|option| option.starts_with("lowerdir="))?;
    let folders: Vec<&str> = lower["lowerdir=".len()..].split(':').collect();
    if folders.len() < 2 {
        return None;
    }
    let shared = shared_folder(&folders)?;
    let shorter: Option<Vec<&str>> = folders
        .iter()
        .map(|folder| folder.strip_prefix(&shared).filter(|rest| !rest.is_empty()))
        .collect();
    let shorter = format!("lowerdir={}", shorter?.join(":"));
    *lower = shorter;
    Some(shared)
}

/// The deepest folder that holds all of these, with a slash at its end; not the root.
fn shared_folder(folders: &[&str]) -> Option<String> {
    let first = folders.first()?;
    let mut length = first.len();
    for folder in folders {
        let same = first
            .bytes()
            .zip(folder.bytes())
            .take_while(|(a, b)| a == b);
        length = length.min(same.count());
    }
    let end = first.get(..length)?.rfind('/')?;
    (end > 0).then(|| first[..=end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn flags_propagation_and_data_are_told_apart() {
        let parsed = parse(&words("rbind ro nosuid rprivate size=5m defaults")).unwrap();
        assert_eq!(
            parsed.flags.0,
            MsFlags::MS_BIND | MsFlags::MS_REC | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID
        );
        assert_eq!(
            parsed.propagation,
            Some(Flags(MsFlags::MS_PRIVATE | MsFlags::MS_REC))
        );
        assert_eq!(parsed.data, ["size=5m"]);
    }

    #[test]
    fn a_later_option_clears_an_earlier_one() {
        let parsed = parse(&words("ro noexec rw exec")).unwrap();
        assert_eq!(parsed.flags, Flags::default());
    }

    #[test]
    fn loop_options_are_taken_from_the_data() {
        let parsed = parse(&words("loop direct-io ro")).unwrap();
        assert!(parsed.is_loop && parsed.direct_io && parsed.data.is_empty());
        assert_eq!(parse(&words("direct-io")).unwrap().data, ["direct-io"]);
    }

    #[test]
    fn maps_are_kept_and_internal_options_are_refused() {
        let parsed = parse(&words("uidmap=0:1:2 gidmap=0:3:4")).unwrap();
        assert_eq!(parsed.uid_map.as_deref(), Some("0:1:2"));
        assert_eq!(parsed.gid_map.as_deref(), Some("0:3:4"));
        assert!(parse(&words("X-containerd.mkfs.fs=ext4")).is_err());
    }

    #[test]
    fn many_lower_folders_become_relative_to_what_they_share() {
        let root = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots";
        let lower: Vec<String> = (100..200).map(|id| format!("{root}/{id}/fs")).collect();
        let mut options = vec![
            "index=off".to_owned(),
            format!("lowerdir={}", lower.join(":")),
        ];
        assert_eq!(compact_lowerdirs(&mut options), Some(format!("{root}/")));
        assert!(
            options[1].starts_with("lowerdir=100/fs:101/fs:"),
            "{}",
            options[1]
        );
        let mut short = words("lowerdir=/a/1:/a/2 upperdir=/u");
        assert_eq!(compact_lowerdirs(&mut short), None);
    }
}
