//! The contract with the runtime service in another process, and what is left when that is killed.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;

use a3sbox_contract::{World, command, eventually, operation, suite};
use a3sbox_core::{
    ExecEvent, ExecRequest, ExecutionManager as _, ExecutionManagerError, ExecutionResourceUpdate,
    ExecutionSessionManager as _, ExecutionState, KillOutcome, ReconcileOutcome,
};
use a3sbox_oci::{
    ContainerOperationRequest, ContainerTarget, OciContainerState, OperationContext,
    RuntimeOperation, StateRequest,
};

const OWNER: &str = env!("CARGO_BIN_EXE_a3sbox-contract-owner");

async fn world() -> World {
    World::other_process(Path::new(OWNER)).await
}

macro_rules! other_process {
    ($($subject:ident::$case:ident;)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                suite::$subject::$case(world().await).await;
            }
        )*
    };
}

a3sbox_contract::for_each_behaviour!(other_process);

#[track_caller]
fn ready(outcome: ReconcileOutcome) -> a3sbox_core::ExecutionLease {
    match outcome {
        ReconcileOutcome::Ready(lease) => lease,
        other => panic!("{other:?} is not ready"),
    }
}

// proves: B39 N1
#[tokio::test]
async fn a_container_outlives_its_owner_and_open_sessions_do_not() {
    let mut world = world().await;
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let streaming = ExecRequest {
        streaming: true,
        stdin_streaming: true,
        ..command(&["sh", "-c", "echo session; cat >> /out/input; sleep 4714"])
    };
    let mut process = world
        .manager
        .start_process(id, generation, streaming)
        .await
        .unwrap();
    let input = process.input();
    match process.next_event().await.unwrap() {
        Some(ExecEvent::Chunk(chunk)) => assert_eq!(chunk.data, b"session\n"),
        other => panic!("{other:?}"),
    }
    let before = world.record(id);

    world.kill_owner();
    let broken = process.next_event().await;
    assert!(
        matches!(broken, Err(ExecutionManagerError::Unavailable(_))),
        "{broken:?}"
    );
    let lost = world.manager.reconcile(&launched.operation_id).await;
    assert!(
        matches!(lost, Err(ExecutionManagerError::Unavailable(_))),
        "{lost:?}"
    );
    assert_eq!(world.record(id).status, "running");

    world.start_owner().await;
    let lease = ready(
        world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap(),
    );
    assert_eq!((&lease.execution_id, lease.generation), (id, generation));
    assert_eq!(world.provider.counts().prepares, 1);
    let after = world.record(id);
    assert_eq!(after.pid, before.pid);
    assert_eq!(after.pid_start_time, before.pid_start_time);
    assert!(world.processes(id).contains(&after.pid.unwrap()));
    let inventory = world.manager.list_processes(id, generation).await.unwrap();
    assert_eq!(inventory.processes.len(), 2, "{inventory:?}");

    // The pipes of the session ended with the process that held them.
    let refused = input.write_stdin(b"late").await;
    assert!(
        matches!(refused, Err(ExecutionManagerError::Unavailable(_))),
        "{refused:?}"
    );
    let fresh = command(&["sh", "-c", "exit 3"]);
    let output = world.manager.execute(id, generation, fresh).await.unwrap();
    assert_eq!(output.exit_code, 3);
    assert_eq!(world.lines("starts"), 1);

    // It is not the new owner's child: that it ended is seen, how it ended is not.
    let killed = world.manager.kill(id, generation).await.unwrap();
    assert_eq!(killed, KillOutcome::Killed);
    let record = world.record(id);
    assert_eq!(
        (record.status.as_str(), record.exit_code),
        ("stopped", None)
    );
    let counts = world.provider.counts();
    assert_eq!((counts.drains, counts.owner_losses), (0, 1));
    world.assert_nothing_runs(Some(id));
}

// proves: B46
#[tokio::test]
async fn an_exit_that_nobody_saw_is_unknown() {
    let mut world = world().await;
    let launched = world.launch().await;
    let id = launched.id();
    world.kill_owner();
    for pid in world.processes(id) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    eventually("all have ended", || world.processes(id).is_empty()).await;
    world.start_owner().await;
    let status = world.manager.inspect(id).await.unwrap_or_else(|_| panic!());
    assert_eq!(status.state, ExecutionState::Stopped);
    let record = world.record(id);
    assert_eq!(
        (record.status.as_str(), record.exit_code),
        ("stopped", None)
    );
    let counts = world.provider.counts();
    assert_eq!(
        (counts.cleanups, counts.drains, counts.owner_losses),
        (1, 0, 1)
    );
    world.assert_nothing_runs(Some(id));
}

// proves: B45
#[tokio::test]
async fn an_exit_that_was_recorded_is_known_to_the_next_owner() {
    let mut world = world().await;
    let launched = world.launch().await;
    let id = launched.id();
    let target = world.metadata(id).oci_runtime.unwrap().target;
    let pid = i32::try_from(world.record(id).pid.unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::USR2).unwrap();
    until_stopped(&world, &target).await;
    world.kill_owner();
    world.start_owner().await;
    // The first call meets the broken stream.
    let _ = world.manager.inspect(id).await;
    let status = world.manager.inspect(id).await.unwrap();
    assert_eq!(status.state, ExecutionState::Stopped);
    assert_eq!(world.record(id).exit_code, Some(23));
    world.assert_nothing_runs(Some(id));
}

