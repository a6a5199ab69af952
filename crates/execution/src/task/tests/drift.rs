//! A runtime that is not the recorded one: refused or unknown, never adopted, never signalled.

use std::sync::Arc;

use a3sbox_core::{ExecutionId, ExecutionManager, ExecutionManagerError, ExecutionState};
use a3sbox_oci::{OciRuntimeEndpoint, RuntimeClient};

use super::{World, soon};
use crate::task::{TaskKey, TaskManager};
use crate::{LocalExecutionManager, OciLocalExecutionBackend, Ownership};

/// A running container whose owner died.
async fn orphan() -> (World, TaskKey, ExecutionId) {
    let world = World::new();
    let key = world.running("c1").await;
    let world = world.crash();
    soon(async {
        while world.store().ownership(&key) != Ownership::Free {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let record = world.manager.store.find_container(&key).unwrap().unwrap();
    let id = ExecutionId::new(record.id).unwrap();
    (world, key, id)
}

fn signals(world: &World) -> usize {
    let log = world.runtime.log();
    log.iter().filter(|call| call.starts_with("kill")).count()
}

#[tokio::test]
async fn a_container_id_that_another_container_has_is_refused() {
    let (world, key, id) = orphan().await;
    world.runtime.drift(&format!("sha256:{}", "e".repeat(64)));
    match soon(world.manager.inspect(&id)).await {
        Err(ExecutionManagerError::Internal(text)) => assert!(text.contains("digest"), "{text}"),
        other => panic!("{other:?}"),
    }
    soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap_err();
    assert_eq!(signals(&world), 0);
    assert_eq!(world.runtime.containers(), 1, "it is somebody else's");
    assert_eq!(world.stored(&key).unwrap().status, "running");
}

#[tokio::test]
async fn another_generation_of_the_runtimes_is_refused() {
    let (world, key, id) = orphan().await;
    world.runtime.replace();
    soon(world.manager.inspect(&id)).await.unwrap_err();
    soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap_err();
    assert_eq!(signals(&world), 0);
    assert_eq!(world.runtime.containers(), 1);
}

#[tokio::test]
async fn a_runtime_that_was_replaced_knows_nothing_and_the_exit_is_unknown() {
    let (world, key, id) = orphan().await;
    world.runtime.lose();
    let status = soon(world.manager.inspect(&id)).await.unwrap();
    assert_eq!(status.state, ExecutionState::Stopped);
    let deleted = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap();
    let exit = deleted.exit.unwrap();
    assert_eq!(exit.status, None);
    assert!(exit.unknown_because.is_some());
    assert_eq!(signals(&world), 0);
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_binding_of_another_endpoint_is_refused() {
    let (world, key, id) = orphan().await;
    let client = RuntimeClient::from_arc(Arc::clone(&world.runtime) as Arc<_>);
    let endpoint = OciRuntimeEndpoint::unix_socket(world.folder.path().join("other.sock")).unwrap();
    let provider = Arc::clone(&world.provider) as Arc<_>;
    let backend = OciLocalExecutionBackend::from_client(endpoint, client, provider).unwrap();
    let other = LocalExecutionManager::for_containers(
        world.folder.path().join("ns"),
        world.folder.path().join("home"),
        Arc::new(backend),
    );
    other.store.find_container(&key).unwrap().unwrap();
    let text = soon(other.inspect(&id)).await.unwrap_err().to_string();
    assert!(text.contains("another runtime endpoint"), "{text}");
    soon(other.task_recover_and_delete(&key)).await.unwrap_err();
    assert_eq!(signals(&world), 0);
    assert_eq!(world.stored(&key).unwrap().status, "running");
}

#[tokio::test]
async fn nothing_of_another_boot_is_signalled_or_believed() {
    let (world, key, id) = orphan().await;
    let record = world.stored(&key).unwrap();
    let expected = (record.state().unwrap(), record.generation().unwrap());
    world
        .manager
        .store
        .update(&id, expected, |record| {
            let managed = record.managed_execution.as_mut().unwrap();
            assert!(managed.boot_id.is_some(), "the record remembers its boot");
            managed.boot_id = Some("another".to_owned());
        })
        .unwrap();
    // The runtime still says that it runs, as one with its state on a disk would.
    let status = soon(world.manager.inspect(&id)).await.unwrap();
    assert_eq!(status.state, ExecutionState::Stopped);
    let deleted = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap();
    assert_eq!(deleted.exit.unwrap().status, None);
    assert_eq!(signals(&world), 0);
    world.assert_nothing_left();
}
