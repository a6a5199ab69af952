use a3sbox_core::{
    ExecRequest, ExecutionEventsRequest, ExecutionId, ExecutionResourceUpdate,
    ExecutionSessionManager, ExecutionSnapshotId, KillExecutionOptions,
};

use super::*;
use crate::store::test_fixture::{execution, key, task_record};

fn exec() -> ExecRequest {
    ExecRequest {
        request_id: None,
        cmd: vec!["true".into()],
        timeout_ns: 0,
        env: Vec::new(),
        working_dir: None,
        rootfs: None,
        stdin: None,
        stdin_streaming: false,
        user: None,
        streaming: false,
    }
}

fn update() -> ExecutionResourceUpdate {
    ExecutionResourceUpdate {
        pids_limit: Some(7),
        ..ExecutionResourceUpdate::default()
    }
}

/// The error of every verb that takes a generation.
async fn all_verbs(
    manager: &LocalExecutionManager,
    id: &ExecutionId,
    generation: ExecutionGeneration,
) -> Vec<(&'static str, Option<ExecutionManagerError>)> {
    let op = operation("other");
    let snapshot = ExecutionSnapshotId::new("snap").unwrap();
    let events = ExecutionEventsRequest {
        after_sequence: 0,
        limit: 1,
        wait_timeout_ms: None,
    };
    vec![
        ("start", manager.start(id, generation).await.err()),
        ("pause", manager.pause(id, generation, true).await.err()),
        ("resume", manager.resume(id, generation).await.err()),
        ("kill", manager.kill(id, generation).await.err()),
        ("restart", manager.restart(id, generation, &op).await.err()),
        (
            "update",
            manager
                .update_resources(id, generation, &op, update())
                .await
                .err(),
        ),
        (
            "snapshot",
            manager
                .create_filesystem_snapshot(id, generation, &snapshot)
                .await
                .err(),
        ),
        ("logs", manager.read_logs(id, generation).await.err()),
        (
            "processes",
            manager.list_processes(id, generation).await.err(),
        ),
        ("stats", manager.stats(id, generation).await.err()),
        ("events", manager.events(id, generation, events).await.err()),
        (
            "execute",
            manager.execute(id, generation, exec()).await.err(),
        ),
        (
            "start_process",
            manager.start_process(id, generation, exec()).await.err(),
        ),
    ]
}

#[tokio::test]
async fn every_verb_refuses_a_stale_generation_before_any_effect() {
    let world = World::new();
    let lease = world.launch().await;
    let before = std::fs::read(
        world
            .manager
            .state_path()
            .join(lease.execution_id.as_str())
            .join("record.json"),
    )
    .unwrap();
    let calls = world.probe.count("start");
    for (verb, error) in all_verbs(&world.manager, &lease.execution_id, generation(9)).await {
        assert!(
            matches!(error, Some(ExecutionManagerError::Conflict { .. })),
            "{verb}: {error:?}"
        );
    }
    assert_conflict(
        world
            .manager
            .remove(&lease.execution_id, generation(9))
            .await,
    );
    assert_eq!(world.probe.count("start"), calls);
    for call in ["pause", "resume", "kill", "update", "stop_for_restart"] {
        assert_eq!(world.probe.count(call), 0, "{call}");
    }
    let after = std::fs::read(
        world
            .manager
            .state_path()
            .join(lease.execution_id.as_str())
            .join("record.json"),
    )
    .unwrap();
    assert_eq!(before, after);
}

#[tokio::test]
async fn every_verb_knows_that_an_execution_does_not_exist() {
    let world = World::new();
    let id = execution("nobody");
    for (verb, error) in all_verbs(&world.manager, &id, generation(1)).await {
        assert!(
            matches!(error, Some(ExecutionManagerError::NotFound(_))),
            "{verb}: {error:?}"
        );
    }
    assert!(!world.manager.remove(&id, generation(1)).await.unwrap());
    assert!(!world.manager.state_path().exists());
}

#[tokio::test]
async fn verbs_that_do_not_fit_the_state_are_conflicts() {
    let world = World::new();
    let lease = world.launch().await;
    let id = &lease.execution_id;
    assert_conflict(world.manager.resume(id, generation(1)).await);
    world.manager.pause(id, generation(1), true).await.unwrap();
    assert_conflict(world.manager.pause(id, generation(2), true).await);
    assert_conflict(world.manager.start(id, generation(2)).await);
    assert_conflict(world.manager.execute(id, generation(2), exec()).await);
    let op = operation("u");
    assert_conflict(
        world
            .manager
            .update_resources(id, generation(2), &op, update())
            .await,
    );
    world.manager.kill(id, generation(2)).await.unwrap();
    assert_conflict(world.manager.start(id, generation(2)).await);
}

#[tokio::test]
async fn kill_options_that_no_exit_code_or_clock_can_hold_are_invalid() {
    let world = World::new();
    let lease = world.launch().await;
    for options in [
        KillExecutionOptions {
            signal: Some(i32::MAX),
            timeout_secs: None,
        },
        KillExecutionOptions {
            signal: Some(0),
            timeout_secs: None,
        },
        KillExecutionOptions {
            signal: Some(-9),
            timeout_secs: None,
        },
        KillExecutionOptions {
            signal: None,
            timeout_secs: Some(u64::MAX),
        },
    ] {
        match world
            .manager
            .kill_with_options(&lease.execution_id, generation(1), options)
            .await
        {
            Err(ExecutionManagerError::InvalidRequest(text)) => {
                assert!(text.contains("representable"), "{text}");
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(world.probe.count("kill"), 0);
    assert_eq!(world.stored(&lease).await.status, "running");
}

#[tokio::test]
async fn the_record_of_a_containerd_task_is_its_owners_alone() {
    let world = World::new();
    let record = task_record("e", "op", &key("c"));
    world.manager.reserve(record).await.unwrap();
    let id = execution("e");
    assert_unavailable(world.manager.kill(&id, generation(1)).await);
    assert_unavailable(world.manager.start(&id, generation(1)).await);
    assert_unavailable(world.manager.remove(&id, generation(1)).await);
    // It has no living owner, and a backend without task verbs cannot tell what became of it.
    assert_unavailable(world.manager.inspect(&id).await);
    assert_eq!(world.probe.count("inspect"), 0);
}
