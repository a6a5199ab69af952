//! From the `cgroupsPath` of a config to the folders that an engine makes of it.

use std::path::{Component, Path, PathBuf};

use super::layout::{Hierarchy, Layout, Membership};
use super::systemd::UnitPath;
use super::{CgroupError, CgroupPaths};

/// The cgroups that relative paths start from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    /// Ours: a relative path, or none, is below it.
    pub(super) ours: &'a Membership,
    /// That of the first process: systemd's root is above its `init.scope`.
    pub(super) first: &'a Membership,
}

/// The folders of the cgroup that a config asks for.
pub(super) fn locate(
    layout: &Layout,
    path: Option<&Path>,
    container_id: &str,
    systemd: bool,
    around: Around<'_>,
) -> Result<CgroupPaths, CgroupError> {
    if systemd {
        let text = path.map(|path| path.to_string_lossy().into_owned());
        let cgroup = UnitPath::parse(text.as_deref(), container_id)?.cgroup()?;
        return Ok(layout.everywhere(|hierarchy| {
            let first = around.first.cgroup(hierarchy)?;
            let root = match first.file_name() {
                Some(name) if name == "init.scope" => first.parent().unwrap_or(first),
                _ => first,
            };
            Some(root.join(&cgroup))
        }));
    }
    let path = match path {
        Some(path) if !path.as_os_str().is_empty() => path.to_owned(),
        _ => PathBuf::from(container_id),
    };
    let invalid = |reason| CgroupError::InvalidPath {
        path: path.display().to_string(),
        reason,
    };
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(invalid("it goes up"));
    }
    if path.components().all(|part| part == Component::RootDir) {
        return Err(invalid("it is the root"));
    }
    Ok(layout.everywhere(|hierarchy| {
        if path.is_absolute() {
            return Some(path.clone());
        }
        let ours = match hierarchy {
            Hierarchy::V1(_) | Hierarchy::Unified => around.ours.cgroup(hierarchy)?,
        };
        Some(ours.join(&path))
    }))
}
