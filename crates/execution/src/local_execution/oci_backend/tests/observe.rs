//! Processes, statistics and events.

use a3sbox_core::{
    ExecutionEventsRequest, ExecutionIsolation, ExecutionManager, ExecutionResourceUpdate,
};
use a3sbox_oci::{IO_READ_BYTES_METRIC, RuntimeOperation};
use a3sbox_testkit::RuntimeReport;

use super::{World, assert_internal, assert_unavailable, metadata, operation};

const EVENTS: ExecutionEventsRequest = ExecutionEventsRequest {
    after_sequence: 0,
    limit: 16,
    wait_timeout_ms: Some(250),
};

#[tokio::test]
async fn exact_generation_processes_stats_and_events_use_the_public_sdk() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let (id, generation) = (launched.id(), launched.generation());
    let target = metadata(&world.record(id))
        .oci_runtime
        .clone()
        .unwrap()
        .target;

    let inventory = world.manager.list_processes(id, generation).await.unwrap();
    assert_eq!(
        (&inventory.execution_id, inventory.generation),
        (id, generation)
    );
    assert_eq!(inventory.processes.len(), 1);
    assert_eq!(inventory.processes[0].process_id, "init");
    assert_eq!(inventory.processes[0].pid, Some(4242));
    let stats = world.manager.stats(id, generation).await.unwrap();
    assert_eq!(&stats.execution_id, id);
    assert_eq!(stats.cpu.usage_ns, 100);
    assert_eq!(stats.memory.limit_bytes, Some(128 * 1024 * 1024));
    assert_eq!(stats.metrics[IO_READ_BYTES_METRIC], 4096);
    let batch = world.manager.events(id, generation, EVENTS).await.unwrap();
    assert_eq!((&batch.execution_id, batch.generation), (id, generation));
    let sequences: Vec<_> = batch.events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, [5, 8]);
    assert_eq!(batch.events[1].process_id.as_deref(), Some("init"));
    assert_eq!(batch.next_sequence, 8);

    let recorded = world.runtime.recorded();
    assert_eq!(recorded.processes[0].target, target);
    assert_eq!(recorded.stats[0].target, target);
    assert_eq!(recorded.events[0].container.as_ref(), Some(&target));
    assert_eq!(recorded.events[0].wait_timeout_ms, Some(250));
}

#[tokio::test]
async fn paused_exact_generation_remains_observable() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let paused = world
        .manager
        .pause(launched.id(), launched.generation(), true)
        .await
        .unwrap();
    let inventory = world
        .manager
        .list_processes(launched.id(), paused.generation)
        .await
        .unwrap();
    let stats = world
        .manager
        .stats(launched.id(), paused.generation)
        .await
        .unwrap();
    for (id, generation) in [
        (&inventory.execution_id, inventory.generation),
        (&stats.execution_id, stats.generation),
    ] {
        assert_eq!((id, generation), (launched.id(), paused.generation));
    }
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.processes.len(), recorded.stats.len()), (1, 1));
}

#[tokio::test]
async fn observability_rejects_runtime_target_and_event_order_drift() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let (id, generation) = (launched.id(), launched.generation());
    world.runtime.misorder_events();
    assert_internal(
        world.manager.events(id, generation, EVENTS).await,
        "sequence",
    );
    world.runtime.drift();
    assert_internal(
        world.manager.list_processes(id, generation).await,
        "process target",
    );
    assert_internal(world.manager.stats(id, generation).await, "stats target");
}

#[tokio::test]
async fn new_runtime_operations_require_advertised_capabilities_before_dispatch() {
    for missing in [
        RuntimeOperation::Processes,
        RuntimeOperation::Stats,
        RuntimeOperation::Events,
        RuntimeOperation::Update,
    ] {
        let world = World::with_report(RuntimeReport::default().without(missing));
        let launched = world.launch(ExecutionIsolation::Sandbox).await;
        let (id, generation) = (launched.id(), launched.generation());
        let needle = format!("does not advertise {missing}");
        match missing {
            RuntimeOperation::Processes => {
                assert_unavailable(world.manager.list_processes(id, generation).await, &needle);
            }
            RuntimeOperation::Stats => {
                assert_unavailable(world.manager.stats(id, generation).await, &needle);
            }
            RuntimeOperation::Events => {
                assert_unavailable(world.manager.events(id, generation, EVENTS).await, &needle);
            }
            _ => {
                let update = ExecutionResourceUpdate {
                    pids_limit: Some(64),
                    ..Default::default()
                };
                let operation_id = operation("update");
                let updated = world
                    .manager
                    .update_resources(id, generation, &operation_id, update)
                    .await;
                assert_unavailable(updated, &needle);
            }
        }
        let recorded = world.runtime.recorded();
        assert!(recorded.processes.is_empty() && recorded.stats.is_empty());
        assert!(recorded.events.is_empty() && recorded.updates.is_empty());
        assert_eq!(world.record(id).status, "running");
    }
}
