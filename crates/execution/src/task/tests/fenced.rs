//! The contract's verbs on a containerd task: one owner, one record, one fence.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManager, ExecutionManagerError,
    ExecutionManagerResult, ExecutionResourceUpdate, ExecutionSnapshotId, ExecutionState,
    KillExecutionOptions, KillOutcome, OperationId, RestartExecutionOptions,
};
use a3sbox_oci::ErrorCode;

use super::double::exited;
use super::{World, request, soon};
use crate::Ownership;
use crate::task::{InitState, TaskError, TaskKey, TaskManager, TaskStatus};

fn generation(value: u64) -> ExecutionGeneration {
    ExecutionGeneration::new(value).unwrap()
}

fn operation(id: &str) -> OperationId {
    OperationId::new(id).unwrap()
}

fn snapshot_id() -> ExecutionSnapshotId {
    ExecutionSnapshotId::new("snap-1").unwrap()
}

fn pids(limit: u64) -> ExecutionResourceUpdate {
    ExecutionResourceUpdate {
        pids_limit: Some(limit),
        ..ExecutionResourceUpdate::default()
    }
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(result: ExecutionManagerResult<T>) {
    assert!(
        matches!(result, Err(ExecutionManagerError::Conflict { .. })),
        "{result:?}"
    );
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: ExecutionManagerResult<T>) -> String {
    match result {
        Err(ExecutionManagerError::Unavailable(text)) => text,
        other => panic!("unexpected {other:?}"),
    }
}

impl World {
    fn execution(&self, key: &TaskKey) -> ExecutionId {
        ExecutionId::new(self.stored(key).unwrap().id).unwrap()
    }

    fn generation_of(&self, key: &TaskKey) -> u64 {
        let managed = self.stored(key).unwrap().managed_execution.unwrap();
        managed.generation.get()
    }

    /// A running container whose rootfs has a file, as its bundle would.
    async fn running_with_rootfs(&self, id: &str) -> TaskKey {
        let key = super::key(id);
        let bundle = self.folder.path().join("bundle");
        std::fs::create_dir_all(bundle.join("rootfs")).unwrap();
        std::fs::write(bundle.join("rootfs/hello"), b"hi").unwrap();
        let mut request = request(&key);
        request.bundle = bundle;
        soon(self.manager.provision(request)).await.unwrap();
        soon(self.manager.release(&key)).await.unwrap();
        key
    }
}

#[tokio::test]
async fn a_programs_verbs_are_the_tasks_own() {
    let mut world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    let manager = world.manager.clone();

    let paused = soon(ExecutionManager::pause(&manager, &id, generation(1), true))
        .await
        .unwrap();
    assert_eq!(paused.generation, generation(2));
    let state = soon(manager.state(&key, None)).await.unwrap();
    assert_eq!(state.status, TaskStatus::Paused);
    assert!(world.runtime.is_paused());
    assert_eq!(world.stored(&key).unwrap().status, "paused");
    // containerd resumes what a program paused, and the program's generation is stale.
    soon(TaskManager::resume(&manager, &key)).await.unwrap();
    assert_conflict(soon(ExecutionManager::resume(&manager, &id, generation(2))).await);
    let killed = soon(manager.kill(&id, generation(3))).await.unwrap();
    assert_eq!(killed, KillOutcome::Killed);
    let exit = soon(manager.wait(&key, None)).await.unwrap();
    assert_eq!(exit.status, Some(137));
    let stored = world.stored(&key).unwrap();
    assert_eq!(
        (stored.status.as_str(), stored.stopped_by_user),
        ("stopped", true)
    );
    let again = soon(manager.kill(&id, generation(3))).await.unwrap();
    assert_eq!(again, KillOutcome::AlreadyStopped);
    assert_eq!(
        world.next_events(5).await,
        ["created", "started", "paused", "resumed", "exited 137"]
    );
    assert_eq!(world.runtime.containers(), 1, "the delete is containerd's");
    soon(manager.delete(&key, None)).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_stale_generation_is_refused_before_anything_is_touched() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    let before = world.stored(&key).unwrap();
    let calls = world.runtime.log();
    let manager = world.manager.clone();
    let old = generation(7);
    assert_conflict(soon(ExecutionManager::pause(&manager, &id, old, true)).await);
    assert_conflict(soon(ExecutionManager::resume(&manager, &id, old)).await);
    assert_conflict(soon(manager.kill(&id, old)).await);
    assert_conflict(soon(manager.update_resources(&id, old, &operation("op"), pids(5))).await);
    assert_conflict(soon(manager.create_filesystem_snapshot(&id, old, &snapshot_id())).await);
    assert_conflict(
        soon(manager.restart_with_options(
            &id,
            old,
            &operation("op"),
            RestartExecutionOptions::default(),
        ))
        .await,
    );
    assert_conflict(soon(manager.remove(&id, old)).await);
    let is_wait = |call: &String| !call.starts_with("wait");
    let seen: Vec<_> = world.runtime.log().into_iter().filter(is_wait).collect();
    let calls: Vec<_> = calls.into_iter().filter(is_wait).collect();
    assert_eq!(seen, calls);
    let after = world.stored(&key).unwrap();
    assert_eq!(
        serde_json::to_value(&after).unwrap(),
        serde_json::to_value(&before).unwrap()
    );
}

/// The first check passes on the record, the queue makes it stale, the owner checks again.
#[tokio::test]
async fn the_fence_is_checked_again_inside_the_owner() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    let manager = world.manager.clone();
    // Both are decided on generation 1 before either is handled.
    let (first, second) = soon(async {
        tokio::join!(
            ExecutionManager::pause(&manager, &id, generation(1), true),
            ExecutionManager::pause(&manager, &id, generation(1), true)
        )
    })
    .await;
    assert_eq!(u8::from(first.is_ok()) + u8::from(second.is_ok()), 1);
    let refused = if first.is_ok() { second } else { first };
    assert_conflict(refused);
    assert_eq!(world.generation_of(&key), 2);
}

