//! What a container may leave behind, looked for from the outside.

use std::path::Path;

use crate::{Containerd, Node};

/// Things that name a container or a containerd and should be gone.
#[derive(Debug)]
pub struct Leftovers;

impl Leftovers {
    /// Processes, mounts, cgroups and records that still name this container.
    pub fn of_container(node: &Node<'_>, id: &str) -> Vec<String> {
        let mut left = Vec::new();
        left.extend(processes(&[&format!("-id {id} "), &format!("-id {id}\0")]));
        left.extend(mounts(&format!("/{id}/")));
        left.extend(cgroups(id));
        left.extend(folders(&node.containerd.state_root(), id));
        left.extend(folders(
            &node
                .containerd
                .dir()
                .join("run/containerd/io.containerd.runtime.v2.task"),
            id,
        ));
        left
    }

    /// Processes and mounts that still name the folder of a containerd without tasks.
    ///
    /// What the stock shim left is a note on standard error: it is no fault of ours.
    pub fn of_containerd(containerd: &Containerd) -> Vec<String> {
        let dir = containerd.dir().display().to_string();
        let mut left: Vec<_> = processes(&[&format!("-address {dir}/")]);
        // The folder's own tmpfs goes with the containerd.
        left.extend(
            mounts(&format!("{dir}/"))
                .into_iter()
                .filter(|m| *m != format!("mount {dir}/run")),
        );
        let (stock, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|what| is_of_stock(what));
        if left.is_empty() {
            for what in stock {
                eprintln!("note: left behind by the stock shim: {what}");
            }
        }
        left
    }
}

/// A process of the stock shim, or a mount in a bundle that our shim has not marked as its own.
fn is_of_stock(what: &str) -> bool {
    match what.strip_prefix("mount ") {
        None => what.contains("containerd-shim-runc-v2"),
        Some(target) => Path::new(target).parent().is_some_and(|bundle| {
            bundle.join("config.json").exists() && !bundle.join("a3sbox.json").exists()
        }),
    }
}

fn processes(marks: &[&str]) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|b| b.is_ascii_digit())
        })
        .filter_map(|entry| {
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            (command.contains("shim") && marks.iter().any(|mark| command.contains(mark)))
                .then(|| format!("process {}: {command}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

fn mounts(mark: &str) -> Vec<String> {
    std::fs::read_to_string("/proc/mounts")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|target| format!("{target}/").contains(mark))
        .map(|target| format!("mount {target}"))
        .collect()
}

fn cgroups(id: &str) -> Vec<String> {
    // Every hierarchy that a container joins is a mount; the memory one or the unified one tells.
    [
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/pids",
        "/sys/fs/cgroup/freezer",
        "/sys/fs/cgroup",
    ]
    .iter()
    .flat_map(|root| folders(Path::new(root), id))
    .map(|found| format!("cgroup {found}"))
    .collect()
}

/// Folders called `name` at most three levels below `root`.
fn folders(root: &Path, name: &str) -> Vec<String> {
    fn walk(dir: &Path, name: &str, depth: u32, found: &mut Vec<String>) {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return;
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(name) {
                found.push(entry.path().display().to_string());
            } else if depth > 0 {
                walk(&entry.path(), name, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(root, name, 2, &mut found);
    found
}
