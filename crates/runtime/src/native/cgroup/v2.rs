//! Counters of version 2: one folder.

use std::path::Path;

use a3sbox_oci::{CpuStats, MemoryStats};

use super::stats::{CgroupStats, Metrics};
use super::{CgroupError, CgroupPaths, control, files};

pub(super) fn stats(paths: &CgroupPaths) -> Result<CgroupStats, CgroupError> {
    let mut metrics = Metrics::default();
    metrics.insert("cgroup.version", 2);
    let Some(folder) = paths.unified.as_deref() else {
        return Ok(metrics.finish(CpuStats::default(), MemoryStats::default(), 0, (0, 0)));
    };
    metrics.flat(folder, "cpu.stat")?;
    for file in [
        "memory.current",
        "memory.max",
        "memory.peak",
        "memory.swap.current",
        "memory.swap.max",
    ] {
        metrics.value(folder, file, file, u64::MAX)?;
    }
    metrics.flat(folder, "memory.stat")?;
    metrics.flat(folder, "memory.events")?;
    // Zero is how containerd's metrics say that processes are not limited.
    metrics.value(folder, "pids.current", "pids.current", 0)?;
    metrics.value(folder, "pids.max", "pids.max", 0)?;
    let io = block(folder, &mut metrics)?;
    for size in control::page_sizes(folder, ".current") {
        for file in ["current", "max"] {
            let name = format!("hugetlb.{size}.{file}");
            metrics.value(folder, &name, &name, u64::MAX)?;
        }
    }

    let nanoseconds = |name| metrics.or_zero(name).saturating_mul(1_000);
    let cpu = CpuStats {
        usage_ns: nanoseconds("cpu.stat.usage_usec"),
        user_ns: nanoseconds("cpu.stat.user_usec"),
        system_ns: nanoseconds("cpu.stat.system_usec"),
        throttled_ns: nanoseconds("cpu.stat.throttled_usec"),
    };
    let memory = MemoryStats {
        usage_bytes: metrics.or_zero("memory.current"),
        limit_bytes: metrics.get("memory.max").filter(|limit| *limit != u64::MAX),
        peak_bytes: metrics.get("memory.peak"),
    };
    let processes = match metrics.get("pids.current") {
        Some(count) => count,
        None => u64::try_from(control::pids(paths)?.len()).unwrap_or(u64::MAX),
    };
    Ok(metrics.finish(cpu, memory, processes, io))
}

/// Kills in the cgroup and below: version 2 counts for the whole tree.
pub(super) fn oom_kills(paths: &CgroupPaths) -> u64 {
    paths
        .unified
        .as_deref()
        .and_then(|folder| {
            files::read_key(&folder.join("memory.events"), "oom_kill")
                .ok()
                .flatten()
        })
        .unwrap_or(0)
}

/// Lines of `<major>:<minor> <key>=<number> …`; returns bytes read and written.
fn block(folder: &Path, metrics: &mut Metrics) -> Result<(u64, u64), CgroupError> {
    let mut io: (u64, u64) = (0, 0);
    let Some(text) = files::read(&folder.join("io.stat"))? else {
        return Ok(io);
    };
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let Some(device) = fields.next() else {
            continue;
        };
        for (key, value) in fields.filter_map(|field| field.split_once('=')) {
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            metrics.insert(format!("io.stat.{device}.{key}"), value);
            match key {
                "rbytes" => io.0 = io.0.saturating_add(value),
                "wbytes" => io.1 = io.1.saturating_add(value),
                _ => {}
            }
        }
    }
    Ok(io)
}
