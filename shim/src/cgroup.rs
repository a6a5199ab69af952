//! Moves the shim into the cgroup that the option `ShimCgroup` names, on every kind of host.

use std::io;
use std::path::{Path, PathBuf};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// `f_type` of a cgroup v2 mount.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// Joins an existing cgroup: the one of a v2 host, or that name in each v1 hierarchy that has it.
pub(crate) fn join(name: &str) -> io::Result<()> {
    join_below(Path::new(CGROUP_ROOT), name, is_unified())
}

fn is_unified() -> bool {
    rustix::fs::statfs(CGROUP_ROOT).is_ok_and(|fs| fs.f_type == CGROUP2_SUPER_MAGIC)
}

fn join_below(root: &Path, name: &str, unified: bool) -> io::Result<()> {
    let name = name.trim_start_matches('/');
    if name.is_empty()
        || Path::new(name)
            .components()
            .any(|part| part.as_os_str() == "..")
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let pid = std::process::id().to_string();
    if unified {
        return std::fs::write(root.join(name).join("cgroup.procs"), pid);
    }
    let hierarchies: Vec<PathBuf> = std::fs::read_dir(root)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|hierarchy| hierarchy.join(name).join("cgroup.procs").exists())
        .collect();
    if hierarchies.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    for hierarchy in hierarchies {
        std::fs::write(hierarchy.join(name).join("cgroup.procs"), &pid)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_that_has_the_cgroup_is_joined() {
        let root = tempfile::tempdir().unwrap();
        for hierarchy in ["memory/shims", "cpu/shims", "pids"] {
            std::fs::create_dir_all(root.path().join(hierarchy)).unwrap();
        }
        for hierarchy in ["memory/shims", "cpu/shims"] {
            std::fs::write(root.path().join(hierarchy).join("cgroup.procs"), "").unwrap();
        }
        join_below(root.path(), "/shims", false).unwrap();
        let pid = std::process::id().to_string();
        for hierarchy in ["memory/shims", "cpu/shims"] {
            let procs = root.path().join(hierarchy).join("cgroup.procs");
            assert_eq!(std::fs::read_to_string(procs).unwrap(), pid);
        }
        assert!(join_below(root.path(), "/none", false).is_err());
        assert!(join_below(root.path(), "../x", false).is_err());
    }
}
