//! Places on fixtures, counters on fixtures and on this host, the freezer on this host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::config_path::{Around, locate};
use super::layout::Membership;
use super::*;

const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
90 31 0:32 / /mnt/elsewhere rw,relatime - cgroup cgroup rw,memory
";
const UNIFIED: &str = "\
31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

fn layout(mountinfo: &str) -> Layout {
    Layout::parse(mountinfo, Path::new("/"))
}

fn everywhere(paths: &CgroupPaths) -> BTreeMap<String, String> {
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    paths
        .v1
        .iter()
        .map(|(name, path)| (name.clone(), text(path)))
        .chain(
            paths
                .unified
                .iter()
                .map(|path| ("unified".to_owned(), text(path))),
        )
        .collect()
}

fn named(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, path)| ((*name).to_owned(), (*path).to_owned()))
        .collect()
}

#[test]
fn a_process_is_found_in_every_hierarchy_but_where_it_is_beside_us() {
    let theirs = Membership::parse(
        "5:memory:/k8s/pod:1/c\n4:cpu,cpuacct:/k8s/c\n3:freezer:/\n1:name=systemd:/k8s/c\n0::/k8s/c\n",
    );
    let ours = Membership::parse(
        "5:memory:/\n4:cpu,cpuacct:/\n3:freezer:/\n1:name=systemd:/\n0::/k8s/c\n",
    );
    let paths = layout(HYBRID).locate(&theirs, &ours);
    assert_eq!(
        everywhere(&paths),
        named(&[
            ("memory", "/sys/fs/cgroup/memory/k8s/pod:1/c"),
            ("cpu", "/sys/fs/cgroup/cpu,cpuacct/k8s/c"),
            ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct/k8s/c"),
            ("name=systemd", "/sys/fs/cgroup/systemd/k8s/c"),
        ])
    );
    assert_eq!(paths.version(), Version::V1);
    assert_eq!(paths.folders().len(), 3);
}

#[test]
fn a_part_of_a_hierarchy_that_was_bound_is_found_below_its_mount() {
    let bound = HYBRID.replace(
        "0:32 / /sys/fs/cgroup/memory",
        "0:32 /docker/abc /sys/fs/cgroup/with\\040space",
    );
    let theirs = Membership::parse("5:memory:/docker/abc/k8s/c\n");
    let paths = layout(&bound).locate(&theirs, &Membership::default());
    assert_eq!(
        everywhere(&paths),
        named(&[("memory", "/sys/fs/cgroup/with space/k8s/c")])
    );
}

#[test]
fn version_2_is_one_folder() {
    let theirs = Membership::parse("0::/system.slice/x.scope\n");
    let paths = layout(UNIFIED).locate(&theirs, &Membership::parse("0::/\n"));
    assert_eq!(
        everywhere(&paths),
        named(&[("unified", "/sys/fs/cgroup/system.slice/x.scope")])
    );
    assert_eq!(paths.version(), Version::V2);
}

#[test]
fn a_journal_gives_the_same_paths_back() {
    for mountinfo in [HYBRID, UNIFIED] {
        let theirs = Membership::parse("5:memory:/a\n0::/a\n");
        let paths = layout(mountinfo).locate(&theirs, &Membership::default());
        let text = serde_json::to_string(&paths).unwrap();
        assert_eq!(serde_json::from_str::<CgroupPaths>(&text).unwrap(), paths);
    }
}

fn from_config(mountinfo: &str, path: Option<&str>, systemd: bool) -> Result<String, CgroupError> {
    let ours = Membership::parse("5:memory:/ours\n0::/ours\n");
    let first = Membership::parse("5:memory:/init.scope\n0::/init.scope\n");
    let around = Around {
        ours: &ours,
        first: &first,
    };
    let paths = locate(
        &layout(mountinfo),
        path.map(Path::new),
        "box",
        systemd,
        around,
    )?;
    let unified = paths.unified.clone().unwrap();
    assert!(
        mountinfo == UNIFIED
            || paths
                .controller("memory")
                .unwrap()
                .strip_prefix("/sys/fs/cgroup/memory")
                .unwrap()
                == unified.strip_prefix("/sys/fs/cgroup/unified").unwrap()
    );
    Ok(unified.to_str().unwrap().to_owned())
}

