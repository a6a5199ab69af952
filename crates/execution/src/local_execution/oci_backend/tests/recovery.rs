//! Interrupted creates and starts.

use std::collections::HashMap;

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionIsolation, ExecutionManager, ReconcileOutcome,
};
use a3sbox_oci::oci_spec::runtime::{ContainerState, StateBuilder};
use a3sbox_oci::{ContainerRecord, DriverKind, IsolationClass, RuntimeOperation};
use a3sbox_testkit::{ATTACHMENTS_DIGEST, CONFIG_DIGEST, GENERATION};

use super::super::super::{RuntimeUpdate, build_managed_record};
use super::super::runtime_container_id;
use super::{World, metadata, operation, request};
use crate::ManagedExecutionState;

#[tokio::test]
async fn lost_start_response_reconciles_the_existing_generation_without_duplicate_create() {
    let world = World::new();
    world.runtime.lose_answer(RuntimeOperation::Start);
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 1));
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 0));
    let record = world.record(launched.id());
    assert_eq!(record.status, "running");
    assert!(metadata(&record).oci_runtime.is_some());
}

#[tokio::test]
async fn log_projection_is_ready_before_start_and_created_state_recovers_without_duplicate_create()
{
    let world = World::new();
    world.provider.refuse_projection(true);
    let operation_id = operation("projection");
    let error = world
        .manager
        .create_and_start(request(ExecutionIsolation::Sandbox), &operation_id)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("log projection"), "{error}");
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 0));
    assert!(world.provider.counts().ensures >= 1);

    world.provider.refuse_projection(false);
    let outcome = world.manager.reconcile(&operation_id).await.unwrap();
    let ReconcileOutcome::Ready(lease) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(lease.generation, ExecutionGeneration::INITIAL);
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 1));
    assert!(world.provider.counts().ensures >= 2);
}

#[tokio::test]
async fn lost_create_response_starts_the_existing_generation_without_duplicate_create() {
    let world = World::new();
    world.runtime.lose_answer(RuntimeOperation::Create);
    let launched = world.launch(ExecutionIsolation::Microvm).await;
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 1));
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 0));
    let record = world.record(launched.id());
    assert_eq!(record.status, "running");
    let binding = metadata(&record).oci_runtime.as_ref().unwrap();
    assert_eq!(binding.target.generation, Some(GENERATION));
}

#[tokio::test]
async fn interrupted_starting_record_starts_created_runtime_without_duplicate_create() {
    let world = World::new();
    let id = ExecutionId::new("interrupted-start").unwrap();
    let operation_id = operation("interrupted");
    let record = build_managed_record(
        &world.home(),
        &id,
        operation_id.clone(),
        request(ExecutionIsolation::Microvm),
        chrono::Utc::now(),
    )
    .unwrap();
    let record = world.manager.reserve(record).await.unwrap().into_record();
    let (from, to) = (
        ManagedExecutionState::Created,
        ManagedExecutionState::Starting,
    );
    world
        .manager
        .transition(&record, from, to, RuntimeUpdate::None)
        .await
        .unwrap();
    let state = StateBuilder::default()
        .version("1.3.0")
        .id(runtime_container_id(&id).unwrap().as_str())
        .status(ContainerState::Created)
        .pid(4242)
        .bundle("/fake/runtime/bundle")
        .annotations(HashMap::new())
        .build()
        .unwrap();
    world.runtime.plant(&ContainerRecord {
        state,
        generation: GENERATION,
        driver: DriverKind::LibkrunWhpx,
        isolation: IsolationClass::DedicatedVm,
        config_digest: CONFIG_DIGEST.to_owned(),
        attachments_digest: Some(ATTACHMENTS_DIGEST.to_owned()),
    });
    let outcome = world.manager.reconcile(&operation_id).await.unwrap();
    let ReconcileOutcome::Ready(lease) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(lease.execution_id, id);
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (0, 1));
    assert_eq!(world.provider.counts().prepares, 0);
    let record = world.record(&id);
    assert_eq!(record.status, "running");
    let binding = metadata(&record).oci_runtime.as_ref().unwrap();
    assert_eq!(binding.target.generation, Some(GENERATION));
}
