//! Counters of version 1: one folder per controller.

use std::path::Path;

use a3sbox_oci::{CpuStats, MemoryStats};

use super::stats::{CgroupStats, Metrics};
use super::{CgroupError, CgroupPaths, control, files};

/// Nanoseconds per tick of `cpuacct.stat`: user space always sees 100 ticks a second.
const TICK_NS: u64 = 10_000_000;
/// Memory limits from here on are the kernel's way to say "none".
const NO_LIMIT: u64 = i64::MAX.cast_unsigned() & !0xffff;
/// The kinds of memory that are counted apart.
const MEMORY_KINDS: [&str; 4] = [
    "memory.",
    "memory.memsw.",
    "memory.kmem.",
    "memory.kmem.tcp.",
];
/// Files of the block controller under a scheduler with accounting of its own.
const BLOCK_FILES: [&str; 8] = [
    "sectors_recursive",
    "io_service_bytes_recursive",
    "io_serviced_recursive",
    "io_queued_recursive",
    "io_service_time_recursive",
    "io_wait_time_recursive",
    "io_merged_recursive",
    "time_recursive",
];
/// Files of the block controller that every kernel has.
const BLOCK_THROTTLE_FILES: [&str; 2] = ["throttle.io_serviced", "throttle.io_service_bytes"];

pub(super) fn stats(paths: &CgroupPaths) -> Result<CgroupStats, CgroupError> {
    let mut metrics = Metrics::default();
    metrics.insert("cgroup.version", 1);
    let cpu = cpu(paths, &mut metrics)?;
    let memory = memory(paths, &mut metrics)?;
    if let Some(folder) = paths.controller("pids") {
        metrics.value(folder, "pids.current", "pids.current", 0)?;
        metrics.value(folder, "pids.max", "pids.limit", 0)?;
    }
    let io = block(paths, &mut metrics)?;
    hugetlb(paths, &mut metrics)?;
    let processes = match metrics.get("pids.current") {
        Some(count) => count,
        None => u64::try_from(control::pids(paths)?.len()).unwrap_or(u64::MAX),
    };
    Ok(metrics.finish(cpu, memory, processes, io))
}

/// Kills in the cgroup and below: version 1 counts each cgroup for itself.
pub(super) fn oom_kills(paths: &CgroupPaths) -> u64 {
    let Some(folder) = paths.controller("memory") else {
        return 0;
    };
    control::tree(folder)
        .iter()
        .filter_map(|folder| {
            files::read_key(&folder.join("memory.oom_control"), "oom_kill")
                .ok()
                .flatten()
        })
        .sum()
}

fn cpu(paths: &CgroupPaths, metrics: &mut Metrics) -> Result<CpuStats, CgroupError> {
    if let Some(folder) = paths.controller("cpuacct") {
        metrics.value(folder, "cpuacct.usage", "cpuacct.usage", 0)?;
        if let Some(text) = files::read(&folder.join("cpuacct.usage_percpu"))? {
            let each = text
                .split_whitespace()
                .filter_map(|usage| usage.parse().ok());
            for (number, usage) in each.enumerate() {
                metrics.insert(format!("cpuacct.usage_percpu.{number}"), usage);
            }
        }
        if let Some(text) = files::read(&folder.join("cpuacct.stat"))? {
            for (key, ticks) in files::flat(&text) {
                if matches!(key, "user" | "system") {
                    let name = format!("cpuacct.stat.{key}_ns");
                    metrics.insert(name, ticks.saturating_mul(TICK_NS));
                }
            }
        }
    }
    if let Some(folder) = paths.controller("cpu") {
        metrics.flat(folder, "cpu.stat")?;
    }
    Ok(CpuStats {
        usage_ns: metrics.or_zero("cpuacct.usage"),
        user_ns: metrics.or_zero("cpuacct.stat.user_ns"),
        system_ns: metrics.or_zero("cpuacct.stat.system_ns"),
        throttled_ns: metrics.or_zero("cpu.stat.throttled_time"),
    })
}

fn memory(paths: &CgroupPaths, metrics: &mut Metrics) -> Result<MemoryStats, CgroupError> {
    if let Some(folder) = paths.controller("memory") {
        for kind in MEMORY_KINDS {
            for file in [
                "usage_in_bytes",
                "max_usage_in_bytes",
                "limit_in_bytes",
                "failcnt",
            ] {
                let name = format!("{kind}{file}");
                metrics.value(folder, &name, &name, u64::MAX)?;
            }
        }
        metrics.flat(folder, "memory.stat")?;
        metrics.flat(folder, "memory.oom_control")?;
    }
    Ok(MemoryStats {
        usage_bytes: metrics.or_zero("memory.usage_in_bytes"),
        limit_bytes: metrics
            .get("memory.limit_in_bytes")
            .filter(|limit| *limit < NO_LIMIT),
        peak_bytes: metrics.get("memory.max_usage_in_bytes"),
    })
}

/// The block files; returns bytes read and written.
fn block(paths: &CgroupPaths, metrics: &mut Metrics) -> Result<(u64, u64), CgroupError> {
    let mut io = (0, 0);
    let Some(folder) = paths.controller("blkio") else {
        return Ok(io);
    };
    let mut found = false;
    // Probing one file of the eight is enough: they come and go together.
    if files::read(&folder.join("blkio.io_serviced_recursive"))?.is_some() {
        for file in BLOCK_FILES {
            found |= block_file(folder, file, metrics, &mut io)?;
        }
    }
    if !found {
        for file in BLOCK_THROTTLE_FILES {
            block_file(folder, file, metrics, &mut io)?;
        }
    }
    Ok(io)
}

/// Lines of `<major>:<minor> [<operation>] <number>`; the last line, a total, has no device.
fn block_file(
    folder: &Path,
    file: &str,
    metrics: &mut Metrics,
    io: &mut (u64, u64),
) -> Result<bool, CgroupError> {
    let Some(text) = files::read(&folder.join(format!("blkio.{file}")))? else {
        return Ok(false);
    };
    let mut found = false;
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let Some(device) = fields.next().filter(|device| device.contains(':')) else {
            continue;
        };
        let (name, operation, value) = match (fields.next(), fields.next()) {
            (Some(value), None) => (format!("blkio.{file}.{device}"), "", value),
            (Some(operation), Some(value)) => (
                format!("blkio.{file}.{device}.{operation}"),
                operation,
                value,
            ),
            _ => continue,
        };
        let Ok(value) = value.parse::<u64>() else {
            continue;
        };
        found = true;
        metrics.insert(name, value);
        if file.contains("io_service_bytes") {
            match operation {
                "Read" => io.0 = io.0.saturating_add(value),
                "Write" => io.1 = io.1.saturating_add(value),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn hugetlb(paths: &CgroupPaths, metrics: &mut Metrics) -> Result<(), CgroupError> {
    let Some(folder) = paths.controller("hugetlb") else {
        return Ok(());
    };
    for size in control::page_sizes(folder, ".usage_in_bytes") {
        let name = |what: &str| format!("hugetlb.{size}.{what}");
        for (file, told) in [
            ("usage_in_bytes", "usage"),
            ("max_usage_in_bytes", "max"),
            ("failcnt", "failcnt"),
        ] {
            metrics.value(folder, &name(file), &name(told), u64::MAX)?;
        }
    }
    Ok(())
}
