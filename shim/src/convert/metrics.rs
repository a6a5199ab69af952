//! Usage of a container as containerd's metrics messages, of cgroup v1 or v2.
//!
//! The runtime reports what the cgroup's files say, flat, by names that are the files' own. Everything of
//! the host's cgroup version becomes the message that the stock shim sends on such a host.

use std::collections::BTreeMap;

use a3sbox_oci::ContainerStats;
use protobuf::well_known_types::any::Any;

mod v1;
mod v2;

/// The message of this host's cgroup version, and the name of its type.
pub(crate) fn metrics(stats: &ContainerStats) -> Any {
    let flat = Flat(&stats.metrics);
    if flat.get("cgroup.version") == 2 {
        super::any("io.containerd.cgroups.v2.Metrics", &v2::metrics(flat))
    } else {
        super::any("io.containerd.cgroups.v1.Metrics", &v1::metrics(flat))
    }
}

/// Flat metrics with the questions that both versions ask.
#[derive(Clone, Copy)]
struct Flat<'a>(&'a BTreeMap<String, u64>);

impl<'a> Flat<'a> {
    /// A value, zero when its file was not there.
    fn get(self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn has(self, prefix: &str) -> bool {
        self.below(prefix).next().is_some()
    }

    /// Everything whose name starts so, without the prefix, in the order of names.
    fn below(self, prefix: &str) -> impl Iterator<Item = (&'a str, u64)> + use<'a, '_> {
        self.0
            .range(prefix.to_owned()..)
            .map_while(move |(name, value)| name.strip_prefix(prefix).map(|rest| (rest, *value)))
    }

    /// Limits of pids: zero is the flat form of "no limit".
    fn pids_limit(self, name: &str, unlimited: u64) -> u64 {
        match self.get(name) {
            0 => unlimited,
            limit => limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect()
    }

    #[test]
    fn v1_has_memory_cpu_pids_blkio_and_hugetlb() {
        let map = flat(&[
            ("cgroup.version", 1),
            ("memory.usage_in_bytes", 10),
            ("memory.limit_in_bytes", 20),
            ("memory.memsw.usage_in_bytes", 11),
            ("memory.stat.rss", 5),
            ("memory.stat.hierarchical_memsw_limit", 6),
            ("memory.oom_control.under_oom", 1),
            ("cpuacct.usage", 100),
            ("cpuacct.usage_percpu.0", 40),
            ("cpuacct.usage_percpu.1", 50),
            ("cpuacct.usage_percpu.10", 10),
            ("cpuacct.usage_percpu.2", 0),
            ("cpu.stat.nr_throttled", 3),
            ("pids.current", 4),
            ("blkio.io_service_bytes_recursive.8:16.Read", 99),
            ("hugetlb.2MB.usage", 7),
            ("hugetlb.2MB.max", 8),
        ]);
        let metrics = v1::metrics(Flat(&map));
        assert_eq!(metrics.memory.usage.usage, 10);
        assert_eq!(metrics.memory.usage.limit, 20);
        assert_eq!(metrics.memory.swap.usage, 11);
        assert_eq!(metrics.memory.rss, 5);
        assert_eq!(metrics.memory.hierarchical_swap_limit, 6);
        assert_eq!(metrics.memory_oom_control.under_oom, 1);
        assert_eq!(metrics.cpu.usage.total, 100);
        assert_eq!(metrics.cpu.usage.per_cpu, [40, 50, 0, 10]);
        assert_eq!(metrics.cpu.throttling.throttled_periods, 3);
        assert_eq!((metrics.pids.current, metrics.pids.limit), (4, 0));
        let entry = &metrics.blkio.io_service_bytes_recursive[0];
        assert_eq!(
            (entry.major, entry.minor, entry.op.as_str(), entry.value),
            (8, 16, "Read", 99)
        );
        assert_eq!(metrics.hugetlb[0].pagesize, "2MB");
        assert_eq!((metrics.hugetlb[0].usage, metrics.hugetlb[0].max), (7, 8));
    }

    #[test]
    fn v2_has_cpu_memory_events_io_and_an_unlimited_pids_limit() {
        let map = flat(&[
            ("cgroup.version", 2),
            ("cpu.stat.usage_usec", 9),
            ("memory.current", 1),
            ("memory.max", u64::MAX),
            ("memory.stat.anon", 2),
            ("memory.events.oom_kill", 3),
            ("pids.current", 4),
            ("pids.max", 0),
            ("io.stat.8:0.rbytes", 5),
            ("io.stat.8:0.wios", 6),
            ("io.stat.8:16.rbytes", 7),
        ]);
        let metrics = v2::metrics(Flat(&map));
        assert_eq!(metrics.cpu.usage_usec, 9);
        assert_eq!(
            (metrics.memory.usage, metrics.memory.usage_limit),
            (1, u64::MAX)
        );
        assert_eq!(metrics.memory.anon, 2);
        assert_eq!(metrics.memory_events.oom_kill, 3);
        assert_eq!(metrics.pids.limit, u64::MAX);
        assert_eq!(metrics.io.usage.len(), 2);
        assert_eq!(
            (metrics.io.usage[0].rbytes, metrics.io.usage[0].wios),
            (5, 6)
        );
        assert_eq!(metrics.io.usage[1].minor, 16);
    }
}
