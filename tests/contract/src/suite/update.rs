//! Limits of a running container.

use a3sbox_core::{ExecutionManager as _, ExecutionResourceUpdate, ReconcileOutcome};
use a3sbox_oci::RuntimeOperation;

use super::launch::end;
use super::{assert_conflict, ready};
use crate::{World, eventually, operation};

fn pids(limit: u64) -> ExecutionResourceUpdate {
    ExecutionResourceUpdate {
        pids_limit: Some(limit),
        ..ExecutionResourceUpdate::default()
    }
}

fn pids_max(world: &World, id: &a3sbox_core::ExecutionId) -> String {
    let path = world.cgroup_file(id, "pids", "pids.max");
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

// proves: B50
pub async fn limits_change_once_per_operation(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let operation_id = operation("resource-update-live");
    let update = ExecutionResourceUpdate {
        memory_reservation: Some(64 << 20),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        ..pids(64)
    };
    let lease = world
        .manager
        .update_resources(id, generation, &operation_id, update.clone())
        .await
        .unwrap();
    assert_eq!(lease.generation, generation);
    assert_eq!(pids_max(&world, id), "64");
    let completion = world.metadata(id).last_resource_update.unwrap();
    assert_eq!(completion.operation_id, operation_id);
    assert_eq!(completion.update, update);
    assert_eq!(world.record(id).resource_limits.pids_limit, Some(64));

    let again = world
        .manager
        .update_resources(id, generation, &operation_id, update.clone())
        .await;
    again.unwrap();
    let other = ExecutionResourceUpdate {
        pids_limit: Some(65),
        ..update
    };
    assert_conflict(
        world
            .manager
            .update_resources(id, generation, &operation_id, other)
            .await,
    );
    assert_eq!(world.faults.calls(RuntimeOperation::Update), 1);
    assert_eq!(pids_max(&world, id), "64");
    end(&world, &launched).await;
}

// proves: B51
pub async fn a_lost_answer_is_settled_by_the_same_operation(mut world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let operation_id = operation("resource-update-lost");
    world.faults.lose_answer(RuntimeOperation::Update);
    world
        .manager
        .update_resources(id, generation, &operation_id, pids(72))
        .await
        .unwrap_err();
    assert_eq!(world.record(id).status, "updating_resources");
    assert_eq!(pids_max(&world, id), "72");
    assert_conflict(
        world
            .manager
            .update_resources(id, generation, &operation_id, pids(73))
            .await,
    );
    // Whoever runs the effect a second time overwrites this.
    std::fs::write(world.cgroup_file(id, "pids", "pids.max"), "55").unwrap();
    world.reopen();
    ready(
        world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap(),
    );
    assert_eq!(pids_max(&world, id), "55");
    assert_eq!(world.record(id).status, "running");
    assert_eq!(world.record(id).resource_limits.pids_limit, Some(72));
    let updates = world.faults.updates();
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[0], updates[1]);
    end(&world, &launched).await;
}

// proves: B52
pub async fn an_exit_wins_over_an_update(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let pid = world.record(id).pid.unwrap();
    super::kill::send(pid, rustix::process::Signal::USR1);
    eventually("the container ends", || world.processes(id).is_empty()).await;
    world
        .manager
        .update_resources(id, generation, &operation("update"), pids(64))
        .await
        .unwrap_err();
    let record = world.record(id);
    assert_eq!(
        (record.status.as_str(), record.exit_code),
        ("stopped", Some(17))
    );
    assert!(world.metadata(id).pending_operation.is_none());
    let outcome = world.manager.reconcile(&launched.operation_id).await;
    assert!(matches!(outcome.unwrap(), ReconcileOutcome::Failed));
    world.assert_nothing_runs(Some(id));
}
