//! Processes of a cgroup, its freezer, its end.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::{CgroupError, CgroupPaths, Version, files};

/// How long a cgroup may take until all its processes stand still.
const FREEZE_DEADLINE: Duration = Duration::from_secs(10);
/// How often the freezer is looked at meanwhile.
const FREEZE_POLL: Duration = Duration::from_millis(2);
/// How often a busy cgroup is tried again: the last process may just be leaving it.
const REMOVE_ATTEMPTS: u32 = 10;
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// A cgroup and all below it, each after those that hold it.
pub(super) fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(folder) = found.get(at) {
        at += 1;
        // Gone meanwhile: nothing is below it.
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        let below: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        found.extend(below);
    }
    found
}

/// Every process in the first hierarchy that has the cgroup; an engine puts a process in all of them.
pub(super) fn pids(paths: &CgroupPaths) -> Result<Vec<u32>, CgroupError> {
    let Some(folder) = paths.process_folders().find(|folder| folder.is_dir()) else {
        return Ok(Vec::new());
    };
    let mut pids = BTreeSet::new();
    for folder in tree(folder) {
        let text = files::read(&folder.join("cgroup.procs"))?.unwrap_or_default();
        // Zero is a process that our pid namespace does not have.
        pids.extend(
            text.lines()
                .filter_map(|line| line.parse::<u32>().ok())
                .filter(|pid| *pid != 0),
        );
    }
    Ok(pids.into_iter().collect())
}

/// The sizes of huge pages that a folder counts.
pub(super) fn page_sizes(folder: &Path, suffix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut sizes: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let size = name.strip_prefix("hugetlb.")?.strip_suffix(suffix)?;
            // `hugetlb.<size>.rsvd.current` is another counter.
            (!size.contains('.')).then(|| size.to_owned())
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

pub(super) async fn freeze(paths: &CgroupPaths) -> Result<(), CgroupError> {
    refuse_ours(paths)?;
    let (folder, file, value) = match freezer(paths) {
        Some(found) => found,
        None => return Ok(()),
    };
    let deadline = tokio::time::Instant::now() + FREEZE_DEADLINE;
    loop {
        // Version 1 can lose a process that forks while it freezes: the state is written again each time.
        if !files::write(&folder.join(file), value)? || is_frozen(paths)? {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            let path = folder.to_owned();
            // What had been frozen by then must not stay so.
            thaw(paths)?;
            return Err(CgroupError::NotFrozen {
                path,
                seconds: FREEZE_DEADLINE.as_secs(),
            });
        }
        tokio::time::sleep(FREEZE_POLL).await;
    }
}

pub(super) fn thaw(paths: &CgroupPaths) -> Result<(), CgroupError> {
    if let Some((folder, file, _)) = freezer(paths) {
        let value = match paths.version() {
            Version::V1 => "THAWED",
            Version::V2 => "0",
        };
        files::write(&folder.join(file), value)?;
    }
    Ok(())
}

/// Folder and file of the freezer, and what freezes.
fn freezer(paths: &CgroupPaths) -> Option<(&Path, &'static str, &'static str)> {
    match paths.version() {
        Version::V1 => Some((paths.controller("freezer")?, "freezer.state", "FROZEN")),
        Version::V2 => Some((paths.unified.as_deref()?, "cgroup.freeze", "1")),
    }
}

fn is_frozen(paths: &CgroupPaths) -> Result<bool, CgroupError> {
    Ok(match freezer(paths) {
        None => true,
        Some((folder, file, _)) if paths.version() == Version::V1 => {
            files::read(&folder.join(file))?.is_none_or(|state| state.trim() == "FROZEN")
        }
        Some((folder, ..)) => files::read_key(&folder.join("cgroup.events"), "frozen")?
            .is_none_or(|frozen| frozen == 1),
    })
}

/// Whether it was asked to stand still, itself and not by what is above it; `None` when that cannot be told.
pub(super) fn is_asked_to_freeze(paths: &CgroupPaths) -> Result<Option<bool>, CgroupError> {
    let Some((folder, file, _)) = freezer(paths) else {
        return Ok(None);
    };
    let file = match paths.version() {
        Version::V1 => "freezer.self_freezing",
        Version::V2 => file,
    };
    Ok(files::read(&folder.join(file))?.map(|asked| asked.trim() == "1"))
}

pub(super) fn kill(paths: &CgroupPaths) -> Result<bool, CgroupError> {
    refuse_ours(paths)?;
    match (paths.version(), paths.unified.as_deref()) {
        (Version::V2, Some(folder)) => files::write(&folder.join("cgroup.kill"), "1"),
        _ => Ok(false),
    }
}

pub(super) fn remove(paths: &CgroupPaths) -> Result<(), CgroupError> {
    refuse_ours(paths)?;
    let mut failed = None;
    for folder in paths.folders() {
        for folder in tree(folder).into_iter().rev() {
            if let Err(source) = remove_folder(&folder) {
                failed.get_or_insert(CgroupError::Remove {
                    path: folder,
                    source,
                });
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

pub(super) fn remove_if_empty(paths: &CgroupPaths) -> Result<(), CgroupError> {
    for folder in paths.folders() {
        match std::fs::remove_dir(folder) {
            Ok(()) => {}
            Err(error) if files::is_gone(&error) || is_in_use(&error) => {}
            Err(source) => {
                return Err(CgroupError::Remove {
                    path: folder.to_owned(),
                    source,
                });
            }
        }
    }
    Ok(())
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::BUSY | Errno::NOTEMPTY)
    )
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    for _ in 0..REMOVE_ATTEMPTS {
        match std::fs::remove_dir(folder) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                std::thread::sleep(REMOVE_PAUSE);
            }
            Err(error) if files::is_gone(&error) => return Ok(()),
            other => return other,
        }
    }
    std::fs::remove_dir(folder)
}

/// Refuses what would hit this process too: paths can come from a config that names somebody else's cgroup.
fn refuse_ours(paths: &CgroupPaths) -> Result<(), CgroupError> {
    let us = std::process::id();
    for folder in paths.folders() {
        for below in tree(folder) {
            let text = files::read(&below.join("cgroup.procs"))?.unwrap_or_default();
            if text.lines().any(|line| line.parse() == Ok(us)) {
                return Err(CgroupError::HoldsUs {
                    path: folder.to_owned(),
                });
            }
        }
    }
    Ok(())
}
