//! The cgroups of containers: found, read, frozen, emptied and removed. Limits are set by the engine.
//!
//! ```text
//! of_process(pid)     /proc/<pid>/cgroup  ┐
//! from_config(path)   the spec's path     ├─► CgroupPaths ─► journal ─► from_paths
//! Layout              /proc/self/mountinfo┘        │
//!                                                  └─► pids · stats · oom_kills · freeze · thaw · kill · remove
//! ```
//!
//! A node has hierarchies of version 1 (each with some controllers), one of version 2, or both (hybrid: the
//! controllers are in version 1). A cgroup counts as version 1 as soon as one controller is.
//!
//! Everything here tolerates that files and folders vanish between two looks: a container may end at any time.
//! A call reads a few small files and waits for nothing, but for [`Cgroup::freeze`].

mod config_path;
mod control;
mod files;
mod layout;
mod stats;
mod systemd;
mod v1;
mod v2;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use layout::Layout;
pub(crate) use stats::CgroupStats;

/// Where a container's cgroup is in each hierarchy, as its journal keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CgroupPaths {
    /// Folder by controller, or by `name=<hierarchy>`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    v1: BTreeMap<String, PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unified: Option<PathBuf>,
}

/// Failure of a cgroup operation. A cgroup that has gone is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot remove {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot watch {}", path.display())]
    Watch { path: PathBuf, source: io::Error },
    #[error("{} holds this very process", path.display())]
    HoldsUs { path: PathBuf },
    #[error("{} did not freeze within {seconds} s", path.display())]
    NotFrozen { path: PathBuf, seconds: u64 },
    #[error("cgroup path {path:?} is not valid: {reason}")]
    InvalidPath { path: String, reason: &'static str },
}

/// Version of the cgroup interface that a container is controlled by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// The cgroup of one container, in every hierarchy that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup(CgroupPaths);

impl Cgroup {
    /// The cgroup that a process is in. A hierarchy in which it shares the cgroup of this process is left out:
    /// that one is not the container's.
    pub(crate) fn of_process(pid: u32) -> Result<Self, CgroupError> {
        let layout = Layout::of_this_process()?;
        let theirs = read_membership(&format!("/proc/{pid}/cgroup"))?;
        let ours = read_membership("/proc/self/cgroup")?;
        Ok(Self(layout.locate(&theirs, &ours)))
    }

    /// The cgroup that an engine makes for a config, whether it is there or not: for what is left of a create
    /// that nobody finished.
    pub(crate) fn from_config(
        path: Option<&Path>,
        container_id: &str,
        systemd: bool,
    ) -> Result<Self, CgroupError> {
        let layout = Layout::of_this_process()?;
        let ours = read_membership("/proc/self/cgroup")?;
        let first = read_membership("/proc/1/cgroup")?;
        config_path::locate(
            &layout,
            path,
            container_id,
            systemd,
            config_path::Around {
                ours: &ours,
                first: &first,
            },
        )
        .map(Self)
    }

    /// The cgroup that a journal kept.
    pub(crate) fn from_paths(paths: CgroupPaths) -> Self {
        Self(paths)
    }

    pub(crate) fn paths(&self) -> &CgroupPaths {
        &self.0
    }

    /// Every process in it and below; none when it is gone.
    pub(crate) fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        control::pids(&self.0)
    }

    /// What the kernel has counted. Counters whose file is missing are left out.
    pub(crate) fn stats(&self) -> Result<CgroupStats, CgroupError> {
        match self.version() {
            Version::V1 => v1::stats(&self.0),
            Version::V2 => v2::stats(&self.0),
        }
    }

    /// Processes killed for lack of memory so far, also below it; zero when it is gone.
    pub(crate) fn oom_kills(&self) -> u64 {
        match self.version() {
            Version::V1 => v1::oom_kills(&self.0),
            Version::V2 => v2::oom_kills(&self.0),
        }
    }

    /// Stops every process in it, and returns when all stand still.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "the engine pauses containers; snapshots will freeze by this"
        )
    )]
    pub(crate) async fn freeze(&self) -> Result<(), CgroupError> {
        control::freeze(&self.0).await
    }

    /// Whether it was asked to stand still, itself and not by what is above it; `None` when that cannot be
    /// told.
    pub(crate) fn is_asked_to_freeze(&self) -> Result<Option<bool>, CgroupError> {
        control::is_asked_to_freeze(&self.0)
    }

    /// Lets its processes go on. Nothing to do is success.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "the engine pauses containers; snapshots will freeze by this"
        )
    )]
    pub(crate) fn thaw(&self) -> Result<(), CgroupError> {
        control::thaw(&self.0)
    }

    /// Thaws a frozen cgroup v1, whose processes would not die of SIGKILL otherwise; on version 2 they do.
    pub(crate) fn thaw_for_kill(&self) -> Result<(), CgroupError> {
        match self.version() {
            Version::V1 => control::thaw(&self.0),
            Version::V2 => Ok(()),
        }
    }

    /// Kills every process in it and below at one stroke, as far as the kernel can. False when it cannot: then
    /// the caller kills one by one.
    pub(crate) fn kill(&self) -> Result<bool, CgroupError> {
        control::kill(&self.0)
    }

    /// Removes its folders where nothing is in them or below.
    pub(crate) fn remove_if_empty(&self) -> Result<(), CgroupError> {
        control::remove_if_empty(&self.0)
    }

    /// Removes what the engine has left, with everything below. Nothing to do is success.
    pub(crate) fn remove(&self) -> Result<(), CgroupError> {
        control::remove(&self.0)
    }

    pub(crate) fn version(&self) -> Version {
        self.0.version()
    }

    /// The folder in which memory is counted.
    pub(crate) fn memory_folder(&self) -> Option<&Path> {
        match self.version() {
            Version::V1 => self.0.controller("memory"),
            Version::V2 => self.0.unified.as_deref(),
        }
    }
}

impl CgroupPaths {
    fn version(&self) -> Version {
        if self.v1.keys().any(|name| !name.starts_with("name=")) || self.unified.is_none() {
            Version::V1
        } else {
            Version::V2
        }
    }

    /// Folder in the hierarchy of a version 1 controller.
    fn controller(&self, name: &str) -> Option<&Path> {
        self.v1.get(name).map(PathBuf::as_path)
    }

    /// Every folder, once: controllers may share a hierarchy.
    fn folders(&self) -> BTreeSet<&Path> {
        self.v1
            .values()
            .chain(&self.unified)
            .map(PathBuf::as_path)
            .collect()
    }

    /// The folders to look for processes in, the most telling first.
    fn process_folders(&self) -> impl Iterator<Item = &Path> {
        const PREFERRED: [&str; 4] = ["freezer", "pids", "memory", "devices"];
        let unified = match self.version() {
            Version::V1 => None,
            Version::V2 => self.unified.as_deref(),
        };
        unified
            .into_iter()
            .chain(PREFERRED.iter().filter_map(|name| self.controller(name)))
            .chain(self.folders())
    }
}

fn read_membership(path: &str) -> Result<layout::Membership, CgroupError> {
    let text = std::fs::read_to_string(path).map_err(|source| CgroupError::Read {
        path: PathBuf::from(path),
        source,
    })?;
    Ok(layout::Membership::parse(&text))
}
