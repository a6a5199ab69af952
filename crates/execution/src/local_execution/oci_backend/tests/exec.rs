//! Captured commands.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use a3sbox_core::exec::ExecRequest;
use a3sbox_core::{ExecutionIsolation, ExecutionManager, ExecutionSessionManager};
use a3sbox_oci::RuntimeOperation;
use a3sbox_testkit::{GENERATION, RuntimeReport};

use super::{
    World, assert_conflict, assert_invalid, assert_unavailable, exec_request, next, operation,
    request,
};

#[tokio::test]
async fn captured_exec_replays_after_lost_response_and_backend_reopen() {
    let mut world = World::new();
    let mut create = request(ExecutionIsolation::Sandbox);
    create.config.extra_env = vec![
        ("ALPHA".to_owned(), "container".to_owned()),
        ("BETA".to_owned(), "container".to_owned()),
    ];
    let lease = world
        .manager
        .create_and_start(create, &operation("create"))
        .await
        .unwrap();
    let (id, generation) = (lease.execution_id, lease.generation);
    let command = ExecRequest {
        request_id: Some("health-probe-1".to_owned()),
        cmd: vec!["/bin/check".to_owned(), "--ready".to_owned()],
        env: vec!["BETA=request".to_owned(), "GAMMA=request".to_owned()],
        working_dir: Some("/srv".to_owned()),
        stdin: Some(b"probe input".to_vec()),
        user: Some("1000:1001".to_owned()),
        ..exec_request()
    };
    world.runtime.lose_answer(RuntimeOperation::Exec);
    world
        .manager
        .execute(&id, generation, command.clone())
        .await
        .unwrap_err();
    world.reopen();
    let output = world
        .manager
        .execute(&id, generation, command)
        .await
        .unwrap();
    assert_eq!(output.stdout, b"fake stdout\n");
    assert_eq!(output.stderr, b"fake stderr\n");
    assert_eq!((output.exit_code, output.truncated), (23, false));
    assert!(
        world
            .manager
            .read_logs(&id, generation)
            .await
            .unwrap()
            .is_empty()
    );

    let recorded = world.runtime.recorded();
    let [first, second] = recorded.execs.as_slice() else {
        panic!("{} execs", recorded.execs.len())
    };
    assert_eq!(first, second);
    assert_eq!(first.container.generation, Some(GENERATION));
    assert_ne!(
        first.process_id.as_str(),
        first.context.operation_id.as_str()
    );
    assert!(
        first
            .process_id
            .as_str()
            .starts_with("a3s-box-exec-process-")
    );
    let process = &first.process;
    assert_eq!(process.args().clone().unwrap(), ["/bin/check", "--ready"]);
    assert_eq!(
        process.env().clone().unwrap(),
        ["ALPHA=container", "BETA=request", "GAMMA=request"]
    );
    assert_eq!(process.cwd(), std::path::Path::new("/srv"));
    assert_eq!((process.user().uid(), process.user().gid()), (1000, 1001));
    let capabilities = process.capabilities().clone().unwrap();
    for set in [
        capabilities.bounding(),
        capabilities.effective(),
        capabilities.inheritable(),
        capabilities.permitted(),
        capabilities.ambient(),
    ] {
        assert!(
            set.as_ref()
                .is_some_and(std::collections::HashSet::is_empty)
        );
    }
    assert_eq!(process.no_new_privileges(), Some(true));
    assert_eq!(world.runtime.process_count(), 1);
    let [write] = recorded.stdin_writes.as_slice() else {
        panic!("not one write")
    };
    assert_eq!(write.data, b"probe input");
    assert_eq!(write.process.container, first.container);
    assert_eq!(recorded.stdin_closes.len(), 1);
}

#[tokio::test]
async fn relative_exec_resolves_against_the_prepared_rootfs_path() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let folder = world
        .home()
        .join("boxes")
        .join(launched.id().as_str())
        .join("rootfs/usr/bin");
    std::fs::create_dir_all(&folder).unwrap();
    let printf = folder.join("printf");
    std::fs::write(&printf, "").unwrap();
    std::fs::set_permissions(&printf, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = ExecRequest {
        cmd: vec!["printf".to_owned(), "sdk-ok".to_owned()],
        ..exec_request()
    };
    world
        .manager
        .execute(launched.id(), launched.generation(), command)
        .await
        .unwrap();
    let recorded = world.runtime.recorded();
    assert_eq!(recorded.execs.len(), 1);
    assert_eq!(
        recorded.execs[0].process.args().clone().unwrap(),
        ["/usr/bin/printf", "sdk-ok"]
    );
}

