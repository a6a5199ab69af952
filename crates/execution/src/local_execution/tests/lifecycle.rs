use a3sbox_core::{ExecutionState, KillOutcome, ReconcileOutcome};

use super::probe::Runtime;
use super::*;

#[tokio::test]
async fn pause_resume_and_kill_move_the_generation_and_the_record() {
    let world = World::new();
    let lease = world.launch().await;
    let id = &lease.execution_id;
    let paused = world.manager.pause(id, generation(1), true).await.unwrap();
    assert_eq!(paused.generation, generation(2));
    assert_eq!(world.stored(&lease).await.status, "paused");
    assert_eq!(paused.started_at, lease.started_at);
    let resumed = world.manager.resume(id, generation(2)).await.unwrap();
    assert_eq!(resumed.generation, generation(3));
    assert_eq!(
        world.manager.kill(id, generation(3)).await.unwrap(),
        KillOutcome::Killed
    );
    let stopped = world.stored(&lease).await;
    assert_eq!(
        (stopped.status.as_str(), stopped.exit_code),
        ("stopped", Some(137))
    );
    assert_eq!(
        world.manager.kill(id, generation(3)).await.unwrap(),
        KillOutcome::AlreadyStopped
    );
    assert_eq!(world.probe.count("kill"), 1);
}

#[tokio::test]
async fn an_end_that_the_backend_saw_is_recorded_as_it_was_seen() {
    for code in [Some(23), None] {
        let world = World::new();
        let lease = world.launch().await;
        world.probe.set(Runtime::Stopped(code));
        let status = world.manager.inspect(&lease.execution_id).await.unwrap();
        assert_eq!(status.state, ExecutionState::Stopped);
        let stored = world.stored(&lease).await;
        assert_eq!((stored.exit_code, stored.pid), (code, None));
        world.probe.set(Runtime::Absent);
        assert!(matches!(
            world.manager.reconcile(&create_op()).await,
            Ok(ReconcileOutcome::Failed)
        ));
    }
}

#[tokio::test]
async fn a_runtime_that_is_gone_ends_the_execution_with_an_unknown_code() {
    let world = World::new();
    let lease = world.launch().await;
    world.probe.set(Runtime::Absent);
    assert!(matches!(
        world.manager.reconcile(&create_op()).await,
        Ok(ReconcileOutcome::Failed)
    ));
    let stored = world.stored(&lease).await;
    assert_eq!(
        (stored.status.as_str(), stored.exit_code),
        ("stopped", None)
    );
}

#[tokio::test]
async fn inspect_tells_what_the_runtime_shows() {
    let world = World::new();
    let lease = world.launch().await;
    let inspect = || world.manager.inspect(&lease.execution_id);
    assert_eq!(inspect().await.unwrap().state, ExecutionState::Running);
    world.probe.set(Runtime::Paused);
    assert_eq!(inspect().await.unwrap().state, ExecutionState::Paused);
    assert_eq!(world.stored(&lease).await.status, "running");
    assert_unavailable(world.manager.reconcile(&create_op()).await);
}

#[tokio::test]
async fn an_execution_that_never_started_can_be_killed_and_removed() {
    let world = World::new();
    let reserved = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    let id = &reserved.execution_id;
    assert_eq!(
        world.manager.inspect(id).await.unwrap().state,
        ExecutionState::Created
    );
    assert_eq!(
        world.manager.kill(id, generation(1)).await.unwrap(),
        KillOutcome::AlreadyStopped
    );
    assert!(world.manager.remove(id, generation(1)).await.unwrap());
    assert!(!world.manager.remove(id, generation(1)).await.unwrap());
    assert!(matches!(
        world.manager.inspect(id).await,
        Err(ExecutionManagerError::NotFound(_))
    ));
}

#[tokio::test]
async fn remove_takes_the_host_folder_and_never_kills() {
    let world = World::new();
    let lease = world.launch().await;
    let folder = world.stored(&lease).await.box_dir;
    std::fs::create_dir_all(folder.join("rootfs/etc")).unwrap();
    assert_conflict(
        world
            .manager
            .remove(&lease.execution_id, generation(1))
            .await,
    );
    world
        .manager
        .kill(&lease.execution_id, generation(1))
        .await
        .unwrap();
    assert!(
        world
            .manager
            .remove(&lease.execution_id, generation(1))
            .await
            .unwrap()
    );
    assert!(!folder.exists());
    assert_eq!(world.probe.count("kill"), 1);
    assert!(matches!(
        world.manager.reconcile(&create_op()).await,
        Ok(ReconcileOutcome::Absent)
    ));
}
