//! Pause, resume, and the freeze of a snapshot.

use a3sbox_core::{
    ExecutionManager as _, ExecutionSessionManager as _, ExecutionSnapshotId, ExecutionState,
};
use a3sbox_oci::RuntimeOperation;

use super::launch::end;
use super::ready;
use crate::{World, command, next};

// proves: B32
pub async fn each_pause_and_resume_is_a_generation(world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    let binding = world.metadata(id).oci_runtime;
    let first = world
        .manager
        .pause(id, launched.generation(), true)
        .await
        .unwrap();
    assert!(world.is_frozen(id));
    let resumed = world.manager.resume(id, first.generation).await.unwrap();
    assert!(!world.is_frozen(id));
    let second = world
        .manager
        .pause(id, resumed.generation, true)
        .await
        .unwrap();
    assert!(world.is_frozen(id));
    assert_eq!(first.generation, next(launched.generation()));
    assert_eq!(resumed.generation, next(first.generation));
    assert_eq!(second.generation, next(resumed.generation));
    assert_eq!(world.record(id).status, "paused");
    assert_eq!(world.metadata(id).oci_runtime, binding);
    assert_eq!(world.lines("starts"), 1);
    end(&world, &launched).await;
}

// proves: B36
pub async fn a_pause_without_effect_is_rolled_back(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.faults.refuse(RuntimeOperation::Pause);
    world.manager.pause(id, generation, true).await.unwrap_err();
    assert!(!world.is_frozen(id));
    assert_eq!(world.record(id).status, "running");
    assert_eq!(world.metadata(id).generation, generation);
    let paused = world.manager.pause(id, generation, true).await.unwrap();
    assert_eq!(paused.generation, next(generation));
    assert!(world.is_frozen(id));
    end(&world, &launched).await;
}

// proves: B38
pub async fn lost_answers_are_settled_without_a_second_effect(mut world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.faults.lose_answer(RuntimeOperation::Pause);
    let _ = world.manager.pause(id, generation, true).await;
    world.reopen();
    let paused = ready(
        world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap(),
    );
    assert_eq!(paused.generation, next(generation));
    assert!(world.is_frozen(id));
    world.faults.lose_answer(RuntimeOperation::Resume);
    let _ = world.manager.resume(id, paused.generation).await;
    world.reopen();
    let resumed = ready(
        world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap(),
    );
    assert_eq!(resumed.generation, next(paused.generation));
    assert!(!world.is_frozen(id));
    assert_eq!(world.faults.calls(RuntimeOperation::Pause), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Resume), 1);
    end(&world, &launched).await;
}

// proves: B49
pub async fn a_paused_container_is_observed(world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    let paused = world
        .manager
        .pause(id, launched.generation(), true)
        .await
        .unwrap();
    let processes = world.manager.list_processes(id, paused.generation).await;
    assert_eq!(processes.unwrap().processes.len(), 1);
    let stats = world.manager.stats(id, paused.generation).await.unwrap();
    assert_eq!(stats.generation, paused.generation);
    assert!(stats.process_count > 0);
    end(&world, &launched).await;
}

// proves: B33
pub async fn a_snapshot_freezes_for_its_capture_only(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let write = command(&["sh", "-c", "echo kept > /tmp/kept"]);
    let written = world.manager.execute(id, generation, write).await.unwrap();
    assert_eq!(written.exit_code, 0);
    let snapshot_id = ExecutionSnapshotId::new("snapshot-1").unwrap();
    let snapshot = world
        .manager
        .create_filesystem_snapshot(id, generation, &snapshot_id)
        .await
        .unwrap();
    assert_eq!(snapshot.state, ExecutionState::Running);
    assert_eq!(snapshot.lease.generation, generation);
    assert!(!world.is_frozen(id));
    assert_eq!(world.faults.calls(RuntimeOperation::Pause), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Resume), 1);
    let size = world.manager.filesystem_snapshot_size(&snapshot_id).await;
    assert_eq!(size.unwrap(), Some(snapshot.size_bytes));
    let again = world
        .manager
        .create_filesystem_snapshot(id, generation, &snapshot_id)
        .await
        .unwrap();
    assert_eq!(again.size_bytes, snapshot.size_bytes);
    assert_eq!(world.faults.calls(RuntimeOperation::Pause), 1);
    end(&world, &launched).await;
}
