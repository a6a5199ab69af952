//! Sections 1 and 3: calls go through once, unchanged, and so do their errors.

use std::collections::{BTreeMap, HashMap};

use a3sbox_core::*;
use a3sbox_sdk::{A3sBoxClient, A3sBoxPaths, ClientError};

use crate::fake::{Call, Fake, refused, world};

/// Every field set, none of them to its default.
fn complete_request() -> CreateExecutionRequest {
    CreateExecutionRequest {
        external_sandbox_id: "external".into(),
        config: BoxConfig {
            isolation: ExecutionIsolation::Sandbox,
            image: "alpine:3.20".into(),
            extra_env: vec![("B".into(), "2".into()), ("A".into(), "1".into())],
            dns: vec!["1.1.1.1".into()],
            read_only: true,
            resource_limits: ResourceLimits {
                pids_limit: Some(64),
                ..ResourceLimits::default()
            },
            ..BoxConfig::default()
        },
        labels: BTreeMap::from([("team".into(), "core".into())]),
        policy: ExecutionRecordPolicy {
            name: Some("web".into()),
            auto_remove: true,
            restart_policy: ExecutionRestartPolicy::OnFailure,
            max_restart_count: 4,
            health_check: Some(ExecutionHealthCheck {
                cmd: vec!["true".into()],
                interval_secs: 1,
                timeout_secs: 2,
                retries: 3,
                start_period_secs: 4,
            }),
            healthcheck_disabled: true,
            log_config: log::LogConfig {
                driver: log::LogDriver::None,
                options: HashMap::from([("max-size".into(), "1m".into())]),
            },
            volume_names: vec!["cache".into()],
            platform: Some("linux/amd64".into()),
            init: true,
            devices: vec!["/dev/fuse".into()],
            gpus: Some("all".into()),
            shm_size: Some(1 << 20),
            stop_signal: Some("SIGINT".into()),
            stop_timeout: Some(9),
            oom_kill_disable: true,
            oom_score_adj: Some(-5),
        },
        rootfs_snapshot_id: None,
    }
}

fn op(id: &str) -> OperationId {
    OperationId::new(id).unwrap()
}

#[tokio::test]
async fn create_start_and_run_keep_request_and_identity() {
    let world = world();
    let (client, request) = (&world.client, complete_request());
    let value = serde_json::to_value(&request).unwrap();

    let reserved = client
        .create_box(request.clone(), &op("c-1"))
        .await
        .unwrap();
    assert_eq!(reserved.generation, ExecutionGeneration::INITIAL);
    let lease = client
        .start_box(&reserved.execution_id, reserved.generation)
        .await
        .unwrap();
    assert_eq!(lease.execution_id, reserved.execution_id);
    let second = client.run_box(request, &op("r-1")).await.unwrap();
    assert_ne!(second.execution_id, reserved.execution_id);

    assert_eq!(
        world.fake.calls(),
        [
            Call::Create("c-1".into(), value.clone()),
            Call::Start(reserved.execution_id.to_string(), 1),
            Call::CreateAndStart("r-1".into(), value),
        ]
    );
}

