//! Sections 7 and 8: what a handle knows, and its verbs.

use a3sbox_core::*;
use a3sbox_sdk::{ClientError, SandboxLogOptions, SandboxRestartOptions};

use crate::fake::{Call, SIZE, refused, world};

fn snapshot_id() -> ExecutionSnapshotId {
    ExecutionSnapshotId::new("snap-1").unwrap()
}

#[tokio::test]
async fn verbs_act_on_the_generation_of_the_last_lease() {
    let world = world();
    let sandbox = world.sandbox().await;
    sandbox.pause(false).await.unwrap();
    assert_eq!(sandbox.info().state, ExecutionState::Paused);
    assert_eq!(sandbox.info().generation, 2);
    sandbox.resume().await.unwrap();
    assert_eq!(sandbox.info().state, ExecutionState::Running);
    let taken = sandbox
        .create_filesystem_snapshot(snapshot_id())
        .await
        .unwrap();
    assert_eq!(
        (taken.size_bytes, taken.state),
        (SIZE, ExecutionState::Running)
    );
    sandbox
        .restart(SandboxRestartOptions::default())
        .await
        .unwrap();
    sandbox.stop().await.unwrap();
    let calls = world.fake.take();
    assert_eq!(
        calls[..3],
        [
            Call::Pause(1, false),
            Call::Resume(2),
            Call::Snapshot(3, "snap-1".into()),
        ]
    );
    let Call::Restart(4, operation, options) = &calls[3] else {
        panic!("{:?}", calls[3]);
    };
    assert!(operation.starts_with("sdk-restart-"));
    assert_eq!(options.stop_timeout_secs, None);
    assert_eq!(calls[4..], [Call::Kill(5), Call::Inspect]);
}

#[tokio::test]
async fn clones_share_what_is_known() {
    let world = world();
    let sandbox = world.sandbox().await;
    let other = sandbox.clone();
    other.pause(true).await.unwrap();
    assert_eq!(sandbox.info(), other.info());
    refused(sandbox.commands.run("true").await);
    other.resume().await.unwrap();
    sandbox.commands.run("true").await.unwrap();
    other.kill().await.unwrap();
    refused(sandbox.files.read("/f").await);
}

#[tokio::test]
async fn a_late_answer_of_an_old_generation_is_dropped() {
    let world = world();
    let sandbox = world.sandbox().await;
    let restart = SandboxRestartOptions::default().operation_id(OperationId::new("again").unwrap());
    sandbox.restart(restart.clone()).await.unwrap();
    sandbox.pause(true).await.unwrap();
    assert_eq!(sandbox.info().generation, 3);
    // The replay tells of generation 2, which is history.
    sandbox.restart(restart).await.unwrap();
    assert_eq!(sandbox.info().generation, 3);
    assert_eq!(sandbox.info().state, ExecutionState::Paused);
}

#[tokio::test]
async fn is_running_asks_once_and_learns() {
    let world = world();
    let sandbox = world.sandbox().await;
    assert!(sandbox.is_running().await.unwrap());
    for state in [
        ExecutionState::Created,
        ExecutionState::Creating,
        ExecutionState::Paused,
        ExecutionState::Stopped,
        ExecutionState::Failed,
    ] {
        world.fake.set_state(state, 9);
        assert!(!sandbox.is_running().await.unwrap());
        assert_eq!(sandbox.info().state, state);
    }
    assert_eq!(sandbox.info().generation, 9);
    assert_eq!(world.fake.take(), vec![Call::Inspect; 6]);

    world
        .fake
        .fail(|id| ExecutionManagerError::NotFound(id.clone()));
    assert!(!sandbox.is_running().await.unwrap());
    world
        .fake
        .fail(|_| ExecutionManagerError::Unavailable("later".into()));
    assert!(matches!(
        sandbox.is_running().await,
        Err(ClientError::Execution(ExecutionManagerError::Unavailable(
            _
        )))
    ));
}

#[tokio::test]
async fn stop_is_silent_once_the_sandbox_has_ended() {
    for ended in [ExecutionState::Stopped, ExecutionState::Failed] {
        let world = world();
        let sandbox = world.sandbox().await;
        world.fake.set_state(ended, 1);
        sandbox.is_running().await.unwrap();
        world.fake.take();
        sandbox.stop().await.unwrap();
        assert_eq!(world.fake.calls(), []);
    }
}

#[tokio::test]
async fn stop_of_a_sandbox_that_removes_itself_closes_the_handle() {
    let world = world();
    let sandbox = world.sandbox().await;
    world.fake.remove_on_kill();
    sandbox.kill().await.unwrap();
    assert_eq!(world.fake.take(), [Call::Kill(1), Call::Inspect]);
    sandbox.kill().await.unwrap();
    assert_eq!(world.fake.calls(), []);
    assert_eq!(sandbox.info().state, ExecutionState::Stopped);
}

#[tokio::test]
async fn kill_of_a_sandbox_that_is_gone_already_succeeds() {
    let world = world();
    let sandbox = world.sandbox().await;
    let other = sandbox.clone();
    other.kill().await.unwrap();
    let again = a3sbox_sdk::Sandbox::connect_with_client(world.client.clone(), sandbox.id()).await;
    assert!(again.is_err());

    let second = world.sandbox().await;
    world
        .fake
        .fail(|id| ExecutionManagerError::NotFound(id.clone()));
    second.kill().await.unwrap();
    assert_eq!(world.fake.take(), [Call::Kill(1)]);
}