async fn until_stopped(world: &World, target: &ContainerTarget) {
    let until = std::time::Instant::now() + a3sbox_contract::DEADLINE;
    loop {
        let request = StateRequest {
            target: target.clone(),
        };
        let record = world.client().state(request).await.unwrap();
        if *record.state.status() == OciContainerState::Stopped {
            return;
        }
        assert!(std::time::Instant::now() < until, "it does not stop");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

// proves: B17 B51
#[tokio::test]
async fn lost_answers_are_replayed_by_the_next_owner() {
    let mut world = world().await;
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.faults.lose_answer(RuntimeOperation::Update);
    let update = ExecutionResourceUpdate {
        pids_limit: Some(72),
        ..ExecutionResourceUpdate::default()
    };
    world
        .manager
        .update_resources(id, generation, &operation("update"), update)
        .await
        .unwrap_err();
    let limit = world.cgroup_file(id, "pids", "pids.max");
    assert_eq!(std::fs::read_to_string(&limit).unwrap().trim(), "72");
    // Whoever runs the effect a second time overwrites this.
    std::fs::write(&limit, "55").unwrap();
    let keyed = ExecRequest {
        request_id: Some("once".to_owned()),
        ..command(&["sh", "-c", "echo ran >> /out/ran; exit 9"])
    };

    world.kill_owner();
    world.start_owner().await;
    let _ = world.manager.reconcile(&launched.operation_id).await;
    ready(
        world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap(),
    );
    assert_eq!(std::fs::read_to_string(&limit).unwrap().trim(), "55");
    assert_eq!(world.record(id).resource_limits.pids_limit, Some(72));

    world.faults.lose_answer(RuntimeOperation::Exec);
    let lost = world.manager.execute(id, generation, keyed.clone()).await;
    lost.unwrap_err();
    world.eventually_lines("ran", 1).await;
    world.kill_owner();
    world.start_owner().await;
    let _ = world.manager.reconcile(&launched.operation_id).await;
    // It ran, and what it said went with the pipes: an error, and not a second run.
    let repeated = world.manager.execute(id, generation, keyed).await;
    assert!(
        matches!(repeated, Err(ExecutionManagerError::Unavailable(_))),
        "{repeated:?}"
    );
    assert_eq!(world.lines("ran"), 1);
    world.manager.kill(id, generation).await.unwrap();
    world.assert_nothing_runs(Some(id));
}

// proves: B38
#[tokio::test]
async fn a_paused_container_stays_paused_over_the_loss_of_its_owner() {
    let mut world = world().await;
    let launched = world.launch().await;
    let id = launched.id();
    let paused = world
        .manager
        .pause(id, launched.generation(), true)
        .await
        .unwrap();
    world.kill_owner();
    assert!(world.is_frozen(id));
    world.start_owner().await;
    let _ = world.manager.reconcile(&launched.operation_id).await;
    let lease = ready(
        world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap(),
    );
    assert_eq!(lease.generation, paused.generation);
    assert!(world.is_frozen(id));
    let resumed = world.manager.resume(id, paused.generation).await.unwrap();
    assert!(!world.is_frozen(id));
    world.manager.kill(id, resumed.generation).await.unwrap();
    world.assert_nothing_runs(Some(id));
}

#[tokio::test]
async fn a_pause_that_was_not_recorded_is_what_the_kernel_says() {
    let mut world = world().await;
    let launched = world.launch().await;
    let id = launched.id();
    let target = world.metadata(id).oci_runtime.unwrap().target;
    world.kill_owner();
    // What the engine had done when its owner died.
    let v1 = world.cgroup_file(id, "freezer", "freezer.state");
    if v1.exists() {
        std::fs::write(v1, "FROZEN").unwrap();
    } else {
        std::fs::write(world.cgroup_file(id, "freezer", "cgroup.freeze"), "1").unwrap();
    }
    world.start_owner().await;
    let state = StateRequest {
        target: target.clone(),
    };
    let _ = world.client().state(state.clone()).await;
    assert!(world.client().state(state).await.unwrap().is_paused());
    let request = |name: &str| ContainerOperationRequest {
        context: OperationContext::new(a3sbox_oci::OperationId::new(name).unwrap()),
        target: target.clone(),
    };
    let paused = world.client().pause(request("repeated")).await.unwrap();
    assert!(paused.is_paused());
    world.client().resume(request("resume")).await.unwrap();
    assert!(!world.is_frozen(id));
    let again = world.client().pause(request("repeated")).await.unwrap();
    assert!(again.is_paused() && !world.is_frozen(id));
    suite_end(&world, &launched).await;
}

async fn suite_end(world: &World, launched: &a3sbox_contract::Launched) {
    let killed = world.manager.kill(launched.id(), launched.generation());
    assert_eq!(killed.await.unwrap(), KillOutcome::Killed);
    world.assert_nothing_runs(Some(launched.id()));
}