#[tokio::test]
async fn every_method_makes_one_call_of_its_own() {
    let world = world();
    let client = &world.client;
    let lease = client.run_box(complete_request(), &op("o")).await.unwrap();
    let id = &lease.execution_id;
    let snapshot = ExecutionSnapshotId::new("snap").unwrap();
    let events = ExecutionEventsRequest {
        after_sequence: 3,
        limit: 4,
        wait_timeout_ms: None,
    };
    let update = ExecutionResourceUpdate {
        pids_limit: Some(5),
        ..ExecutionResourceUpdate::default()
    };
    let at = |generation| ExecutionGeneration::new(generation).unwrap();
    world.fake.take();

    client.inspect_execution(id).await.unwrap();
    client.list_execution_processes(id, at(1)).await.unwrap();
    client.execution_stats(id, at(1)).await.unwrap();
    client
        .execution_events(id, at(1), events.clone())
        .await
        .unwrap_err();
    client
        .update_execution_resources(id, at(1), &op("u"), update.clone())
        .await
        .unwrap();
    let taken = client
        .create_execution_snapshot(id, at(1), &snapshot)
        .await
        .unwrap();
    assert_eq!(taken.lease.generation, at(2));
    assert!(
        client
            .execution_snapshot_size(&snapshot)
            .await
            .unwrap()
            .is_some()
    );
    assert!(client.delete_execution_snapshot(&snapshot).await.unwrap());
    client.pause_execution(id, at(2), false).await.unwrap();
    client.resume_execution(id, at(3)).await.unwrap();
    let options = RestartExecutionOptions {
        stop_timeout_secs: Some(7),
    };
    client
        .restart_execution(id, at(4), &op("x"), options)
        .await
        .unwrap();
    client.read_execution_logs(id, at(5)).await.unwrap();
    let killed = client.kill_execution(id, at(5)).await.unwrap();
    assert_eq!(killed, KillOutcome::Killed);
    assert!(client.remove_execution(id, at(5)).await.unwrap());
    assert!(matches!(
        client.reconcile_operation(&op("o")).await.unwrap(),
        ReconcileOutcome::Absent
    ));

    assert_eq!(
        world.fake.calls(),
        [
            Call::Inspect,
            Call::ListProcesses(1),
            Call::Stats(1),
            Call::Events(1, events),
            Call::UpdateResources(1, "u".into(), update),
            Call::Snapshot(1, "snap".into()),
            Call::SnapshotSize("snap".into()),
            Call::DeleteSnapshot("snap".into()),
            Call::Pause(2, false),
            Call::Resume(3),
            Call::Restart(4, "x".into(), options),
            Call::ReadLogs(5),
            Call::Kill(5),
            Call::Remove(5),
            Call::Reconcile("o".into()),
        ]
    );
}

#[tokio::test]
async fn sessions_without_a_session_manager_are_refused_without_a_call() {
    let fake = Fake::new();
    let client =
        A3sBoxClient::with_execution_manager(A3sBoxPaths::from_home("/none"), fake.clone());
    let id = ExecutionId::new("e").unwrap();
    let first = ExecutionGeneration::INITIAL;
    let exec: ExecRequest = serde_json::from_str(r#"{"cmd":["true"],"timeout_ns":0}"#).unwrap();
    let stat = serde_json::from_str(r#"{"op":"Stat","path":"/"}"#).unwrap();
    let read = serde_json::from_str(r#"{"op":"Download","guest_path":"/"}"#).unwrap();
    refused(client.execute_execution(&id, first, exec).await);
    refused(client.filesystem_execution(&id, first, stat).await);
    refused(client.transfer_execution_file(&id, first, read).await);
    assert_eq!(fake.calls(), []);
}

#[tokio::test]
async fn a_managers_error_comes_back_as_it_is() {
    let world = world();
    world.fake.fail(|id| ExecutionManagerError::Conflict {
        execution_id: id.clone(),
        message: "as it is".into(),
    });
    let result = world.client.run_box(complete_request(), &op("o")).await;
    assert!(matches!(
        result,
        Err(ClientError::Execution(ExecutionManagerError::Conflict { ref message, .. }))
            if message == "as it is"
    ));
    assert_eq!(world.fake.calls().len(), 1, "no retry");
}

#[test]
fn naming_paths_creates_nothing() {
    let home = tempfile::tempdir().unwrap();
    let paths = A3sBoxPaths::from_home(home.path().join("h"));
    assert_eq!(paths.boxes_file, paths.home.join("boxes.json"));
    assert_eq!(paths.volumes_file, paths.home.join("volumes.json"));
    assert_eq!(paths.volumes_dir, paths.home.join("volumes"));
    assert_eq!(paths.networks_file, paths.home.join("networks.json"));
    assert_eq!(paths.snapshots_dir, paths.home.join("snapshots"));
    let client = A3sBoxClient::with_execution_manager(paths.clone(), Fake::new());
    assert_eq!(client.paths(), &paths);
    assert!(format!("{client:?}").contains("A3sBoxClient"));
    assert!(!paths.home.exists());
}

#[test]
fn handles_cross_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<A3sBoxClient>();
    shared::<a3sbox_sdk::Sandbox>();
}