#[tokio::test]
async fn a_failed_stop_is_an_error_and_changes_nothing() {
    let world = world();
    let sandbox = world.sandbox().await;
    world
        .fake
        .fail(|_| ExecutionManagerError::Unavailable("later".into()));
    assert!(sandbox.stop().await.is_err());
    assert_eq!(world.fake.calls(), [Call::Kill(1)]);
    assert_eq!(sandbox.info().state, ExecutionState::Running);
}

#[tokio::test]
async fn remove_demands_an_ended_sandbox_and_closes() {
    for (state, removable) in [
        (ExecutionState::Created, true),
        (ExecutionState::Creating, false),
        (ExecutionState::Running, false),
        (ExecutionState::Paused, false),
        (ExecutionState::Stopped, true),
        (ExecutionState::Failed, true),
    ] {
        for answer in [true, false] {
            let world = world();
            let sandbox = world.sandbox().await;
            world.fake.set_state(state, 1);
            sandbox.is_running().await.unwrap();
            world.fake.answer_remove_with(answer);
            world.fake.take();
            if !removable {
                refused(sandbox.remove().await);
                assert_eq!(world.fake.calls(), [], "{state:?}");
                continue;
            }
            sandbox.remove().await.unwrap();
            sandbox.remove().await.unwrap();
            assert_eq!(world.fake.calls(), [Call::Remove(1)], "{state:?}");
        }
    }
}

#[tokio::test]
async fn a_closed_handle_is_silent_or_refuses() {
    let world = world();
    let sandbox = world.sandbox().await;
    sandbox.pause(true).await.unwrap();
    sandbox.kill().await.unwrap();
    world.fake.take();

    sandbox.stop().await.unwrap();
    sandbox.remove().await.unwrap();
    sandbox.kill().await.unwrap();
    assert!(!sandbox.is_running().await.unwrap());
    refused(sandbox.pause(true).await);
    refused(sandbox.resume().await);
    refused(sandbox.restart(SandboxRestartOptions::default()).await);
    refused(sandbox.logs(SandboxLogOptions::tail(1)).await);
    refused(sandbox.commands.run("true").await);
    refused(sandbox.script("true").run().await);
    refused(sandbox.files.read("/f").await);
    refused(sandbox.files.stat("/f").await);
    refused(sandbox.create_filesystem_snapshot(snapshot_id()).await);
    refused(sandbox.processes().await);
    refused(sandbox.runtime_stats().await);
    assert_eq!(world.fake.calls(), []);
    let info = sandbox.info();
    assert_eq!((info.state, info.generation), (ExecutionState::Stopped, 2));
}

#[tokio::test]
async fn a_paused_sandbox_takes_snapshots_but_no_commands() {
    let world = world();
    let sandbox = world.sandbox().await;
    sandbox.pause(true).await.unwrap();
    let taken = sandbox
        .create_filesystem_snapshot(snapshot_id())
        .await
        .unwrap();
    assert_eq!(taken.state, ExecutionState::Paused);
    assert_eq!(sandbox.info().state, ExecutionState::Paused);
    assert_eq!(sandbox.info().generation, taken.lease.generation.get());
    world.fake.take();
    refused(sandbox.pause(true).await);
    refused(sandbox.commands.run("true").await);
    refused(sandbox.files.write("/f", "x").await);
    refused(
        sandbox
            .update_resources(
                &OperationId::new("u").unwrap(),
                ExecutionResourceUpdate::default(),
            )
            .await,
    );
    assert_eq!(world.fake.calls(), []);
    sandbox.processes().await.unwrap();
    sandbox.runtime_stats().await.unwrap();

    sandbox.stop().await.unwrap();
    refused(sandbox.create_filesystem_snapshot(snapshot_id()).await);
}

#[tokio::test]
async fn the_fencing_walk() {
    let world = world();
    let sandbox = world.sandbox().await;
    world.fake.set_log(20);
    sandbox.stop().await.unwrap();
    sandbox.stop().await.unwrap();
    sandbox
        .restart(
            SandboxRestartOptions::default()
                .operation_id(OperationId::new("own-id").unwrap())
                .stop_timeout_seconds(7),
        )
        .await
        .unwrap();
    assert_eq!(sandbox.info().generation, 2);
    assert_eq!(sandbox.info().state, ExecutionState::Running);
    let tail = sandbox.logs(SandboxLogOptions::tail(2)).await.unwrap();
    assert_eq!(tail.len(), 2);
    let old = world
        .client
        .read_execution_logs(
            &ExecutionId::new(sandbox.id()).unwrap(),
            ExecutionGeneration::INITIAL,
        )
        .await;
    assert!(matches!(
        old,
        Err(ClientError::Execution(
            ExecutionManagerError::Conflict { .. }
        ))
    ));
    sandbox.stop().await.unwrap();
    sandbox.remove().await.unwrap();
    sandbox.remove().await.unwrap();
    assert_eq!(
        world.fake.calls(),
        [
            Call::Kill(1),
            Call::Inspect,
            Call::Restart(
                1,
                "own-id".into(),
                RestartExecutionOptions {
                    stop_timeout_secs: Some(7)
                }
            ),
            Call::ReadLogs(2),
            Call::ReadLogs(1),
            Call::Kill(2),
            Call::Inspect,
            Call::Remove(2),
        ]
    );
}

#[tokio::test]
async fn an_update_passes_through() {
    let world = world();
    let sandbox = world.sandbox().await;
    let update = ExecutionResourceUpdate {
        pids_limit: Some(9),
        ..ExecutionResourceUpdate::default()
    };
    sandbox
        .update_resources(&OperationId::new("u-1").unwrap(), update.clone())
        .await
        .unwrap();
    assert_eq!(
        world.fake.calls(),
        [Call::UpdateResources(1, "u-1".into(), update)]
    );
}
