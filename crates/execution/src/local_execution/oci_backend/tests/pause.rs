//! Pause and resume.

use a3sbox_core::{ExecutionIsolation, ExecutionManager, ReconcileOutcome};
use a3sbox_oci::{ContainerOperationRequest, RuntimeClient, RuntimeOperation};
use a3sbox_testkit::{GENERATION, RuntimeReport};

use super::super::super::RuntimeUpdate;
use super::super::operation_context;
use super::{World, assert_unavailable, metadata, next, operation};
use crate::ManagedExecutionState;

#[tokio::test]
async fn pause_resume_use_exact_runtime_target_and_unique_box_generations() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let id = launched.id();
    let binding = metadata(&world.record(id)).oci_runtime.clone().unwrap();
    let first = world
        .manager
        .pause(id, launched.generation(), true)
        .await
        .unwrap();
    let resumed = world.manager.resume(id, first.generation).await.unwrap();
    let second = world
        .manager
        .pause(id, resumed.generation, true)
        .await
        .unwrap();
    assert_eq!(first.generation, next(launched.generation()));
    assert_eq!(resumed.generation, next(first.generation));
    assert_eq!(second.generation, next(resumed.generation));

    let recorded = world.runtime.recorded();
    assert_eq!((recorded.pauses.len(), recorded.resumes.len()), (2, 1));
    let requests: Vec<_> = recorded.pauses.iter().chain(&recorded.resumes).collect();
    assert!(
        requests
            .iter()
            .all(|request| request.target == binding.target)
    );
    let ids: std::collections::BTreeSet<_> = requests
        .iter()
        .map(|request| &request.context.operation_id)
        .collect();
    assert_eq!(ids.len(), 3);
    let record = world.record(id);
    assert_eq!(record.status, ManagedExecutionState::Paused.as_status());
    assert_eq!(metadata(&record).oci_runtime.as_ref(), Some(&binding));
    let container = world.runtime.container(&launched.container_id()).unwrap();
    assert!(container.is_paused());
    assert_eq!(container.generation, GENERATION);
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 1));
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 0));
}

#[tokio::test]
async fn pause_requires_advertised_sdk_operation_before_runtime_mutation() {
    let world = World::with_report(RuntimeReport::default().without(RuntimeOperation::Pause));
    let launched = world.launch(ExecutionIsolation::Microvm).await;
    let paused = world
        .manager
        .pause(launched.id(), launched.generation(), true)
        .await;
    assert_unavailable(paused, "does not advertise pause");
    assert!(world.runtime.recorded().pauses.is_empty());
    let record = world.record(launched.id());
    assert_eq!(record.status, "running");
    assert_eq!(metadata(&record).generation, launched.generation());
    assert!(metadata(&record).pending_operation.is_none());
}

#[tokio::test]
async fn pause_retry_after_rollback_uses_a_new_durable_mutation_identity() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.refuse_pause();
    world
        .manager
        .pause(launched.id(), launched.generation(), true)
        .await
        .unwrap_err();
    let record = world.record(launched.id());
    assert_eq!(record.status, "running");
    assert_eq!(metadata(&record).generation, launched.generation());
    let paused = world
        .manager
        .pause(launched.id(), launched.generation(), true)
        .await
        .unwrap();
    assert_eq!(paused.generation, next(launched.generation()));
    let pauses = world.runtime.recorded().pauses;
    assert_eq!(pauses.len(), 2);
    assert_ne!(
        pauses[0].context.operation_id,
        pauses[1].context.operation_id
    );
}

#[tokio::test]
async fn resume_requires_advertised_sdk_operation_before_runtime_mutation() {
    let world = World::with_report(RuntimeReport::default().without(RuntimeOperation::Resume));
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let paused = world
        .manager
        .pause(launched.id(), launched.generation(), true)
        .await
        .unwrap();
    let resumed = world.manager.resume(launched.id(), paused.generation).await;
    assert_unavailable(resumed, "does not advertise resume");
    assert!(world.runtime.recorded().resumes.is_empty());
    let record = world.record(launched.id());
    assert_eq!(record.status, "paused");
    assert_eq!(metadata(&record).generation, paused.generation);
}

#[tokio::test]
async fn reopened_backend_reconciles_lost_pause_and_resume_responses_without_replay() {
    let mut world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let (id, mut generation) = (launched.id(), launched.generation());
    let binding = metadata(&world.record(id)).oci_runtime.clone().unwrap();
    let client = RuntimeClient::from_arc(world.runtime.clone());
    for paused in [true, false] {
        let claim_id = operation(if paused {
            "claimed-pause"
        } else {
            "claimed-resume"
        });
        let (from, to, label, verb, claim) = if paused {
            (
                ManagedExecutionState::Running,
                ManagedExecutionState::Pausing,
                "pause",
                RuntimeOperation::Pause,
                RuntimeUpdate::PauseClaim {
                    keep_memory: true,
                    operation_id: claim_id.clone(),
                },
            )
        } else {
            (
                ManagedExecutionState::Paused,
                ManagedExecutionState::Resuming,
                "resume",
                RuntimeOperation::Resume,
                RuntimeUpdate::ResumeClaim(claim_id.clone()),
            )
        };
        let record = world.record(id);
        world
            .manager
            .transition(&record, from, to, claim)
            .await
            .unwrap();
        let payload = (&binding.target, paused);
        let request = ContainerOperationRequest {
            context: operation_context(claim_id.as_str(), generation, label, payload).unwrap(),
            target: binding.target.clone(),
        };
        world.runtime.lose_answer(verb);
        let lost = if paused {
            client.pause(request).await
        } else {
            client.resume(request).await
        };
        lost.unwrap_err();
        world.reopen();
        let outcome = world
            .manager
            .reconcile(&launched.operation_id)
            .await
            .unwrap();
        let ReconcileOutcome::Ready(lease) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(lease.generation, next(generation));
        generation = lease.generation;
        let recorded = world.runtime.recorded();
        assert_eq!(
            (recorded.pauses.len(), recorded.resumes.len()),
            (1, usize::from(!paused))
        );
    }
    let record = world.record(id);
    assert_eq!(record.status, "running");
    assert_eq!(metadata(&record).oci_runtime.as_ref(), Some(&binding));
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 1));
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 0));
}
