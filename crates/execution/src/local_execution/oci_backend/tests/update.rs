//! Live resource updates through the manager.

use a3sbox_core::{
    ExecutionIsolation, ExecutionManager, ExecutionResourceUpdate, ReconcileOutcome,
};
use a3sbox_oci::{ExitStatus, RuntimeOperation};

use super::{World, assert_conflict, metadata, operation, request};

const MIB: u64 = 1024 * 1024;

fn pids(limit: u64) -> ExecutionResourceUpdate {
    ExecutionResourceUpdate {
        pids_limit: Some(limit),
        ..Default::default()
    }
}

#[tokio::test]
async fn resource_update_persists_complete_intent_and_replays_locally() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Microvm).await;
    let (id, generation) = (launched.id(), launched.generation());
    let operation_id = operation("resource-update-live");
    let update = ExecutionResourceUpdate {
        memory_reservation: Some(64 * MIB),
        pids_limit: Some(64),
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        cpuset_cpus: Some("0-1".to_owned()),
        ..Default::default()
    };
    let lease = world
        .manager
        .update_resources(id, generation, &operation_id, update.clone())
        .await
        .unwrap();
    assert_eq!(lease.generation, generation);
    let updates = world.runtime.recorded().updates;
    assert_eq!(
        (updates.len(), world.runtime.update_effects().len()),
        (1, 1)
    );
    let sent = &updates[0].resources;
    let memory = sent.memory().unwrap();
    assert_eq!((memory.limit(), memory.swap()), (None, None));
    assert_eq!(memory.reservation(), Some(64 * 1024 * 1024));
    let cpu = sent.cpu().clone().unwrap();
    assert_eq!(
        (cpu.shares(), cpu.quota(), cpu.period()),
        (Some(512), Some(50_000), Some(100_000))
    );
    assert_eq!(cpu.cpus().as_deref(), Some("0-1"));
    assert_eq!(sent.pids().unwrap().limit(), 64);
    assert!(sent.devices().is_none());

    let record = world.record(id);
    assert_eq!(record.status, "running");
    assert_eq!(record.resource_limits.cpu_shares, Some(512));
    assert_eq!(
        metadata(&record).request.config.resource_limits,
        record.resource_limits
    );
    let last = metadata(&record).last_resource_update.clone().unwrap();
    assert_eq!(
        (last.operation_id, last.update),
        (operation_id.clone(), update.clone())
    );

    let again = world
        .manager
        .update_resources(id, generation, &operation_id, update.clone());
    again.await.unwrap();
    let changed = ExecutionResourceUpdate {
        cpu_shares: Some(1024),
        ..update
    };
    assert_conflict(
        world
            .manager
            .update_resources(id, generation, &operation_id, changed)
            .await,
    );
    assert_eq!(world.runtime.recorded().updates.len(), 1);

    let replayed = world
        .manager
        .create_and_start(request(ExecutionIsolation::Microvm), &launched.operation_id)
        .await
        .unwrap();
    assert_eq!(
        (&replayed.execution_id, replayed.generation),
        (id, generation)
    );
    assert_eq!(world.runtime.recorded().creates.len(), 1);
}

#[tokio::test]
async fn lost_resource_update_response_recovers_with_the_same_runtime_mutation() {
    let mut world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let (id, generation) = (launched.id(), launched.generation());
    let operation_id = operation("resource-update-lost");
    world.runtime.lose_answer(RuntimeOperation::Update);
    let lost = world
        .manager
        .update_resources(id, generation, &operation_id, pids(72))
        .await;
    lost.unwrap_err();
    assert_eq!(world.record(id).status, "updating_resources");
    assert_eq!(world.runtime.update_effects().len(), 1);
    let changed = world
        .manager
        .update_resources(id, generation, &operation_id, pids(73))
        .await;
    assert_conflict(changed);
    assert_eq!(world.runtime.recorded().updates.len(), 1);

    world.reopen();
    let outcome = world
        .manager
        .reconcile(&launched.operation_id)
        .await
        .unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Ready(_)), "{outcome:?}");
    let record = world.record(id);
    assert_eq!(record.status, "running");
    assert_eq!(record.resource_limits.pids_limit, Some(72));
    let updates = world.runtime.recorded().updates;
    assert_eq!(
        (updates.len(), world.runtime.update_effects().len()),
        (2, 1)
    );
    assert_eq!(updates[0].context, updates[1].context);
}

#[tokio::test]
async fn resource_update_racing_natural_exit_settles_the_terminal_record() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.stop(
        &launched.container_id(),
        Some(ExitStatus::exited(17).unwrap()),
    );
    let operation_id = operation("resource-update-late");
    let (id, generation) = (launched.id(), launched.generation());
    let updated = world
        .manager
        .update_resources(id, generation, &operation_id, pids(64))
        .await;
    updated.unwrap_err();
    let record = world.record(launched.id());
    assert_eq!(
        (record.status.as_str(), record.exit_code),
        ("stopped", Some(17))
    );
    assert!(metadata(&record).pending_operation.is_none());
    let outcome = world
        .manager
        .reconcile(&launched.operation_id)
        .await
        .unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Failed), "{outcome:?}");
}
