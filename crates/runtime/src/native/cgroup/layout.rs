//! Where the hierarchies are mounted, and where in them a process is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{CgroupError, CgroupPaths};

/// Mount options of a version 1 hierarchy that are not controllers.
const OTHER_OPTIONS: [&str; 7] = [
    "rw",
    "ro",
    "xattr",
    "noprefix",
    "clone_children",
    "none",
    "favordynmods",
];

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// Which cgroup of the hierarchy is at the mount point: not `/` where a container manager has bound a part
    /// of it without a cgroup namespace.
    root: PathBuf,
}

impl Mount {
    /// The folder of a cgroup.
    fn folder(&self, cgroup: &Path) -> PathBuf {
        let below = cgroup
            .strip_prefix(&self.root)
            .or_else(|_| cgroup.strip_prefix("/"))
            .unwrap_or(cgroup);
        self.point.join(below)
    }
}

/// The mounted hierarchies of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    v1: BTreeMap<String, Mount>,
    unified: Option<Mount>,
}

impl Layout {
    /// As this process sees them.
    pub(crate) fn of_this_process() -> Result<Self, CgroupError> {
        let path = "/proc/self/mountinfo";
        let text = std::fs::read(path).map_err(|source| CgroupError::Read {
            path: PathBuf::from(path),
            source,
        })?;
        Ok(Self::parse(&String::from_utf8_lossy(&text), Path::new("/")))
    }

    /// From the text of a `mountinfo` file; mount points are looked for below `below`.
    pub(super) fn parse(mountinfo: &str, below: &Path) -> Self {
        let mut layout = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let mut left = left.split(' ');
            let (Some(root), Some(point)) = (left.nth(3), left.next()) else {
                continue;
            };
            let mut right = right.split(' ');
            let kind = right.next().unwrap_or_default();
            let options = right.nth(1).unwrap_or_default();
            let mount = || {
                let point = unescape(point);
                Mount {
                    point: below.join(point.strip_prefix("/").unwrap_or(&point)),
                    root: unescape(root),
                }
            };
            match kind {
                "cgroup2" if layout.unified.is_none() => layout.unified = Some(mount()),
                "cgroup" => {
                    for controller in options.split(',').filter(|name| is_controller(name)) {
                        // The first mount is the node's; later ones are bound into something.
                        layout.v1.entry(controller.to_owned()).or_insert_with(mount);
                    }
                }
                _ => {}
            }
        }
        layout
    }

    /// The folders of the cgroups that a process is in, without those that `ours` shares.
    pub(super) fn locate(&self, theirs: &Membership, ours: &Membership) -> CgroupPaths {
        let mut paths = CgroupPaths::default();
        for (name, cgroup) in &theirs.v1 {
            if let Some(mount) = self.v1.get(name)
                && ours.v1.get(name) != Some(cgroup)
            {
                paths.v1.insert(name.clone(), mount.folder(cgroup));
            }
        }
        if let (Some(mount), Some(cgroup)) = (&self.unified, &theirs.unified)
            && ours.unified.as_ref() != Some(cgroup)
        {
            paths.unified = Some(mount.folder(cgroup));
        }
        paths
    }

    /// The folders of one cgroup name in every hierarchy, each name made by `name_in`.
    pub(super) fn everywhere(
        &self,
        mut name_in: impl FnMut(Hierarchy<'_>) -> Option<PathBuf>,
    ) -> CgroupPaths {
        let v1 = self.v1.iter().filter_map(|(controller, mount)| {
            let cgroup = name_in(Hierarchy::V1(controller))?;
            Some((controller.clone(), mount.folder(&cgroup)))
        });
        CgroupPaths {
            v1: v1.collect(),
            unified: self
                .unified
                .as_ref()
                .and_then(|mount| Some(mount.folder(&name_in(Hierarchy::Unified)?))),
        }
    }
}

/// One hierarchy, by what it is called.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hierarchy<'a> {
    V1(&'a str),
    Unified,
}

/// The cgroups that one process is in: the parsed `/proc/<pid>/cgroup`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Membership {
    v1: BTreeMap<String, PathBuf>,
    unified: Option<PathBuf>,
}

impl Membership {
    pub(super) fn parse(text: &str) -> Self {
        let mut membership = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let path = PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(path));
            if number == "0" && controllers.is_empty() {
                membership.unified = Some(path);
                continue;
            }
            for controller in controllers.split(',') {
                membership.v1.insert(controller.to_owned(), path.clone());
            }
        }
        membership
    }

    pub(super) fn cgroup(&self, hierarchy: Hierarchy<'_>) -> Option<&Path> {
        match hierarchy {
            Hierarchy::V1(name) => self.v1.get(name).map(PathBuf::as_path),
            Hierarchy::Unified => self.unified.as_deref(),
        }
    }
}

fn is_controller(option: &str) -> bool {
    !option.is_empty()
        && !OTHER_OPTIONS.contains(&option)
        && (option.starts_with("name=") || !option.contains('='))
}

/// Undoes the octal escapes of `mountinfo`.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let octal = bytes
            .get(at + 1..at + 4)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(escaped) => {
                out.push(escaped);
                at += 4;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}
