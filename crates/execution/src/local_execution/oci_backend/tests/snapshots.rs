//! The freezer of a filesystem snapshot.

use a3sbox_core::{ExecutionIsolation, ExecutionManager, ExecutionSnapshotId};

use super::super::super::RuntimeUpdate;
use super::{World, metadata, operation};
use crate::ManagedExecutionState;

#[tokio::test]
async fn running_snapshot_uses_a_durable_freezer_identity_per_attempt() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let snapshot = ExecutionSnapshotId::new("attempted").unwrap();
    for attempt in 1..=2 {
        let error = world
            .manager
            .create_filesystem_snapshot(launched.id(), launched.generation(), &snapshot)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("has no populated managed rootfs to snapshot"),
            "{text}"
        );
        let recorded = world.runtime.recorded();
        assert_eq!(
            (recorded.pauses.len(), recorded.resumes.len()),
            (attempt, attempt)
        );
        let record = world.record(launched.id());
        assert_eq!(record.status, "running");
        assert_eq!(metadata(&record).generation, launched.generation());
        assert!(metadata(&record).pending_operation.is_none());
    }
    let recorded = world.runtime.recorded();
    let requests: Vec<_> = recorded.pauses.iter().chain(&recorded.resumes).collect();
    assert!(
        requests
            .iter()
            .all(|request| request.target == requests[0].target)
    );
    let ids: std::collections::BTreeSet<_> = requests
        .iter()
        .map(|request| &request.context.operation_id)
        .collect();
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn snapshot_recovery_does_not_replay_a_completed_pause_after_thaw() {
    let mut world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let record = world.record(launched.id());
    let claim = RuntimeUpdate::SnapshotClaim {
        snapshot_id: ExecutionSnapshotId::new("thawed").unwrap(),
        source_state: ManagedExecutionState::Running,
        operation_id: operation("snapshot"),
    };
    let (from, to) = (
        ManagedExecutionState::Running,
        ManagedExecutionState::Snapshotting,
    );
    let claimed = world
        .manager
        .transition(&record, from, to, claim)
        .await
        .unwrap();
    world.manager.backend.pause(&claimed, true).await.unwrap();
    let frozen = world
        .manager
        .mark_snapshot_freezer_applied(&claimed)
        .await
        .unwrap();
    world.manager.backend.resume(&frozen).await.unwrap();
    world.reopen();
    let error = world
        .manager
        .reconcile(&launched.operation_id)
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("was thawed before filesystem snapshot"),
        "{text}"
    );
    let recorded = world.runtime.recorded();
    assert_eq!((recorded.pauses.len(), recorded.resumes.len()), (1, 1));
    let record = world.record(launched.id());
    assert_eq!(record.status, "running");
    assert_eq!(metadata(&record).generation, launched.generation());
    assert!(metadata(&record).pending_operation.is_none());
}
