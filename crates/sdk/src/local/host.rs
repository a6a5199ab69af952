//! What this host can do, control by control, asked before anything is made.
//!
//! A control that the host lacks is an answer, never something to run without.

use std::path::Path;

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_execution::BoxRecord;

/// Controllers without which a limit would be a wish.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Refuses an execution when this host cannot honour one of the controls that its plan requires.
pub(super) fn require_controls(record: &BoxRecord) -> ExecutionManagerResult<()> {
    if !rustix::process::geteuid().is_root() {
        return unavailable(
            "isolation sandbox needs root: it mounts root filesystems and makes user namespaces",
        );
    }
    if !listed("/proc/filesystems", "overlay") {
        return unavailable(
            "isolation sandbox needs overlayfs, which this kernel does not have (modprobe overlay)",
        );
    }
    let Some(metadata) = &record.managed_execution else {
        return Err(ExecutionManagerError::Internal(format!(
            "execution {} has no managed metadata",
            record.id
        )));
    };
    for control in &metadata.plan.required_controls {
        if let Err(reason) = has_control(control) {
            return unavailable(&format!(
                "this host cannot honour required control {control}: {reason}"
            ));
        }
    }
    Ok(())
}

fn has_control(control: &str) -> Result<(), String> {
    match control {
        "user-namespace" => {
            namespace("user")?;
            match std::fs::read_to_string("/proc/sys/user/max_user_namespaces") {
                Ok(text) if text.trim() == "0" => {
                    Err("/proc/sys/user/max_user_namespaces is 0".to_owned())
                }
                _ => Ok(()),
            }
        }
        "mount-namespace" => namespace("mnt"),
        "pid-namespace" => namespace("pid"),
        "ipc-namespace" => namespace("ipc"),
        "uts-namespace" => namespace("uts"),
        "network-namespace" => namespace("net"),
        "seccomp" => present("/proc/sys/kernel/seccomp/actions_avail"),
        "capability-bounding-set" => status_line("CapBnd:"),
        "no-new-privileges" => status_line("NoNewPrivs:"),
        "cgroup-v2" => limits_are_enforced(),
        other => Err(format!("{other} is not known to this version")),
    }
}

fn namespace(kind: &str) -> Result<(), String> {
    present(&format!("/proc/self/ns/{kind}"))
}

fn present(path: &str) -> Result<(), String> {
    if Path::new(path).exists() {
        Ok(())
    } else {
        Err(format!("there is no {path}"))
    }
}

fn status_line(key: &str) -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.starts_with(key)) {
        Ok(())
    } else {
        Err(format!("/proc/self/status has no {key}"))
    }
}

/// The control's name speaks of version 2; what it asks for is that limits hold, which version 1 does too.
fn limits_are_enforced() -> Result<(), String> {
    let root = Path::new(CGROUP_ROOT);
    let unified = std::fs::read_to_string(root.join("cgroup.controllers")).ok();
    let has = |controller: &&str| match &unified {
        Some(names) => names.split_whitespace().any(|name| name == *controller),
        None => root.join(controller).is_dir(),
    };
    match CONTROLLERS.iter().find(|controller| !has(controller)) {
        None => Ok(()),
        Some(missing) => Err(format!("{CGROUP_ROOT} has no controller {missing}")),
    }
}

fn listed(file: &str, word: &str) -> bool {
    std::fs::read_to_string(file)
        .unwrap_or_default()
        .split_whitespace()
        .any(|found| found == word)
}

pub(super) fn unavailable<T>(message: &str) -> ExecutionManagerResult<T> {
    Err(ExecutionManagerError::Unavailable(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_control_is_refused_by_name() {
        let reason = has_control("quantum-namespace").unwrap_err();
        assert!(reason.contains("quantum-namespace"));
        has_control("mount-namespace").unwrap();
        has_control("no-new-privileges").unwrap();
    }
}