#[test]
fn a_config_path_is_read_as_the_engines_read_it() {
    let v2 = |path, systemd| from_config(UNIFIED, path, systemd).unwrap();
    assert_eq!(
        v2(Some("/kubepods/pod1/c"), false),
        "/sys/fs/cgroup/kubepods/pod1/c"
    );
    assert_eq!(v2(Some("below"), false), "/sys/fs/cgroup/ours/below");
    assert_eq!(v2(None, false), "/sys/fs/cgroup/ours/box");
    assert_eq!(
        v2(
            Some("kubepods-burstable-pod_1.slice:cri-containerd:abc"),
            true
        ),
        "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_1.slice/cri-containerd-abc.scope"
    );
    assert_eq!(
        v2(Some("::abc"), true),
        "/sys/fs/cgroup/system.slice/abc.scope"
    );
    assert_eq!(
        v2(Some("-.slice:x:abc"), true),
        "/sys/fs/cgroup/x-abc.scope"
    );
    assert_eq!(
        v2(Some("a.slice:x:inner.slice"), true),
        "/sys/fs/cgroup/a.slice/inner.slice"
    );
    assert_eq!(v2(None, true), "/sys/fs/cgroup/system.slice/runc-box.scope");
    assert_eq!(
        from_config(HYBRID, Some("/a"), false).unwrap(),
        "/sys/fs/cgroup/unified/a"
    );
    assert_eq!(
        from_config(HYBRID, Some("a.slice:x:c"), true).unwrap(),
        "/sys/fs/cgroup/unified/a.slice/x-c.scope"
    );
}

#[test]
fn a_config_path_that_leads_elsewhere_is_refused() {
    for (path, systemd) in [
        ("/a/../../b", false),
        ("/", false),
        ("a.slice:b", true),
        ("a.slice:b:", true),
        ("/a/b", true),
        ("a/b.slice:x:y", true),
        ("noslice:x:y", true),
        ("a--b.slice:x:y", true),
    ] {
        assert!(
            matches!(
                from_config(UNIFIED, Some(path), systemd),
                Err(CgroupError::InvalidPath { .. })
            ),
            "{path}"
        );
    }
}

/// A folder with files as a cgroup has them.
fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("a3sbox-cgroup-")
        .tempdir()
        .unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn version_2_counters_are_read_flat() {
    let folder = fixture(&[
        (
            "cpu.stat",
            "usage_usec 1000\nuser_usec 600\nsystem_usec 400\nnr_throttled 2\nthrottled_usec 7\n",
        ),
        ("memory.current", "4096\n"),
        ("memory.max", "max\n"),
        ("memory.peak", "1024\n"),
        ("memory.swap.current", "1\n"),
        ("memory.swap.max", "2\n"),
        ("memory.stat", "anon 11\nfile 22\n"),
        ("memory.events", "low 0\noom 4\noom_kill 3\n"),
        ("pids.current", "5\n"),
        ("pids.max", "max\n"),
        (
            "io.stat",
            "8:0 rbytes=100 wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2\n",
        ),
        ("hugetlb.2MB.current", "6\n"),
        ("hugetlb.2MB.max", "max\n"),
        ("hugetlb.2MB.rsvd.current", "9\n"),
    ]);
    let cgroup = Cgroup::from_paths(CgroupPaths {
        v1: BTreeMap::new(),
        unified: Some(folder.path().to_owned()),
    });
    let stats = cgroup.stats().unwrap();
    assert_eq!(stats.cpu.usage_ns, 1_000_000);
    assert_eq!(stats.cpu.throttled_ns, 7_000);
    assert_eq!(stats.memory.usage_bytes, 4096);
    assert_eq!(stats.memory.limit_bytes, None);
    assert_eq!(stats.memory.peak_bytes, Some(4096));
    assert_eq!(stats.process_count, 5);
    for (name, value) in [
        ("cgroup.version", 2),
        ("cpu.stat.user_usec", 600),
        ("memory.max", u64::MAX),
        ("memory.swap.max", 2),
        ("memory.stat.file", 22),
        ("memory.events.oom_kill", 3),
        ("pids.max", 0),
        ("io.stat.8:0.rbytes", 100),
        ("io.stat.8:16.wbytes", 2),
        ("io.read_bytes", 101),
        ("io.write_bytes", 22),
        ("hugetlb.2MB.current", 6),
        ("hugetlb.2MB.max", u64::MAX),
    ] {
        assert_eq!(stats.metrics.get(name), Some(&value), "{name}");
    }
    assert_eq!(cgroup.oom_kills(), 3);
}

