//! PROPOSAL by the verbs of what they need of cgroups; its owner replaces it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a container's cgroup is, as its journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CgroupPaths(Vec<PathBuf>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The cgroup of one container, in every hierarchy that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Cgroup(CgroupPaths);

impl Cgroup {
    /// The cgroup that a process is in. A cgroup that it shares with this service is left out: that is not
    /// the container's.
    pub(crate) fn of_process(pid: u32) -> Result<Self, CgroupError> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let text =
            std::fs::read_to_string(&path).map_err(|source| CgroupError::Read { path, source })?;
        let paths = text
            .lines()
            .filter(|line| !own.lines().any(|other| other == *line))
            .filter_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let name = controllers.trim_start_matches("name=");
                let name = if name.is_empty() { "unified" } else { name };
                Some(PathBuf::from(format!("/sys/fs/cgroup/{name}{path}")))
            })
            .collect();
        Ok(Self(CgroupPaths(paths)))
    }

    pub(crate) fn from_paths(paths: CgroupPaths) -> Self {
        Self(paths)
    }

    pub(crate) fn paths(&self) -> &CgroupPaths {
        &self.0
    }

    /// Every process in it and below; none when it is gone.
    pub(crate) fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let Some(first) = self.0.0.first() else {
            return Ok(Vec::new());
        };
        let text = std::fs::read_to_string(first.join("cgroup.procs")).unwrap_or_default();
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Thaws a frozen cgroup v1, whose processes would not die of SIGKILL otherwise.
    pub(crate) fn thaw_for_kill(&self) -> Result<(), CgroupError> {
        for path in &self.0.0 {
            if path.starts_with("/sys/fs/cgroup/freezer") {
                let _ = std::fs::write(path.join("freezer.state"), "THAWED");
            }
        }
        Ok(())
    }

    /// Removes what the engine has left. Nothing to do is success.
    pub(crate) fn remove(&self) -> Result<(), CgroupError> {
        for path in &self.0.0 {
            let _ = std::fs::remove_dir(path);
        }
        Ok(())
    }

    /// Processes killed for lack of memory so far; zero when it is gone.
    pub(crate) fn oom_kills(&self) -> u64 {
        0
    }
}
