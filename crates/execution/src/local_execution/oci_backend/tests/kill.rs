//! Kill, natural exit, and the loss of an owner.

use a3sbox_core::{
    ExecutionIsolation, ExecutionManager, ExecutionState, KillExecutionOptions, KillOutcome,
};
use a3sbox_oci::{DeleteMode, ExitStatus};

use super::super::{DEFAULT_KILL_SIGNAL, operation_context};
use super::{World, assert_invalid, metadata};

fn with_signal(signal: i32, timeout_secs: Option<u64>) -> KillExecutionOptions {
    KillExecutionOptions {
        signal: Some(signal),
        timeout_secs,
    }
}

#[tokio::test]
async fn reopened_backend_kills_with_persisted_signal_and_preserves_exact_exit() {
    let mut world = World::new();
    let launched = world.launch(ExecutionIsolation::Microvm).await;
    let (id, generation) = (launched.id(), launched.generation());
    world.reopen();
    let status = world.manager.inspect(id).await.unwrap();
    assert_eq!(status.state, ExecutionState::Running);
    assert_eq!(world.runtime.recorded().creates.len(), 1);
    let refused = world
        .manager
        .kill_with_options(id, generation, with_signal(i32::MAX, None));
    assert_invalid(refused.await, "representable");
    assert!(world.runtime.recorded().kills.is_empty());

    let killed = world
        .manager
        .kill_with_options(id, generation, with_signal(15, None))
        .await;
    assert_eq!(killed.unwrap(), KillOutcome::Killed);
    let recorded = world.runtime.recorded();
    assert_eq!(recorded.kills, [15]);
    assert_eq!(recorded.deletes, [DeleteMode::StoppedOnly]);
    assert_eq!(world.runtime.container_count(), 0);
    let counts = world.provider.counts();
    assert_eq!((counts.cleanups, counts.drains), (1, 1));
    let record = world.record(id);
    assert_eq!(record.exit_code, Some(143));
    assert_eq!(record.status, "stopped");
    assert!(metadata(&record).oci_runtime.is_none());
    let again = world.manager.kill(id, generation).await.unwrap();
    assert_eq!(again, KillOutcome::AlreadyStopped);
}

#[tokio::test]
async fn reopened_backend_observes_natural_terminal_status_before_stopped_only_delete() {
    let mut world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.stop(
        &launched.container_id(),
        Some(ExitStatus::exited(23).unwrap()),
    );
    world.reopen();
    let status = world.manager.inspect(launched.id()).await.unwrap();
    assert_eq!(status.state, ExecutionState::Stopped);
    assert_eq!(world.record(launched.id()).exit_code, Some(23));
    assert_eq!(world.runtime.recorded().deletes, [DeleteMode::StoppedOnly]);
    assert_eq!(world.runtime.container_count(), 0);
    let counts = world.provider.counts();
    assert_eq!(
        (counts.cleanups, counts.drains, counts.owner_losses),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn reopened_backend_cleans_stopped_generation_without_inventing_exit_status() {
    let mut world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.stop(&launched.container_id(), None);
    world.reopen();
    let status = world.manager.inspect(launched.id()).await.unwrap();
    assert_eq!(status.state, ExecutionState::Stopped);
    let record = world.record(launched.id());
    assert_eq!(
        (record.exit_code, record.status.as_str()),
        (None, "stopped")
    );
    assert!(metadata(&record).oci_runtime.is_none());
    assert_eq!(world.runtime.recorded().deletes, [DeleteMode::StoppedOnly]);
    assert_eq!(world.runtime.container_count(), 0);
    let counts = world.provider.counts();
    assert_eq!(
        (counts.cleanups, counts.drains, counts.owner_losses),
        (1, 0, 1)
    );
}

#[tokio::test]
async fn graceful_kill_timeout_escalates_through_a_distinct_sdk_signal() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let (id, generation) = (launched.id(), launched.generation());
    world.runtime.ignore_other_signals();
    let killed = world
        .manager
        .kill_with_options(id, generation, with_signal(15, Some(0)))
        .await;
    assert_eq!(killed.unwrap(), KillOutcome::Killed);
    let recorded = world.runtime.recorded();
    assert_eq!(recorded.kills, [15, DEFAULT_KILL_SIGNAL]);
    let named = |signal: i32| operation_context(id.as_str(), generation, "kill", signal).unwrap();
    assert_ne!(named(15).operation_id, named(9).operation_id);
    assert_eq!(world.record(id).exit_code, Some(137));
    assert_eq!(recorded.deletes, [DeleteMode::StoppedOnly]);
    assert_eq!(world.runtime.container_count(), 0);
}

#[tokio::test]
async fn a_refused_signal_to_a_paused_container_is_let_through() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let paused = world
        .manager
        .pause(launched.id(), launched.generation(), true)
        .await
        .unwrap();
    world.runtime.ignore_other_signals();
    let options = with_signal(15, Some(0));
    world
        .manager
        .kill_with_options(launched.id(), paused.generation, options)
        .await
        .unwrap();
    let recorded = world.runtime.recorded();
    assert_eq!(recorded.resumes.len(), 1);
    assert_eq!(recorded.kills, [15, 9]);
    assert_eq!(world.record(launched.id()).exit_code, Some(137));
}
