use a3sbox_core::{ExecutionSnapshotId, ExecutionState};

use super::probe::{Fault, Runtime};
use super::*;

fn snapshot_id() -> ExecutionSnapshotId {
    ExecutionSnapshotId::new("snap-1").unwrap()
}

async fn launch_with_rootfs(world: &World) -> ExecutionLease {
    let lease = world.launch().await;
    let rootfs = world.stored(&lease).await.box_dir.join("rootfs");
    std::fs::create_dir_all(&rootfs).unwrap();
    std::fs::write(rootfs.join("file"), b"1234").unwrap();
    lease
}

#[tokio::test]
async fn a_snapshot_freezes_captures_thaws_and_is_not_taken_twice() {
    let world = World::new();
    let lease = launch_with_rootfs(&world).await;
    let id = &lease.execution_id;
    let take = || {
        world
            .manager
            .create_filesystem_snapshot(id, generation(1), &SNAPSHOT)
    };
    static SNAPSHOT: std::sync::LazyLock<ExecutionSnapshotId> =
        std::sync::LazyLock::new(snapshot_id);
    let taken = take().await.unwrap();
    assert_eq!(
        (taken.size_bytes, taken.state),
        (4, ExecutionState::Running)
    );
    assert_eq!(taken.lease.generation, generation(1));
    assert_eq!(
        (world.probe.count("pause"), world.probe.count("resume")),
        (1, 1)
    );
    take().await.unwrap();
    assert_eq!(world.probe.count("pause"), 1);
    let file = world.home().join("snapshots/snap-1/rootfs/file");
    assert_eq!(std::fs::read(file).unwrap(), b"1234");
    let manager = &world.manager;
    assert_eq!(
        manager.filesystem_snapshot_size(&SNAPSHOT).await.unwrap(),
        Some(4)
    );
    assert!(manager.delete_filesystem_snapshot(&SNAPSHOT).await.unwrap());
    assert!(!manager.delete_filesystem_snapshot(&SNAPSHOT).await.unwrap());
    assert_eq!(
        manager.filesystem_snapshot_size(&SNAPSHOT).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_paused_source_stays_paused_and_is_not_frozen_again() {
    let world = World::new();
    let lease = launch_with_rootfs(&world).await;
    let id = &lease.execution_id;
    world.manager.pause(id, generation(1), true).await.unwrap();
    let taken = world
        .manager
        .create_filesystem_snapshot(id, generation(2), &snapshot_id())
        .await
        .unwrap();
    assert_eq!(taken.state, ExecutionState::Paused);
    assert_eq!(
        (world.probe.count("pause"), world.probe.count("resume")),
        (1, 0)
    );
    assert_eq!(world.probe.runtime(), Runtime::Paused);
}

#[tokio::test]
async fn a_failed_capture_thaws_and_reports_the_capture() {
    let world = World::new();
    let lease = world.launch().await;
    for attempt in 1..=2 {
        let error = world
            .manager
            .create_filesystem_snapshot(&lease.execution_id, generation(1), &snapshot_id())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("has no populated managed rootfs to snapshot"),
            "{error}"
        );
        assert_eq!(world.probe.count("resume"), attempt);
        let stored = world.stored(&lease).await;
        assert_eq!(stored.status, "running");
        assert!(stored.metadata().unwrap().pending_operation.is_none());
    }
}

#[tokio::test]
async fn an_interrupted_snapshot_never_leaves_the_container_frozen() {
    for (call, fault) in [
        ("pause", Fault::Before),
        ("pause", Fault::After),
        ("resume", Fault::Before),
        ("resume", Fault::After),
    ] {
        for is_seen in [false, true] {
            let case = format!("{call} {fault:?} seen={is_seen}");
            let mut world = World::new();
            let lease = launch_with_rootfs(&world).await;
            world.probe.fail(call, fault);
            if !is_seen {
                world.probe.fail("inspect", Fault::Before);
            }
            let taken = world
                .manager
                .create_filesystem_snapshot(&lease.execution_id, generation(1), &snapshot_id())
                .await;
            assert_eq!(
                taken.is_ok(),
                is_seen && fault == Fault::After,
                "{case}: {taken:?}"
            );
            world.reopen();
            world.manager.reconcile(&create_op()).await.unwrap();
            assert_eq!(world.probe.runtime(), Runtime::Running, "{case}");
            let stored = world.stored(&lease).await;
            assert_eq!(stored.status, "running", "{case}");
            assert!(world.probe.effects("pause") <= 1, "{case}");
            assert!(world.probe.effects("resume") <= 1, "{case}");
        }
    }
}

#[tokio::test]
async fn a_snapshot_id_of_another_execution_is_a_conflict() {
    let world = World::new();
    let lease = launch_with_rootfs(&world).await;
    world
        .manager
        .create_filesystem_snapshot(&lease.execution_id, generation(1), &snapshot_id())
        .await
        .unwrap();
    let other = world
        .manager
        .create_and_start(request("alpine"), &operation("other-op"))
        .await
        .unwrap();
    assert_conflict(
        world
            .manager
            .create_filesystem_snapshot(&other.execution_id, generation(1), &snapshot_id())
            .await,
    );
}
