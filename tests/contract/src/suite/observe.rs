//! What can be seen of a container.

use a3sbox_core::{ExecutionEventKind, ExecutionEventsRequest, ExecutionManager as _};

use super::launch::end;
use crate::World;

// proves: B48
pub async fn processes_statistics_and_events(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let inventory = world.manager.list_processes(id, generation).await.unwrap();
    assert_eq!(
        (&inventory.execution_id, inventory.generation),
        (id, generation)
    );
    let [init] = inventory.processes.as_slice() else {
        panic!("{:?}", inventory.processes)
    };
    assert_eq!(init.process_id, "init");
    assert_eq!(init.pid, world.record(id).pid);

    let stats = world.manager.stats(id, generation).await.unwrap();
    assert!(stats.process_count >= 1);
    assert!(stats.cpu.usage_ns > 0);
    assert!(stats.memory.usage_bytes > 0);

    let request = ExecutionEventsRequest {
        after_sequence: 0,
        limit: 16,
        wait_timeout_ms: Some(250),
    };
    let batch = world.manager.events(id, generation, request).await.unwrap();
    let kinds: Vec<_> = batch.events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            ExecutionEventKind::ContainerCreating,
            ExecutionEventKind::ContainerCreated,
            ExecutionEventKind::ContainerStarted,
        ]
    );
    assert!(batch.validate_after(0).is_ok());
    end(&world, &launched).await;
}
