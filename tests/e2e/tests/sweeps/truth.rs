//! What everybody says afterwards: containerd, the engine, the kernel and our own records.

use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_e2e::{Leftovers, Watcher, eventually};
use anyhow::{Context, Result, ensure};
use containerd_client::types::v1::Status;
use serde_json::Value;

use crate::pod::{EXIT_CODE, Pod};

const EVENT_LIMIT: Duration = Duration::from_secs(10);

/// An exit event as containerd published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) status: u32,
    pub(crate) at: String,
}

/// Where in the stream of events a point begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(usize);

pub(crate) fn mark(watcher: &Watcher, id: &str) -> Mark {
    Mark(watcher.lines_of(id).len())
}

/// Waits for the event that ends a task's story: it comes behind the last exit.
pub(crate) fn await_delete(watcher: &Watcher, id: &str, since: Mark) -> Result<()> {
    eventually(&format!("the delete event of {id}"), EVENT_LIMIT, || {
        let lines = watcher.lines_of(id);
        let is_told = |line: &String| line.contains(" /tasks/delete ");
        Ok(lines.iter().skip(since.0).any(is_told).then_some(()))
    })
}

/// Exit events of one process (`process` is the container's own id for its init) since the mark.
pub(crate) fn exits(watcher: &Watcher, id: &str, process: &str, since: Mark) -> Result<Vec<Exit>> {
    watcher
        .lines_of(id)
        .iter()
        .skip(since.0)
        .filter(|line| line.contains(" /tasks/exit "))
        .map(|line| {
            let text = &line[line.find('{').context("an event without a body")?..];
            let event: Value = serde_json::from_str(text).with_context(|| text.to_owned())?;
            Ok((event["id"] == process).then(|| Exit {
                // Protobuf leaves a zero out.
                status: event["exit_status"]
                    .as_u64()
                    .and_then(|status| u32::try_from(status).ok())
                    .unwrap_or(0),
                at: event["exited_at"].to_string(),
            }))
        })
        .filter_map(Result::transpose)
        .collect()
}

/// Checks a process's exit events against what it did. `took_the_signal`: it was about to end by itself.
/// Between its mark and its end the cleanup of a dead shim may still have killed it, so 137 can be true
/// then; without the mark its own code cannot.
pub(crate) fn check_exits(exits: &[Exit], took_the_signal: bool) -> Result<()> {
    for exit in exits {
        let allowed: &[u32] = if took_the_signal {
            &[EXIT_CODE, 137, 255]
        } else {
            &[137, 255]
        };
        ensure!(
            allowed.contains(&exit.status),
            "exit {} is invented (the process {}): {exits:?}",
            exit.status,
            if took_the_signal {
                "ended by itself"
            } else {
                "was killed"
            }
        );
    }
    // containerd publishes the exit of a task again when it finds that the shim is dead.
    ensure!(exits.len() <= 2, "{} exits: {exits:?}", exits.len());
    if let [first, second] = exits {
        ensure!(first == second, "the exit was told twice, and differently");
    }
    Ok(())
}

/// All that is left of one container.
pub(crate) fn left_of(pod: &Pod<'_>, id: &str) -> Vec<String> {
    let mut left = Leftovers::of_container(&pod.node, id);
    left.extend(cgroups(id));
    left.extend(processes(id));
    if pod.api.state(id, "").is_ok() {
        left.push(format!("containerd has a task {id}"));
    }
    left.sort();
    left.dedup();
    left
}

/// All that is left after the pod's last container: the state root is empty, and the socket is gone.
pub(crate) fn left_of_pod(pod: &Pod<'_>, socket: &Path) -> Vec<String> {
    let mut left = left_of(pod, &pod.subject);
    left.extend(left_of(pod, &pod.holder));
    left.extend(files(&pod.node.containerd.state_root()));
    for path in [socket.to_path_buf(), socket.with_extension("lock")] {
        if path.exists() {
            left.push(format!("socket {}", path.display()));
        }
    }
    left
}

/// Everything below the state root, what the engine still lists included: its folders are there too. The
/// engine's report is kept on purpose, once per engine binary, and with it the two folders that it lies in.
fn files(root: &Path) -> Vec<String> {
    const KEPT: &str = ".runc-features-";
    const KEPT_DEPTH: u32 = 2;
    fn walk(folder: &Path, depth: u32, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_kept = if is_folder {
                depth < KEPT_DEPTH
            } else {
                depth == KEPT_DEPTH && entry.file_name().to_string_lossy().starts_with(KEPT)
            };
            if !is_kept {
                found.push(format!("state {}", entry.path().display()));
            }
            if is_folder {
                walk(&entry.path(), depth + 1, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(root, 0, &mut found);
    found
}

/// In every hierarchy, v1 and unified.
fn cgroups(id: &str) -> Vec<String> {
    fn walk(folder: &Path, id: &str, depth: u32, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(format!("cgroup {}", entry.path().display()));
            } else if depth > 0 {
                walk(&entry.path(), id, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    for root in hierarchies() {
        walk(&root, id, 2, &mut found);
    }
    found
}

fn hierarchies() -> Vec<PathBuf> {
    std::fs::read_to_string("/proc/mounts")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let target = words.nth(1)?;
            words
                .next()
                .is_some_and(|kind| kind.starts_with("cgroup"))
                .then(|| PathBuf::from(target))
        })
        .collect()
}

/// Processes that name the container on their command line: its own, its engine's, its shim's.
fn processes(id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(id) {
            found.push(format!("process {name}: {line}"));
        }
    }
    found
}

/// Whether containerd says that the task waits for its start.
pub(crate) fn is_created(pod: &Pod<'_>) -> bool {
    let process = pod.api.state(&pod.subject, "");
    process.is_ok_and(|process| process.status() == Status::Created)
}

/// containerd's status of a task and the kernel's freezer say the same.
pub(crate) fn check_frozen(pod: &Pod<'_>) -> Result<()> {
    let process = pod.api.state(&pod.subject, "")?;
    let is_frozen = is_frozen(process.pid)?;
    let is_paused = process.status() == Status::Paused;
    ensure!(
        is_paused == is_frozen && (is_paused || process.status() == Status::Running),
        "containerd says {:?}, and its cgroup is {}frozen",
        process.status(),
        if is_frozen { "" } else { "not " }
    );
    Ok(())
}

fn is_frozen(pid: u32) -> Result<bool> {
    let memberships = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        for root in hierarchies() {
            let group = root.join(path.trim_start_matches('/'));
            let is_v1 = controllers.split(',').any(|name| name == "freezer");
            let (file, frozen) = match (is_v1, controllers) {
                (true, _) => ("freezer.state", "FROZEN"),
                (false, "") => ("cgroup.freeze", "1"),
                _ => continue,
            };
            if let Ok(state) = std::fs::read_to_string(group.join(file))
                && state.trim() == frozen
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
