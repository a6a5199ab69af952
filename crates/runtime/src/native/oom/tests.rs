//! Kills on this host's version 1, the wake-up of version 2 on its empty hierarchy, counters on fixtures.

use std::path::PathBuf;
use std::time::Duration;

use super::super::cgroup::{Cgroup, CgroupPaths, tests::Real};
use super::*;

const STEP_DEADLINE: Duration = Duration::from_secs(30);

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(STEP_DEADLINE, work)
        .await
        .expect("a step took too long")
}

fn v2(folder: &Path) -> Cgroup {
    let paths = serde_json::json!({ "unified": folder });
    Cgroup::from_paths(serde_json::from_value::<CgroupPaths>(paths).unwrap())
}

#[tokio::test]
async fn a_kill_for_lack_of_memory_is_told_and_counted() {
    let Some(mut real) = Real::make("oom") else {
        return;
    };
    let folder = real.cgroup.memory_folder().unwrap().to_owned();
    if real.cgroup.version() == Version::V2 {
        println!("skipped: written for the memory controller of version 1");
        return;
    }
    let limit = std::fs::write(folder.join("memory.limit_in_bytes"), "16777216");
    if let Err(error) = limit {
        println!("skipped: no memory limit here: {error}");
        return;
    }
    let mut watch = OomWatch::open(&real.cgroup).unwrap().unwrap();
    assert!(matches!(watch.waker, Waker::Signalled(_)));
    // The shell survives its child.
    real.run("", "tail /dev/zero; exec sleep 1000");
    assert_eq!(within(watch.next()).await, Some(1));
    assert_eq!(real.cgroup.oom_kills(), 1);
    // Nothing more is told.
    let more = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
    assert!(more.is_err());
    drop(real);
    assert_eq!(within(watch.next()).await, None);
}

#[tokio::test]
async fn a_changed_file_of_version_2_wakes() {
    let root = PathBuf::from("/sys/fs/cgroup/unified");
    if !root.join("cgroup.procs").exists() {
        println!("skipped: no hierarchy of version 2 at {}", root.display());
        return;
    }
    let folder = root.join(format!("a3sbox-test-notify-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let events = Notified::open(&folder.join("cgroup.events"))
        .unwrap()
        .unwrap();
    for _ in 0..3 {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        std::fs::write(folder.join("cgroup.procs"), child.id().to_string()).unwrap();
        within(events.changed()).await.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        within(events.changed()).await.unwrap();
    }
    let quiet = tokio::time::timeout(Duration::from_millis(100), events.changed()).await;
    assert!(quiet.is_err());
    std::fs::remove_dir(folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_wakes_nobody_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("memory.events");
    std::fs::write(&events, "oom 5\noom_kill 5\n").unwrap();
    let mut watch = OomWatch::open(&v2(folder.path())).unwrap().unwrap();
    assert!(matches!(watch.waker, Waker::Timer));
    let early = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
    assert!(early.is_err(), "kills before the watch were told");
    std::fs::write(&events, "oom 7\noom_kill 7\n").unwrap();
    assert_eq!(watch.next().await, Some(7));
    folder.close().unwrap();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn nothing_is_watched_where_nothing_counts() {
    let gone = PathBuf::from("/sys/fs/cgroup/a3sbox-is-not-here");
    assert!(OomWatch::open(&v2(&gone)).unwrap().is_none());
    let nowhere = Cgroup::from_paths(CgroupPaths::default());
    assert!(OomWatch::open(&nowhere).unwrap().is_none());
}