#[tokio::test]
async fn what_containerd_decides_is_refused_with_the_reason() {
    let world = World::new();
    let key = world.created("c1").await;
    let id = world.execution(&key);
    let manager = world.manager.clone();
    let options = RestartExecutionOptions::default();
    for text in [
        refusal(soon(manager.start(&id, generation(1))).await),
        refusal(soon(manager.remove(&id, generation(1))).await),
        refusal(
            soon(manager.restart_with_options(&id, generation(1), &operation("op"), options)).await,
        ),
    ] {
        assert!(text.contains("containerd owns its lifecycle"), "{text}");
    }
    let text = refusal(soon(ExecutionManager::pause(&manager, &id, generation(1), false)).await);
    assert!(text.contains("keeps its memory"), "{text}");
    // A verb that does not fit the state is a conflict that changes nothing.
    assert_conflict(soon(ExecutionManager::pause(&manager, &id, generation(1), true)).await);
    assert_eq!(world.stored(&key).unwrap().status, "created");
    soon(manager.release(&key)).await.unwrap();
    let lease = soon(manager.start(&id, generation(1))).await.unwrap();
    assert_eq!(lease.execution_id, id);
}

#[tokio::test]
async fn an_update_is_done_once_per_operation_and_content() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    let manager = world.manager.clone();
    let op = operation("op-1");
    let update = || manager.update_resources(&id, generation(1), &op, pids(50));
    soon(update()).await.unwrap();
    soon(update()).await.unwrap();
    let count = |log: &[String]| log.iter().filter(|call| *call == "update").count();
    assert_eq!(count(&world.runtime.log()), 1);
    let other = manager.update_resources(&id, generation(1), &op, pids(60));
    assert_conflict(soon(other).await);
    let stored = world.stored(&key).unwrap();
    assert_eq!(stored.resource_limits.pids_limit, Some(50));
    assert_eq!(stored.status, "running");
    assert_eq!(world.generation_of(&key), 1);
}

#[tokio::test]
async fn an_update_that_fails_leaves_the_container_running() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    world
        .runtime
        .fail("update", ErrorCode::InvalidArgument, "no");
    let op = operation("op-1");
    let failed = soon(
        world
            .manager
            .update_resources(&id, generation(1), &op, pids(50)),
    );
    failed.await.unwrap_err();
    assert_eq!(world.stored(&key).unwrap().status, "running");
    soon(ExecutionManager::pause(
        &world.manager,
        &id,
        generation(1),
        true,
    ))
    .await
    .unwrap();
}

#[tokio::test]
async fn a_snapshot_freezes_captures_and_thaws() {
    let world = World::new();
    let key = world.running_with_rootfs("c1").await;
    let id = world.execution(&key);
    let taken = soon(
        world
            .manager
            .create_filesystem_snapshot(&id, generation(1), &snapshot_id()),
    )
    .await
    .unwrap();
    assert_eq!(
        (taken.state, taken.lease.generation),
        (ExecutionState::Running, generation(1))
    );
    assert!(!world.runtime.is_paused());
    let copy = world
        .folder
        .path()
        .join("home/snapshots/snap-1/rootfs/hello");
    assert_eq!(std::fs::read(copy).unwrap(), b"hi");
    let verbs: Vec<_> = world.runtime.log();
    let freezes = verbs.iter().filter(|verb| *verb == "pause").count();
    let thaws = verbs.iter().filter(|verb| *verb == "resume").count();
    assert_eq!((freezes, thaws), (1, 1));
    // Taken once: the second answer is the first one's.
    soon(
        world
            .manager
            .create_filesystem_snapshot(&id, generation(1), &snapshot_id()),
    )
    .await
    .unwrap();
    assert_eq!(
        world
            .runtime
            .log()
            .iter()
            .filter(|verb| *verb == "pause")
            .count(),
        1
    );
    let task = world.stored_task(&key);
    assert_eq!(task.init.state, InitState::Running);
}

