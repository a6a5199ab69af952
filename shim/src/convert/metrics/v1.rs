//! cgroup v1, and the controllers of a hybrid host.

use containerd_shim_protos::cgroups::metrics::{
    BlkIOEntry, BlkIOStat, CPUStat, CPUUsage, HugetlbStat, MemoryEntry, MemoryOomControl,
    MemoryStat, Metrics, PidsStat, Throttle,
};

use super::Flat;

/// A pid limit of "max", as containerd's own reader gives it.
const PIDS_UNLIMITED: u64 = 0;

pub(super) fn metrics(flat: Flat<'_>) -> Metrics {
    let mut metrics = Metrics::new();
    if flat.has("pids.") {
        let mut pids = PidsStat::new();
        pids.current = flat.get("pids.current");
        pids.limit = flat.pids_limit("pids.limit", PIDS_UNLIMITED);
        metrics.pids = Some(pids).into();
    }
    if flat.has("cpu") {
        metrics.cpu = Some(cpu(flat)).into();
    }
    if flat.has("memory.") {
        metrics.memory = Some(memory(flat)).into();
        let mut oom = MemoryOomControl::new();
        oom.oom_kill_disable = flat.get("memory.oom_control.oom_kill_disable");
        oom.under_oom = flat.get("memory.oom_control.under_oom");
        oom.oom_kill = flat.get("memory.oom_control.oom_kill");
        metrics.memory_oom_control = Some(oom).into();
    }
    if flat.has("blkio.") {
        metrics.blkio = Some(blkio(flat)).into();
    }
    metrics.hugetlb = hugetlb(flat);
    metrics
}

fn cpu(flat: Flat<'_>) -> CPUStat {
    let mut usage = CPUUsage::new();
    usage.total = flat.get("cpuacct.usage");
    usage.user = flat.get("cpuacct.stat.user_ns");
    usage.kernel = flat.get("cpuacct.stat.system_ns");
    // By number: in the order of names 10 comes before 2.
    let mut per_cpu: Vec<(u32, u64)> = flat
        .below("cpuacct.usage_percpu.")
        .filter_map(|(number, value)| Some((number.parse().ok()?, value)))
        .collect();
    per_cpu.sort_unstable();
    usage.per_cpu = per_cpu.into_iter().map(|(_, value)| value).collect();
    let mut throttling = Throttle::new();
    throttling.periods = flat.get("cpu.stat.nr_periods");
    throttling.throttled_periods = flat.get("cpu.stat.nr_throttled");
    throttling.throttled_time = flat.get("cpu.stat.throttled_time");
    let mut cpu = CPUStat::new();
    cpu.usage = Some(usage).into();
    cpu.throttling = Some(throttling).into();
    cpu
}

fn memory(flat: Flat<'_>) -> MemoryStat {
    let stat = |key: &str| flat.get(&format!("memory.stat.{key}"));
    let mut memory = MemoryStat::new();
    memory.cache = stat("cache");
    memory.rss = stat("rss");
    memory.rss_huge = stat("rss_huge");
    memory.mapped_file = stat("mapped_file");
    memory.dirty = stat("dirty");
    memory.writeback = stat("writeback");
    memory.pg_pg_in = stat("pgpgin");
    memory.pg_pg_out = stat("pgpgout");
    memory.pg_fault = stat("pgfault");
    memory.pg_maj_fault = stat("pgmajfault");
    memory.inactive_anon = stat("inactive_anon");
    memory.active_anon = stat("active_anon");
    memory.inactive_file = stat("inactive_file");
    memory.active_file = stat("active_file");
    memory.unevictable = stat("unevictable");
    memory.hierarchical_memory_limit = stat("hierarchical_memory_limit");
    memory.hierarchical_swap_limit = stat("hierarchical_memsw_limit");
    memory.total_cache = stat("total_cache");
    memory.total_rss = stat("total_rss");
    memory.total_rss_huge = stat("total_rss_huge");
    memory.total_mapped_file = stat("total_mapped_file");
    memory.total_dirty = stat("total_dirty");
    memory.total_writeback = stat("total_writeback");
    memory.total_pg_pg_in = stat("total_pgpgin");
    memory.total_pg_pg_out = stat("total_pgpgout");
    memory.total_pg_fault = stat("total_pgfault");
    memory.total_pg_maj_fault = stat("total_pgmajfault");
    memory.total_inactive_anon = stat("total_inactive_anon");
    memory.total_active_anon = stat("total_active_anon");
    memory.total_inactive_file = stat("total_inactive_file");
    memory.total_active_file = stat("total_active_file");
    memory.total_unevictable = stat("total_unevictable");
    memory.usage = Some(entry(flat, "memory.")).into();
    memory.swap = Some(entry(flat, "memory.memsw.")).into();
    memory.kernel = Some(entry(flat, "memory.kmem.")).into();
    memory.kernel_tcp = Some(entry(flat, "memory.kmem.tcp.")).into();
    memory
}