#[test]
fn version_1_counters_are_read_flat() {
    let folder = fixture(&[
        ("cpuacct/cpuacct.usage", "1000000000\n"),
        ("cpuacct/cpuacct.usage_percpu", "600000000 400000000 \n"),
        ("cpuacct/cpuacct.stat", "user 90\nsystem 20\n"),
        (
            "cpu/cpu.stat",
            "nr_periods 3\nnr_throttled 2\nthrottled_time 77\n",
        ),
        ("memory/memory.usage_in_bytes", "100\n"),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/memory.max_usage_in_bytes", "200\n"),
        ("memory/memory.memsw.usage_in_bytes", "101\n"),
        ("memory/memory.stat", "cache 1\ntotal_rss 2\n"),
        (
            "memory/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
        (
            "memory/inner/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        ),
        ("pids/pids.current", "4\n"),
        ("pids/pids.max", "max\n"),
        (
            "blkio/blkio.throttle.io_service_bytes",
            "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n",
        ),
        ("blkio/blkio.throttle.io_serviced", "8:0 Read 1\nTotal 1\n"),
        ("hugetlb/hugetlb.1GB.usage_in_bytes", "7\n"),
        ("hugetlb/hugetlb.1GB.max_usage_in_bytes", "8\n"),
        ("hugetlb/hugetlb.1GB.failcnt", "9\n"),
    ]);
    let cgroup = Cgroup::from_paths(CgroupPaths {
        v1: ["cpuacct", "cpu", "memory", "pids", "blkio", "hugetlb"]
            .map(|name| (name.to_owned(), folder.path().join(name)))
            .into(),
        unified: None,
    });
    let stats = cgroup.stats().unwrap();
    // Ticks say more than the clock: they are scaled into it.
    assert_eq!(stats.cpu.user_ns + stats.cpu.system_ns, 1_000_000_000);
    assert_eq!(stats.cpu.throttled_ns, 77);
    assert_eq!(stats.memory.limit_bytes, None);
    assert_eq!(stats.memory.peak_bytes, Some(200));
    assert_eq!(stats.process_count, 4);
    for (name, value) in [
        ("cgroup.version", 1),
        ("cpuacct.usage_percpu.1", 400_000_000),
        ("cpuacct.stat.user_ns", 900_000_000),
        ("cpu.stat.nr_throttled", 2),
        ("memory.limit_in_bytes", 9_223_372_036_854_771_712),
        ("memory.memsw.usage_in_bytes", 101),
        ("memory.stat.total_rss", 2),
        ("memory.oom_control.oom_kill", 2),
        ("pids.limit", 0),
        ("blkio.throttle.io_service_bytes.8:0.Write", 20),
        ("io.read_bytes", 10),
        ("hugetlb.1GB.max", 8),
    ] {
        assert_eq!(stats.metrics.get(name), Some(&value), "{name}");
    }
    assert_eq!(cgroup.oom_kills(), 3);
}

#[test]
fn a_cgroup_that_has_gone_is_empty_and_no_error() {
    let gone = PathBuf::from("/sys/fs/cgroup/a3sbox-is-not-here");
    for paths in [
        CgroupPaths {
            v1: [("memory".to_owned(), gone.clone())].into(),
            unified: None,
        },
        CgroupPaths {
            v1: BTreeMap::new(),
            unified: Some(gone),
        },
    ] {
        let cgroup = Cgroup::from_paths(paths);
        assert_eq!(cgroup.pids().unwrap(), Vec::<u32>::new());
        assert_eq!(cgroup.stats().unwrap().process_count, 0);
        assert_eq!(cgroup.oom_kills(), 0);
        cgroup.thaw().unwrap();
        cgroup.thaw_for_kill().unwrap();
        cgroup.remove().unwrap();
        cgroup.remove_if_empty().unwrap();
        assert!(!cgroup.kill().unwrap());
    }
}

/// A real cgroup of this test, in every hierarchy of the host. `None` where there is none to write to.
pub(crate) struct Real {
    pub(crate) cgroup: Cgroup,
    children: Vec<Child>,
}

impl Real {
    pub(crate) fn make(name: &str) -> Option<Self> {
        let path = PathBuf::from(format!("/a3sbox-test-{name}-{}", std::process::id()));
        let cgroup = Cgroup::from_config(Some(&path), "unused", false).unwrap();
        for folder in cgroup.paths().folders() {
            if let Err(error) = std::fs::create_dir_all(folder) {
                println!("skipped: cannot make {}: {error}", folder.display());
                return None;
            }
        }
        Some(Self {
            cgroup,
            children: Vec::new(),
        })
    }

    /// Starts a shell in the cgroup, below the given folder of it.
    pub(crate) fn run(&mut self, below: &str, script: &str) -> u32 {
        let enter: String = self
            .cgroup
            .paths()
            .folders()
            .iter()
            .filter(|folder| !folder.starts_with("/sys/fs/cgroup/cpuset"))
            .map(|folder| {
                let folder = folder.join(below);
                std::fs::create_dir_all(&folder).unwrap();
                format!("echo $$ >{}/cgroup.procs; ", folder.display())
            })
            .collect();
        let child = Command::new("/bin/sh")
            .args(["-c", &format!("{enter}{script}")])
            .spawn()
            .unwrap();
        let pid = child.id();
        self.children.push(child);
        pid
    }

    fn has(&self, pid: u32) -> bool {
        self.cgroup.pids().unwrap().contains(&pid)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.cgroup.thaw();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.cgroup.remove().unwrap();
    }
}

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_real_cgroup_is_found_counted_and_removed() {
    let Some(mut real) = Real::make("found") else {
        return;
    };
    let outer = real.run("", "exec sleep 1000");
    let inner = real.run("inner/deep", "exec sleep 1000");
    until("both are in", || real.has(outer) && real.has(inner));
    let found = Cgroup::of_process(outer).unwrap();
    assert!(
        found
            .paths()
            .folders()
            .is_subset(&real.cgroup.paths().folders()),
        "{found:?}"
    );
    // The kernel charges memory in batches, a moment after it was used.
    until("memory is charged", || {
        found.stats().unwrap().memory.usage_bytes > 0
    });
    let stats = found.stats().unwrap();
    assert!(stats.process_count >= 2);
    assert!(stats.metrics.len() > 30);

    let folders: Vec<PathBuf> = real
        .cgroup
        .paths()
        .folders()
        .into_iter()
        .map(Path::to_owned)
        .collect();
    real.cgroup.remove_if_empty().unwrap();
    assert!(real.has(outer));
    drop(real);
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[tokio::test]
async fn a_frozen_cgroup_stands_still_until_it_is_thawed() {
    let Some(mut real) = Real::make("frozen") else {
        return;
    };
    let pid = real.run("inner", "while :; do :; done");
    until("it is in", || real.has(pid));
    real.cgroup.freeze().await.unwrap();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(' ').count().to_string() + stat.split_whitespace().nth(13).unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(before, ticks());
    real.cgroup.thaw().unwrap();
    until("it runs again", || ticks() != before);
}

#[test]
fn a_killed_process_of_a_frozen_cgroup_dies_when_it_is_thawed() {
    let Some(mut real) = Real::make("thawed") else {
        return;
    };
    let pid = real.run("", "exec sleep 1000");
    until("it is in", || real.has(pid));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(real.cgroup.freeze()).unwrap();
    let mut child = real.children.pop().unwrap();
    child.kill().unwrap();
    real.cgroup.thaw_for_kill().unwrap();
    until("it is dead", || child.try_wait().unwrap().is_some());
}

#[tokio::test]
async fn a_cgroup_that_holds_this_process_is_not_touched() {
    let ours = Cgroup::from_paths(Layout::of_this_process().unwrap().locate(
        &read_membership("/proc/self/cgroup").unwrap(),
        &Membership::default(),
    ));
    assert!(matches!(
        ours.freeze().await,
        Err(CgroupError::HoldsUs { .. })
    ));
    assert!(matches!(ours.kill(), Err(CgroupError::HoldsUs { .. })));
    assert!(matches!(ours.remove(), Err(CgroupError::HoldsUs { .. })));
    // And so the cgroup of a process beside us is not taken for a container's.
    assert_eq!(
        Cgroup::of_process(std::process::id()).unwrap().paths(),
        &CgroupPaths::default()
    );
}