#[tokio::test]
async fn a_paused_source_stays_paused() {
    let world = World::new();
    let key = world.running_with_rootfs("c1").await;
    let id = world.execution(&key);
    soon(TaskManager::pause(&world.manager, &key))
        .await
        .unwrap();
    let taken = soon(
        world
            .manager
            .create_filesystem_snapshot(&id, generation(2), &snapshot_id()),
    )
    .await;
    assert_eq!(taken.unwrap().state, ExecutionState::Paused);
    assert!(world.runtime.is_paused());
    assert_eq!(world.stored(&key).unwrap().status, "paused");
}

#[tokio::test]
async fn a_kill_waits_for_no_snapshot_and_nothing_is_published() {
    let world = World::new();
    let key = world.running_with_rootfs("c1").await;
    let id = world.execution(&key);
    world.runtime.hold("pause");
    let manager = world.manager.clone();
    let source = id.clone();
    let snapshot = tokio::spawn(async move {
        manager
            .create_filesystem_snapshot(&source, generation(1), &snapshot_id())
            .await
    });
    soon(world.runtime.entered("pause", 1)).await;
    assert_eq!(world.stored(&key).unwrap().status, "snapshotting");
    let killed = soon(ExecutionManager::kill(&world.manager, &id, generation(1))).await;
    assert_eq!(killed.unwrap(), KillOutcome::Killed);
    assert_eq!(world.stored(&key).unwrap().status, "stopped");
    world.runtime.let_go("pause");
    assert!(soon(snapshot).await.unwrap().is_err());
    assert!(!world.folder.path().join("home/snapshots/snap-1").exists());
    soon(world.manager.delete(&key, None)).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_kill_overtakes_a_pause_and_its_caller_is_told() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    world.runtime.hold("pause");
    let (manager, source) = (world.manager.clone(), id.clone());
    let pause = tokio::spawn(async move {
        ExecutionManager::pause(&manager, &source, generation(1), true).await
    });
    soon(world.runtime.entered("pause", 1)).await;
    // Neither face waits: a program gets a conflict, containerd's kill its effect.
    assert_conflict(
        soon(ExecutionManager::pause(
            &world.manager,
            &id,
            generation(1),
            true,
        ))
        .await,
    );
    soon(ExecutionManager::kill(&world.manager, &id, generation(1)))
        .await
        .unwrap();
    world.runtime.let_go("pause");
    assert_conflict(soon(pause).await.unwrap());
    assert_eq!(world.generation_of(&key), 1);
    assert_eq!(world.stored(&key).unwrap().status, "stopped");
}

#[tokio::test]
async fn a_trapped_kill_escalates_after_its_timeout_and_claims_meanwhile() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    world.runtime.trap(15);
    let options = KillExecutionOptions {
        signal: Some(15),
        timeout_secs: Some(1),
    };
    let kill = world.manager.kill_with_options(&id, generation(1), options);
    let exec = async {
        soon(world.runtime.entered("kill", 1)).await;
        assert_eq!(world.stored(&key).unwrap().status, "killing");
        let added = world.manager.exec_add(
            &key,
            "e",
            super::process(),
            a3sbox_oci::StdioUris::default(),
        );
        assert!(matches!(soon(added).await, Err(TaskError::WrongState(_))));
    };
    let (killed, ()) = soon(async { tokio::join!(kill, exec) }).await;
    assert_eq!(killed.unwrap(), KillOutcome::Killed);
    assert_eq!(
        soon(world.manager.wait(&key, None)).await.unwrap().status,
        Some(137)
    );
}

#[tokio::test]
async fn a_task_of_another_owner_is_refused_naming_the_process() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    let other = super::manager(world.folder.path(), &world.runtime, &world.provider);
    let pid = std::process::id().to_string();

    let refused = soon(other.provision(request(&key))).await.unwrap_err();
    assert!(
        refused.to_string().contains(&format!("process {pid}")),
        "{refused}"
    );
    // It reads the record and leaves it alone.
    other.store.find_container(&key).unwrap().unwrap();
    let status = soon(other.inspect(&id)).await.unwrap();
    assert_eq!(status.state, ExecutionState::Running);
    refusal(soon(ExecutionManager::pause(&other, &id, generation(1), true)).await);
    refusal(soon(ExecutionManager::kill(&other, &id, generation(1))).await);
    assert_eq!(world.stored(&key).unwrap().status, "running");
}

#[tokio::test]
async fn a_lost_owner_is_told_by_the_runtime_and_adopted_by_nobody() {
    let world = World::new();
    let key = world.running("c1").await;
    let id = world.execution(&key);
    let world = world.crash();
    world.manager.store.find_container(&key).unwrap().unwrap();
    // The owner's task ends with its manager, and its lock with it.
    soon(async {
        while world.store().ownership(&key) != Ownership::Free {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let status = soon(world.manager.inspect(&id)).await.unwrap();
    assert_eq!(status.state, ExecutionState::Running);
    world.runtime.end_init(exited(3));
    let status = soon(world.manager.inspect(&id)).await.unwrap();
    assert_eq!(status.state, ExecutionState::Stopped);
    assert_eq!(
        world.stored(&key).unwrap().status,
        "running",
        "a look writes nothing"
    );
    let text = refusal(soon(ExecutionManager::kill(&world.manager, &id, generation(1))).await);
    assert!(text.contains("lost its owner"), "{text}");
}
