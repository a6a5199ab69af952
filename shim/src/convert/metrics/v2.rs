//! cgroup v2.

use containerd_shim_protos::cgroups_v2::metrics::{
    CPUStat, HugeTlbStat, IOEntry, IOStat, MemoryEvents, MemoryStat, Metrics, PidsStat,
};

use super::Flat;

/// A pid limit of "max", as containerd's own reader gives it.
const PIDS_UNLIMITED: u64 = u64::MAX;

pub(super) fn metrics(flat: Flat<'_>) -> Metrics {
    let mut metrics = Metrics::new();
    let mut pids = PidsStat::new();
    pids.current = flat.get("pids.current");
    pids.limit = flat.pids_limit("pids.max", PIDS_UNLIMITED);
    metrics.pids = Some(pids).into();

    let mut cpu = CPUStat::new();
    cpu.usage_usec = flat.get("cpu.stat.usage_usec");
    cpu.user_usec = flat.get("cpu.stat.user_usec");
    cpu.system_usec = flat.get("cpu.stat.system_usec");
    cpu.nr_periods = flat.get("cpu.stat.nr_periods");
    cpu.nr_throttled = flat.get("cpu.stat.nr_throttled");
    cpu.throttled_usec = flat.get("cpu.stat.throttled_usec");
    cpu.nr_bursts = flat.get("cpu.stat.nr_bursts");
    cpu.burst_usec = flat.get("cpu.stat.burst_usec");
    metrics.cpu = Some(cpu).into();

    metrics.memory = Some(memory(flat)).into();
    if flat.has("memory.events.") {
        let mut events = MemoryEvents::new();
        events.low = flat.get("memory.events.low");
        events.high = flat.get("memory.events.high");
        events.max = flat.get("memory.events.max");
        events.oom = flat.get("memory.events.oom");
        events.oom_kill = flat.get("memory.events.oom_kill");
        events.oom_group_kill = flat.get("memory.events.oom_group_kill");
        metrics.memory_events = Some(events).into();
    }
    metrics.io = Some(io(flat)).into();
    metrics.hugetlb = hugetlb(flat);
    metrics
}

fn memory(flat: Flat<'_>) -> MemoryStat {
    let stat = |key: &str| flat.get(&format!("memory.stat.{key}"));
    let mut memory = MemoryStat::new();
    memory.anon = stat("anon");
    memory.file = stat("file");
    memory.kernel_stack = stat("kernel_stack");
    memory.slab = stat("slab");
    memory.sock = stat("sock");
    memory.shmem = stat("shmem");
    memory.file_mapped = stat("file_mapped");
    memory.file_dirty = stat("file_dirty");
    memory.file_writeback = stat("file_writeback");
    memory.anon_thp = stat("anon_thp");
    memory.inactive_anon = stat("inactive_anon");
    memory.active_anon = stat("active_anon");
    memory.inactive_file = stat("inactive_file");
    memory.active_file = stat("active_file");
    memory.unevictable = stat("unevictable");
    memory.slab_reclaimable = stat("slab_reclaimable");
    memory.slab_unreclaimable = stat("slab_unreclaimable");
    memory.pgfault = stat("pgfault");
    memory.pgmajfault = stat("pgmajfault");
    memory.workingset_refault = stat("workingset_refault");
    memory.workingset_activate = stat("workingset_activate");
    memory.workingset_nodereclaim = stat("workingset_nodereclaim");
    memory.pgrefill = stat("pgrefill");
    memory.pgscan = stat("pgscan");
    memory.pgsteal = stat("pgsteal");
    memory.pgactivate = stat("pgactivate");
    memory.pgdeactivate = stat("pgdeactivate");
    memory.pglazyfree = stat("pglazyfree");
    memory.pglazyfreed = stat("pglazyfreed");
    memory.thp_fault_alloc = stat("thp_fault_alloc");
    memory.thp_collapse_alloc = stat("thp_collapse_alloc");
    memory.usage = flat.get("memory.current");
    memory.usage_limit = flat.get("memory.max");
    memory.swap_usage = flat.get("memory.swap.current");
    memory.swap_limit = flat.get("memory.swap.max");
    memory.max_usage = flat.get("memory.peak");
    memory.swap_max_usage = flat.get("memory.swap.peak");
    memory
}

/// Values named `<major>:<minor>.<key>`; the keys of one device stand together.
fn io(flat: Flat<'_>) -> IOStat {
    let mut io = IOStat::new();
    for (rest, value) in flat.below("io.stat.") {
        let parsed = rest.split_once('.').and_then(|(device, key)| {
            let (major, minor) = device.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?, key))
        });
        let Some((major, minor, key)) = parsed else {
            continue;
        };
        let is_same = |last: &IOEntry| (last.major, last.minor) == (major, minor);
        if !io.usage.last().is_some_and(is_same) {
            let mut entry = IOEntry::new();
            entry.major = major;
            entry.minor = minor;
            io.usage.push(entry);
        }
        if let Some(entry) = io.usage.last_mut() {
            match key {
                "rbytes" => entry.rbytes = value,
                "wbytes" => entry.wbytes = value,
                "rios" => entry.rios = value,
                "wios" => entry.wios = value,
                _ => {}
            }
        }
    }
    io
}

fn hugetlb(flat: Flat<'_>) -> Vec<HugeTlbStat> {
    let mut sizes: Vec<HugeTlbStat> = Vec::new();
    for (rest, value) in flat.below("hugetlb.") {
        let Some((size, file)) = rest.rsplit_once('.') else {
            continue;
        };
        if sizes.last().is_none_or(|last| last.pagesize != size) {
            let mut stat = HugeTlbStat::new();
            size.clone_into(&mut stat.pagesize);
            sizes.push(stat);
        }
        if let Some(stat) = sizes.last_mut() {
            match file {
                "current" => stat.current = value,
                "max" => stat.max = value,
                "failcnt" => stat.failcnt = value,
                _ => {}
            }
        }
    }
    sizes
}