fn entry(flat: Flat<'_>, prefix: &str) -> MemoryEntry {
    let get = |file: &str| flat.get(&format!("{prefix}{file}"));
    let mut entry = MemoryEntry::new();
    entry.limit = get("limit_in_bytes");
    entry.usage = get("usage_in_bytes");
    entry.max = get("max_usage_in_bytes");
    entry.failcnt = get("failcnt");
    entry
}

fn blkio(flat: Flat<'_>) -> BlkIOStat {
    let mut blkio = BlkIOStat::new();
    blkio.io_service_bytes_recursive = blkio_file(flat, "io_service_bytes_recursive");
    blkio.io_serviced_recursive = blkio_file(flat, "io_serviced_recursive");
    blkio.io_queued_recursive = blkio_file(flat, "io_queued_recursive");
    blkio.io_service_time_recursive = blkio_file(flat, "io_service_time_recursive");
    blkio.io_wait_time_recursive = blkio_file(flat, "io_wait_time_recursive");
    blkio.io_merged_recursive = blkio_file(flat, "io_merged_recursive");
    blkio.io_time_recursive = blkio_file(flat, "time_recursive");
    blkio.sectors_recursive = blkio_file(flat, "sectors_recursive");
    // Hosts without the CFQ scheduler have the throttling files alone.
    if blkio.io_service_bytes_recursive.is_empty() && blkio.io_serviced_recursive.is_empty() {
        blkio.io_service_bytes_recursive = blkio_file(flat, "throttle.io_service_bytes");
        blkio.io_serviced_recursive = blkio_file(flat, "throttle.io_serviced");
    }
    blkio
}

/// Entries named `<major>:<minor>.<operation>`, or without an operation.
fn blkio_file(flat: Flat<'_>, file: &str) -> Vec<BlkIOEntry> {
    flat.below(&format!("blkio.{file}."))
        .filter_map(|(rest, value)| {
            let (device, op) = rest.split_once('.').unwrap_or((rest, ""));
            let (major, minor) = device.split_once(':')?;
            let mut entry = BlkIOEntry::new();
            entry.major = major.parse().ok()?;
            entry.minor = minor.parse().ok()?;
            op.clone_into(&mut entry.op);
            entry.value = value;
            Some(entry)
        })
        .collect()
}

fn hugetlb(flat: Flat<'_>) -> Vec<HugetlbStat> {
    let mut sizes: Vec<HugetlbStat> = Vec::new();
    for (rest, value) in flat.below("hugetlb.") {
        let Some((size, file)) = rest.rsplit_once('.') else {
            continue;
        };
        if sizes.last().is_none_or(|last| last.pagesize != size) {
            let mut stat = HugetlbStat::new();
            size.clone_into(&mut stat.pagesize);
            sizes.push(stat);
        }
        if let Some(stat) = sizes.last_mut() {
            match file {
                "usage" => stat.usage = value,
                "max" => stat.max = value,
                "failcnt" => stat.failcnt = value,
                _ => {}
            }
        }
    }
    sizes
}
