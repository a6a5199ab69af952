//! What is refused, and that nothing happened.

use a3sbox_core::{
    ExecRequest, ExecutionEventsRequest, ExecutionIsolation, ExecutionManager as _,
    ExecutionResourceUpdate, ExecutionSessionManager as _, FileOp, FileRequest, FilesystemOp,
    FilesystemRequest, ReconcileOutcome, pty::PtyRequest,
};
use a3sbox_oci::RuntimeOperation;

use super::launch::end;
use super::{assert_conflict, assert_invalid, assert_unavailable};
use crate::{World, command, next, operation, request};

// proves: B07
pub async fn isolation_that_the_driver_lacks(world: World) {
    refused_before_anything(&world, ExecutionIsolation::Microvm, "launch-ready").await;
}

// proves: B08
pub async fn a_runtime_without_the_attachment_schema(world: World) {
    world.faults.hide_attachments();
    refused_before_anything(
        &world,
        ExecutionIsolation::Sandbox,
        "a3s.oci.attachments.v1",
    )
    .await;
}

async fn refused_before_anything(world: &World, isolation: ExecutionIsolation, needle: &str) {
    let operation_id = operation("create");
    let refused = world
        .manager
        .create(request(isolation, &[]), &operation_id)
        .await;
    assert_unavailable(refused, needle);
    assert!(!world.manager.state_path().exists());
    assert_eq!(world.provider.counts().prepares, 0);
    assert_eq!(world.faults.calls(RuntimeOperation::Create), 0);
    world.assert_nothing_runs(None);
    let outcome = world.manager.reconcile(&operation_id).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Absent), "{outcome:?}");
}

// proves: B35 B37 B54
pub async fn verbs_that_the_runtime_lacks(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    for operation in [
        RuntimeOperation::Pause,
        RuntimeOperation::Update,
        RuntimeOperation::Processes,
        RuntimeOperation::Stats,
        RuntimeOperation::Events,
    ] {
        world.faults.hide(operation);
    }
    let manager = &world.manager;
    assert_unavailable(
        manager.pause(id, generation, true).await,
        "does not advertise pause",
    );
    let update = ExecutionResourceUpdate {
        pids_limit: Some(64),
        ..ExecutionResourceUpdate::default()
    };
    let operation_id = operation("update");
    assert_unavailable(
        manager
            .update_resources(id, generation, &operation_id, update)
            .await,
        "update",
    );
    assert_unavailable(manager.list_processes(id, generation).await, "processes");
    assert_unavailable(manager.stats(id, generation).await, "stats");
    let events = ExecutionEventsRequest {
        after_sequence: 0,
        limit: 16,
        wait_timeout_ms: None,
    };
    assert_unavailable(manager.events(id, generation, events).await, "events");
    assert!(!world.is_frozen(id));
    let record = world.record(id);
    assert_eq!(record.status, "running");
    assert!(world.metadata(id).pending_operation.is_none());
    end(&world, &launched).await;
}

// proves: B21 B24
pub async fn stale_generations_before_any_effect(world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    let stale = next(launched.generation());
    let manager = &world.manager;
    let before = world.processes(id);
    let touch = command(&["sh", "-c", "echo ran >> /out/ran"]);
    assert_conflict(manager.execute(id, stale, touch).await);
    assert_conflict(manager.pause(id, stale, true).await);
    assert_conflict(manager.kill(id, stale).await);
    let update = ExecutionResourceUpdate {
        pids_limit: Some(64),
        ..ExecutionResourceUpdate::default()
    };
    assert_conflict(
        manager
            .update_resources(id, stale, &operation("update"), update)
            .await,
    );
    world.faults.hide(RuntimeOperation::Exec);
    assert_unavailable(
        manager
            .execute(id, launched.generation(), command(&["true"]))
            .await,
        "does not advertise exec",
    );
    assert_eq!(world.lines("ran"), 0);
    assert!(world.processes(id).contains(&before[0]));
    assert!(!world.is_frozen(id));
    end(&world, &launched).await;
}

// proves: B27
pub async fn session_modes_that_the_runtime_lacks(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.faults.hide(RuntimeOperation::Resize);
    let terminal = PtyRequest {
        cmd: vec!["/bin/sh".to_owned()],
        env: Vec::new(),
        working_dir: None,
        rootfs: None,
        user: None,
        cols: 80,
        rows: 24,
    };
    let refused = world.manager.start_pty(id, generation, terminal).await;
    assert!(refused.err().unwrap().to_string().contains("resize"));
    world.faults.hide(RuntimeOperation::WriteStdin);
    let streaming = ExecRequest {
        streaming: true,
        stdin_streaming: true,
        ..command(&["cat"])
    };
    let refused = world.manager.start_process(id, generation, streaming).await;
    assert!(refused.err().unwrap().to_string().contains("write-stdin"));
    world.faults.hide(RuntimeOperation::ReadOutput);
    let refused = world
        .manager
        .execute(id, generation, command(&["true"]))
        .await;
    assert!(refused.unwrap_err().to_string().contains("read-output"));
    assert_eq!(world.faults.calls(RuntimeOperation::Exec), 0);
    end(&world, &launched).await;
}

// proves: B25 B26
pub async fn malformed_commands(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let run = command(&["sh", "-c", "echo ran >> /out/ran"]);
    let second = ExecRequest {
        rootfs: Some("/other".to_owned()),
        ..run.clone()
    };
    assert_invalid(
        world.manager.execute(id, generation, second).await,
        "second rootfs",
    );
    for key in [String::new(), "k".repeat(513), "a\0b".to_owned()] {
        let keyed = ExecRequest {
            request_id: Some(key),
            ..run.clone()
        };
        assert_invalid(world.manager.execute(id, generation, keyed).await, "");
    }
    assert_invalid(
        world.manager.execute(id, generation, command(&[])).await,
        "",
    );
    assert_eq!(world.faults.calls(RuntimeOperation::Exec), 0);
    assert_eq!(world.lines("ran"), 0);
    end(&world, &launched).await;
}

/// Local checks come first, then the generation, then what the runtime serves.
// proves: B20 B21
pub async fn files_that_a_runtime_does_not_serve(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.faults.hide(RuntimeOperation::File);
    world.faults.hide(RuntimeOperation::Filesystem);
    let download = FileRequest {
        op: FileOp::Download,
        guest_path: "/out/x".to_owned(),
        data: None,
        user: None,
        max_bytes: None,
    };
    let stat = FilesystemRequest {
        op: FilesystemOp::Stat,
        path: "/out/x".to_owned(),
        destination: None,
        depth: 0,
        user: None,
    };
    let empty = FileRequest {
        max_bytes: Some(0),
        ..download.clone()
    };
    let manager = &world.manager;
    assert_invalid(manager.transfer_file(id, generation, empty).await, "");
    assert_conflict(
        manager
            .transfer_file(id, next(generation), download.clone())
            .await,
    );
    assert_unavailable(
        manager.transfer_file(id, generation, download).await,
        "does not advertise file",
    );
    assert_conflict(manager.filesystem(id, next(generation), stat.clone()).await);
    assert_unavailable(
        manager.filesystem(id, generation, stat).await,
        "does not advertise filesystem",
    );
    assert_eq!(world.faults.calls(RuntimeOperation::File), 0);
    assert_eq!(world.faults.calls(RuntimeOperation::Filesystem), 0);
    end(&world, &launched).await;
}
