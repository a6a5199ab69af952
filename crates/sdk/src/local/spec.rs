//! From a record and an image to the `config.json` of a sandbox. Pure: nothing is looked at or made.

use std::collections::BTreeMap;
use std::path::Path;

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_execution::BoxRecord;
use serde_json::{Value, json};

use super::ids::{FIRST_HOST_ID, ID_COUNT};
use super::mounts;
use super::seccomp;
use super::user::User;
use crate::image::ProcessDefaults;

const OCI_VERSION: &str = "1.0.2";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What root in a sandbox may do, to what is the sandbox's own.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const MASKED_PATHS: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
const CPU_PERIOD_US: u64 = 100_000;
/// Processes of a sandbox that names no limit of its own.
const DEFAULT_PIDS_LIMIT: u64 = 4_096;
const MIB: u64 = 1024 * 1024;

/// Everything that the config is made from.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) record: &'a BoxRecord,
    pub(super) defaults: &'a ProcessDefaults,
    pub(super) user: User,
    pub(super) engine_root: &'a Path,
    /// Folder with the files that stand at `/etc/hosts` and so on.
    pub(super) etc: &'a Path,
    pub(super) cgroup: String,
}

pub(super) fn config(plan: &Plan<'_>) -> ExecutionManagerResult<Value> {
    let record = plan.record;
    Ok(json!({
        "ociVersion": OCI_VERSION,
        "process": process(plan)?,
        "root": {"path": plan.engine_root, "readonly": record.read_only},
        "hostname": hostname(record),
        "mounts": mounts::all(record, plan.etc)?,
        "linux": {
            "cgroupsPath": plan.cgroup,
            "namespaces": namespaces(),
            "uidMappings": id_mappings(),
            "gidMappings": id_mappings(),
            "resources": resources(record)?,
            "seccomp": seccomp::profile(),
            "maskedPaths": MASKED_PATHS,
            "readonlyPaths": READONLY_PATHS,
        },
    }))
}

pub(super) fn hostname(record: &BoxRecord) -> &str {
    record.hostname.as_deref().unwrap_or(&record.short_id)
}

fn process(plan: &Plan<'_>) -> ExecutionManagerResult<Value> {
    let record = plan.record;
    let capabilities = capabilities(record)?;
    let cwd = record
        .workdir
        .as_deref()
        .unwrap_or(&plan.defaults.working_dir);
    let mut process = json!({
        "terminal": false,
        "user": {
            "uid": plan.user.uid,
            "gid": plan.user.gid,
            "additionalGids": plan.user.groups,
        },
        "args": args(record, plan.defaults)?,
        "env": env(record, plan.defaults, &plan.user),
        "cwd": if cwd.is_empty() { "/" } else { cwd },
        "capabilities": {
            "bounding": capabilities,
            "effective": capabilities,
            "permitted": capabilities,
        },
        "noNewPrivileges": true,
        "rlimits": rlimits(record)?,
    });
    if let Some(adjustment) = record.oom_score_adj {
        process["oomScoreAdj"] = json!(adjustment);
    }
    Ok(process)
}

/// An entrypoint of the record's own replaces both halves of the image's command.
fn args(record: &BoxRecord, defaults: &ProcessDefaults) -> ExecutionManagerResult<Vec<String>> {
    let entrypoint = record.entrypoint.as_ref().unwrap_or(&defaults.entrypoint);
    let cmd = if record.cmd.is_empty() && record.entrypoint.is_none() {
        &defaults.cmd
    } else {
        &record.cmd
    };
    let args: Vec<_> = entrypoint.iter().chain(cmd).cloned().collect();
    if args.is_empty() {
        return Err(invalid(format!(
            "neither the request nor image {} names a command",
            record.image
        )));
    }
    Ok(args)
}

