//! The mounts of a sandbox: its own kernel filesystems, its names, and what the request adds.

use std::path::Path;

use a3sbox_core::ExecutionManagerResult;
use a3sbox_execution::BoxRecord;
use serde_json::{Value, json};

use super::spec::invalid;

/// Bytes of `/dev/shm` where the request does not say.
const DEFAULT_SHM_BYTES: u64 = 64 * 1024 * 1024;
const WORKSPACE: &str = "/workspace";
/// Files of the sandbox's own that stand over the image's.
pub(super) const ETC_FILES: [&str; 3] = ["hosts", "hostname", "resolv.conf"];

pub(super) fn all(record: &BoxRecord, etc: &Path) -> ExecutionManagerResult<Vec<Value>> {
    let mut mounts = kernel(record);
    for name in ETC_FILES {
        let source = text(&etc.join(name))?;
        mounts.push(bind(&source, &format!("/etc/{name}"), false));
    }
    if let Some(metadata) = &record.managed_execution {
        let workspace = &metadata.request.config.workspace;
        if !workspace.as_os_str().is_empty() {
            mounts.push(bind(&text(workspace)?, WORKSPACE, false));
        }
    }
    for entry in &record.volumes {
        let (source, target, read_only) = volume(entry)?;
        mounts.push(bind(source, target, read_only));
    }
    for entry in &record.tmpfs {
        mounts.push(tmpfs(entry)?);
    }
    Ok(mounts)
}

fn kernel(record: &BoxRecord) -> Vec<Value> {
    let shm = record.shm_size.unwrap_or(DEFAULT_SHM_BYTES);
    let mount = |target: &str, kind: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": kind, "options": options});
    vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        mount(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        mount(
            "/dev/shm",
            "tmpfs",
            &[
                "nosuid",
                "noexec",
                "nodev",
                "mode=1777",
                &format!("size={shm}"),
            ],
        ),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount(
            "/sys/fs/cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", "ro"],
        ),
    ]
}

fn bind(source: &str, target: &str, read_only: bool) -> Value {
    let mode = if read_only { "ro" } else { "rw" };
    json!({
        "destination": target,
        "type": "bind",
        "source": source,
        "options": ["rbind", "rprivate", "nosuid", "nodev", mode],
    })
}

/// `<source>:<target>[:ro|:rw]`.
pub(super) fn volume(entry: &str) -> ExecutionManagerResult<(&str, &str, bool)> {
    let malformed = || invalid(format!("volume {entry:?} is not SOURCE:TARGET[:ro|:rw]"));
    let mut parts = entry.split(':');
    let (source, target) = (parts.next(), parts.next());
    let (Some(source), Some(target)) = (source, target) else {
        return Err(malformed());
    };
    let read_only = match parts.next() {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(_) => return Err(malformed()),
    };
    if parts.next().is_some() || !target.starts_with('/') {
        return Err(malformed());
    }
    if !source.starts_with('/') {
        return Err(invalid(format!("volume source {source:?} is not absolute")));
    }
    Ok((source, target, read_only))
}

/// `<target>[:option[,option]]` with `size=N`, `mode=N`, `ro` and `rw`.
fn tmpfs(entry: &str) -> ExecutionManagerResult<Value> {
    let (target, given) = entry.split_once(':').unwrap_or((entry, ""));
    if !target.starts_with('/') {
        return Err(invalid(format!("tmpfs target {target:?} is not absolute")));
    }
    let mut options = vec!["nosuid", "nodev", "mode=1777"];
    for option in given.split(',').filter(|option| !option.is_empty()) {
        let is_known = matches!(option, "ro" | "rw" | "exec" | "noexec")
            || option.starts_with("size=")
            || option.starts_with("mode=");
        if !is_known {
            return Err(invalid(format!("tmpfs option {option:?} is not known")));
        }
        options.push(option);
    }
    Ok(json!({"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}))
}

fn text(path: &Path) -> ExecutionManagerResult<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| invalid(format!("path {} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_read_strictly() {
        assert_eq!(volume("/a:/b").unwrap(), ("/a", "/b", false));
        assert_eq!(volume("/a:/b:ro").unwrap(), ("/a", "/b", true));
        for bad in ["/a", "/a:b", "a:/b", "/a:/b:rx", "/a:/b:ro:x"] {
            volume(bad).unwrap_err();
        }
    }

    #[test]
    fn tmpfs_options_are_the_sdk_s() {
        let mount = tmpfs("/t:size=4096,ro").unwrap();
        assert_eq!(mount["destination"], "/t");
        assert_eq!(
            mount["options"],
            json!(["nosuid", "nodev", "mode=1777", "size=4096", "ro"])
        );
        tmpfs("/t").unwrap();
        tmpfs("t").unwrap_err();
        tmpfs("/t:dev").unwrap_err();
    }
}