#[tokio::test]
async fn keyed_exec_rejects_changed_content_without_starting_a_second_process() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let first = ExecRequest {
        request_id: Some("one-process-key".to_owned()),
        stdin: Some(b"first".to_vec()),
        ..exec_request()
    };
    let second = ExecRequest {
        cmd: vec!["/bin/other".to_owned()],
        stdin: Some(b"second".to_vec()),
        timeout_ns: 2_000_000_000,
        ..first.clone()
    };
    world
        .manager
        .execute(launched.id(), launched.generation(), first)
        .await
        .unwrap();
    let repeated = world
        .manager
        .execute(launched.id(), launched.generation(), second)
        .await;
    assert_unavailable(repeated, "different request");
    let execs = world.runtime.recorded().execs;
    assert_eq!(execs.len(), 2);
    assert_eq!(execs[0].process_id, execs[1].process_id);
    assert_ne!(execs[0].context.operation_id, execs[1].context.operation_id);
    assert_eq!(world.runtime.process_count(), 1);
    assert_eq!(world.runtime.stdin_effects().len(), 1);
}

#[tokio::test]
async fn exec_capability_and_box_generation_fail_before_runtime_mutation() {
    let world = World::with_report(RuntimeReport::default().without(RuntimeOperation::Exec));
    let launched = world.launch(ExecutionIsolation::Microvm).await;
    let stale = next(launched.generation());
    assert_conflict(
        world
            .manager
            .execute(launched.id(), stale, exec_request())
            .await,
    );
    assert_unavailable(
        world
            .manager
            .execute(launched.id(), launched.generation(), exec_request())
            .await,
        "does not advertise exec",
    );
    assert!(world.runtime.recorded().execs.is_empty());
}

#[tokio::test]
async fn exec_rejects_a_second_rootfs_before_runtime_mutation() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let command = ExecRequest {
        rootfs: Some("/other".to_owned()),
        ..exec_request()
    };
    assert_invalid(
        world
            .manager
            .execute(launched.id(), launched.generation(), command)
            .await,
        "second rootfs",
    );
    assert!(world.runtime.recorded().execs.is_empty());
}

#[tokio::test]
async fn invalid_exec_identity_and_empty_command_fail_before_runtime_mutation() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let keyed = |key: &str| ExecRequest {
        request_id: Some(key.to_owned()),
        ..exec_request()
    };
    let no_command = ExecRequest {
        cmd: Vec::new(),
        ..exec_request()
    };
    let as_nobody = ExecRequest {
        user: Some("nobody".to_owned()),
        ..exec_request()
    };
    for command in [
        keyed(""),
        keyed(&"k".repeat(513)),
        keyed("a\0b"),
        no_command,
        as_nobody,
    ] {
        let executed = world
            .manager
            .execute(launched.id(), launched.generation(), command)
            .await;
        assert_invalid(executed, "");
    }
    let streaming = world.manager.start_process(
        launched.id(),
        launched.generation(),
        ExecRequest {
            streaming: true,
            ..keyed("key")
        },
    );
    assert_invalid(streaming.await.map(|_| ()), "request id");
    assert!(world.runtime.recorded().execs.is_empty());
}

#[tokio::test]
async fn captured_exec_timeout_kills_and_returns_legacy_terminal_shape() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.hold_processes();
    let command = ExecRequest {
        request_id: Some("timeout".to_owned()),
        timeout_ns: 1,
        ..exec_request()
    };
    let output = world
        .manager
        .execute(launched.id(), launched.generation(), command)
        .await
        .unwrap();
    assert_eq!(output.stdout, b"fake stdout\n");
    assert_eq!(
        output.stderr,
        b"fake stderr\n\nProcess killed: timeout exceeded"
    );
    assert_eq!(output.exit_code, 137);
    let signals = world.runtime.recorded().process_signals;
    assert_eq!(signals.len(), 1);
    assert_eq!(signals[0].signal.get(), 9);
}

#[tokio::test]
async fn dropped_exec_future_keeps_its_exact_timeout_watchdog() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.hold_processes();
    let command = ExecRequest {
        timeout_ns: 50_000_000,
        ..exec_request()
    };
    let call = world
        .manager
        .execute(launched.id(), launched.generation(), command);
    tokio::time::timeout(Duration::from_millis(5), call)
        .await
        .unwrap_err();
    // The promise itself is about time: the kill comes by then, and only once.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let signals = world.runtime.recorded().process_signals;
    assert_eq!(signals.len(), 1);
    assert_eq!(signals[0].signal.get(), 9);
    assert_eq!(signals[0].process.container.generation, Some(GENERATION));
}

#[tokio::test]
async fn captured_output_is_cut_at_its_bound_and_says_so() {
    use a3sbox_core::exec::MAX_ONE_SHOT_OUTPUT_BYTES;

    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world
        .runtime
        .write_before_output(MAX_ONE_SHOT_OUTPUT_BYTES - 5);
    let output = world
        .manager
        .execute(launched.id(), launched.generation(), exec_request())
        .await
        .unwrap();
    assert_eq!(output.stdout.len(), MAX_ONE_SHOT_OUTPUT_BYTES);
    assert!(output.truncated);
    assert_eq!(output.exit_code, 23);
}