fn env(record: &BoxRecord, defaults: &ProcessDefaults, user: &User) -> Vec<String> {
    let mut merged = BTreeMap::from([("PATH", DEFAULT_PATH), ("HOME", user.home.as_str())]);
    merged.extend(
        defaults
            .env
            .iter()
            .filter_map(|entry| entry.split_once('=')),
    );
    merged.extend(
        record
            .env
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    merged
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

fn capabilities(record: &BoxRecord) -> ExecutionManagerResult<Vec<String>> {
    let name = |text: &String| {
        let upper = text.to_ascii_uppercase();
        upper.strip_prefix("CAP_").unwrap_or(&upper).to_owned()
    };
    let added: Vec<_> = record.cap_add.iter().map(name).collect();
    // The plan has refused others; a record that somebody edited is refused here.
    if let Some(foreign) = added
        .iter()
        .find(|name| *name != "ALL" && !CAPABILITIES.contains(&name.as_str()))
    {
        return Err(invalid(format!(
            "capability {foreign} is not given to sandboxes"
        )));
    }
    let dropped: Vec<_> = record.cap_drop.iter().map(name).collect();
    let drops_all = dropped.iter().any(|name| name == "ALL");
    Ok(CAPABILITIES
        .iter()
        .filter(|name| {
            let is_added = added.iter().any(|added| added == *name);
            let is_dropped = dropped.iter().any(|dropped| dropped == *name);
            is_added || !(drops_all || is_dropped)
        })
        .map(|name| format!("CAP_{name}"))
        .collect())
}

/// `NAME=SOFT:HARD`, or one number for both; -1 and `unlimited` are no limit.
fn rlimits(record: &BoxRecord) -> ExecutionManagerResult<Vec<Value>> {
    record
        .resource_limits
        .ulimits
        .iter()
        .map(|entry| {
            let malformed = || invalid(format!("ulimit {entry:?} is not NAME=SOFT:HARD"));
            let (name, limits) = entry.split_once('=').ok_or_else(malformed)?;
            let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
            let number = |text: &str| match text.trim() {
                "-1" | "unlimited" => Ok(u64::MAX),
                text => text.parse().map_err(|_| malformed()),
            };
            let (soft, hard) = (number(soft)?, number(hard)?);
            let name = name.trim().to_ascii_uppercase();
            if name.is_empty() || soft > hard {
                return Err(malformed());
            }
            Ok(json!({
                "type": format!("RLIMIT_{}", name.trim_start_matches("RLIMIT_")),
                "soft": soft,
                "hard": hard,
            }))
        })
        .collect()
}

fn namespaces() -> Value {
    let kinds = ["user", "mount", "pid", "ipc", "uts", "network"];
    Value::from(kinds.map(|kind| json!({"type": kind})).to_vec())
}

fn id_mappings() -> Value {
    json!([{"containerID": 0, "hostID": FIRST_HOST_ID, "size": ID_COUNT}])
}

fn resources(record: &BoxRecord) -> ExecutionManagerResult<Value> {
    let limits = &record.resource_limits;
    let memory = match limits.sandbox_memory_limit_bytes {
        Some(bytes) => bytes,
        None => u64::from(record.memory_mb) * MIB,
    };
    let memory =
        i64::try_from(memory).map_err(|_| invalid("the memory limit is too large".to_owned()))?;
    let mut memory = json!({"limit": memory});
    if let Some(reservation) = limits.memory_reservation {
        memory["reservation"] = json!(reservation);
    }
    if let Some(swap) = limits.memory_swap {
        memory["swap"] = json!(swap);
    }
    if record.oom_kill_disable {
        memory["disableOOMKiller"] = json!(true);
    }
    let period = limits.cpu_period.unwrap_or(CPU_PERIOD_US);
    let quota = match limits.cpu_quota {
        Some(quota) => quota,
        None => i64::try_from(u64::from(record.cpus).saturating_mul(period))
            .map_err(|_| invalid("the CPU quota is too large".to_owned()))?,
    };
    let mut cpu = json!({"quota": quota, "period": period});
    if let Some(shares) = limits.cpu_shares {
        cpu["shares"] = json!(shares);
    }
    if let Some(cpus) = &limits.cpuset_cpus {
        cpu["cpus"] = json!(cpus);
    }
    let pids = limits.pids_limit.unwrap_or(DEFAULT_PIDS_LIMIT);
    Ok(json!({
        "devices": [{"allow": false, "access": "rwm"}],
        "memory": memory,
        "cpu": cpu,
        "pids": {"limit": pids},
    }))
}

pub(super) fn invalid(message: String) -> ExecutionManagerError {
    ExecutionManagerError::InvalidRequest(message)
}
