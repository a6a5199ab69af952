//! Verbs that meet on one execution.

use std::time::Duration;

use a3sbox_core::{ExecutionState, KillOutcome, ReconcileOutcome};

use super::probe::Runtime;
use super::*;

/// Far beyond what anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_caller_that_hangs_up_does_not_lose_the_effect() {
    let world = World::new();
    let gate = world.probe.gate("start");
    let reserved = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    let id = reserved.execution_id.clone();
    let call = {
        let (manager, id) = (world.manager.clone(), id.clone());
        tokio::spawn(async move { manager.start(&id, generation(1)).await })
    };
    gate.entered().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    gate.open();
    let settled = async {
        while world.manager.get(&id).await.unwrap().unwrap().status != "running" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, settled).await.unwrap();
}

#[tokio::test]
async fn a_start_under_way_is_not_taken_for_an_interrupted_one() {
    let world = World::new();
    let gate = world.probe.gate("start");
    let reserved = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    let id = reserved.execution_id.clone();
    let call = {
        let (manager, id) = (world.manager.clone(), id.clone());
        tokio::spawn(async move { manager.start(&id, generation(1)).await })
    };
    gate.entered().await;
    assert!(matches!(
        world.manager.reconcile(&create_op()).await,
        Ok(ReconcileOutcome::Creating)
    ));
    let status = world.manager.inspect(&id).await.unwrap();
    assert_eq!(status.state, ExecutionState::Creating);
    assert_conflict(world.manager.start(&id, generation(1)).await);
    gate.open();
    let lease = call.await.unwrap().unwrap();
    assert_eq!(world.stored(&lease).await.status, "running");
}

#[tokio::test]
async fn a_kill_does_not_wait_for_a_start_and_nothing_runs_afterwards() {
    let world = World::new();
    let gate = world.probe.gate("start");
    let reserved = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    let id = reserved.execution_id.clone();
    let call = {
        let (manager, id) = (world.manager.clone(), id.clone());
        tokio::spawn(async move { manager.start(&id, generation(1)).await })
    };
    gate.entered().await;
    world.manager.kill(&id, generation(1)).await.unwrap();
    gate.open();
    assert_conflict(call.await.unwrap());
    assert_eq!(world.probe.runtime(), Runtime::Absent);
    let stored = world.manager.get(&id).await.unwrap().unwrap();
    assert_eq!(stored.status, "stopped");
}

#[tokio::test]
async fn a_kill_does_not_wait_for_a_pause() {
    let world = World::new();
    let lease = world.launch().await;
    let gate = world.probe.gate("pause");
    let id = lease.execution_id.clone();
    let call = {
        let (manager, id) = (world.manager.clone(), id.clone());
        tokio::spawn(async move { manager.pause(&id, generation(1), true).await })
    };
    gate.entered().await;
    let outcome = world.manager.kill(&id, generation(1)).await.unwrap();
    assert_eq!(outcome, KillOutcome::Killed);
    gate.open();
    call.await.unwrap().unwrap_err();
    assert_eq!(world.stored(&lease).await.status, "stopped");
}

#[tokio::test]
async fn of_two_verbs_at_once_one_gets_the_claim() {
    let world = World::new();
    let lease = world.launch().await;
    let gate = world.probe.gate("pause");
    let id = lease.execution_id.clone();
    let call = {
        let (manager, id) = (world.manager.clone(), id.clone());
        tokio::spawn(async move { manager.pause(&id, generation(1), true).await })
    };
    gate.entered().await;
    assert_conflict(world.manager.pause(&id, generation(1), true).await);
    assert_conflict(
        world
            .manager
            .restart(&id, generation(1), &operation("r"))
            .await,
    );
    gate.open();
    call.await.unwrap().unwrap();
    assert_eq!(world.probe.count("pause"), 1);
}

#[tokio::test]
async fn two_kills_at_once_both_succeed() {
    let world = World::new();
    let lease = world.launch().await;
    let gate = world.probe.gate("kill");
    let id = lease.execution_id.clone();
    let call = {
        let (manager, id) = (world.manager.clone(), id.clone());
        tokio::spawn(async move { manager.kill(&id, generation(1)).await })
    };
    gate.entered().await;
    world.manager.kill(&id, generation(1)).await.unwrap();
    gate.open();
    call.await.unwrap().unwrap();
    assert_eq!(world.stored(&lease).await.status, "stopped");
}
