//! The owner of the runtime is another process, which dies and comes back.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use a3sbox_core::exec::ExecRequest;
use a3sbox_core::{
    ExecEvent, ExecutionIsolation, ExecutionManager, ExecutionManagerError, ExecutionProcessSignal,
    ExecutionSessionManager, ReconcileOutcome, StreamType,
};
use a3sbox_testkit::OwnerRuntime;
use tokio::process::{Child, Command};

use super::super::OciLocalExecutionBackend;
use super::provider::TestProvider;
use super::{endpoint, exec_request, manager, operation, request};

/// This very test: the child is the same binary, told to run it and to serve instead.
const CHILD_TEST: &str = "local_execution::oci_backend::tests::process_restart::\
retained_backend_recovers_after_runtime_owner_process_restart";
const STATE_VARIABLE: &str = "A3SBOX_TEST_OWNER_STATE";
const SOCKET_VARIABLE: &str = "A3SBOX_TEST_OWNER_SOCKET";
const CHILD_READY: Duration = Duration::from_secs(20);

/// Serves in a process of its own, which dies with the handle.
async fn spawn_owner(state: &Path, socket: &Path) -> Child {
    let _ = std::fs::remove_file(socket);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CHILD_TEST, "--nocapture"])
        .env(STATE_VARIABLE, state)
        .env(SOCKET_VARIABLE, socket)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ready = async {
        while !socket.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(CHILD_READY, ready)
        .await
        .expect("the owner listens");
    child
}

async fn serve_as_child() -> bool {
    let (Ok(state), Ok(socket)) = (
        std::env::var(STATE_VARIABLE),
        std::env::var(SOCKET_VARIABLE),
    ) else {
        return false;
    };
    OwnerRuntime::open(Path::new(&state))
        .serve(Path::new(&socket))
        .await
        .unwrap();
    true
}

#[tokio::test]
async fn retained_backend_recovers_after_runtime_owner_process_restart() {
    if serve_as_child().await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let endpoint = endpoint(&folder);
    let socket = endpoint.as_unix_socket().unwrap().to_path_buf();
    let state = folder.path().join("owner.json");
    let provider = Arc::new(TestProvider::default());
    let mut owner = spawn_owner(&state, &socket).await;
    let backend = OciLocalExecutionBackend::connect(endpoint.clone(), provider.clone())
        .await
        .unwrap();
    let manager = manager(&folder, backend);
    let operation_id = operation("owned");
    let lease = manager
        .create_and_start(request(ExecutionIsolation::Sandbox), &operation_id)
        .await
        .unwrap();
    let (id, generation) = (lease.execution_id, lease.generation);
    let command = ExecRequest {
        timeout_ns: 30_000_000_000,
        streaming: true,
        stdin_streaming: true,
        ..exec_request()
    };
    let mut process = manager
        .start_process(&id, generation, command)
        .await
        .unwrap();
    let input = process.input();
    match process.next_event().await.unwrap() {
        Some(ExecEvent::Chunk(chunk)) => {
            assert_eq!(chunk.stream, StreamType::Stdout);
            assert_eq!(chunk.data, b"runtime owner session\n");
        }
        other => panic!("{other:?}"),
    }
    input.write_stdin(b"before restart\n").await.unwrap();

    owner.kill().await.unwrap();
    let broken = process.next_event().await;
    assert!(
        matches!(broken, Err(ExecutionManagerError::Unavailable(_))),
        "{broken:?}"
    );
    let lost = manager.reconcile(&operation_id).await;
    assert!(
        matches!(lost, Err(ExecutionManagerError::Unavailable(_))),
        "{lost:?}"
    );

    let mut owner = spawn_owner(&state, &socket).await;
    let outcome = manager.reconcile(&operation_id).await.unwrap();
    let ReconcileOutcome::Ready(again) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((&again.execution_id, again.generation), (&id, generation));
    assert_eq!(provider.counts().prepares, 1);
    let inventory = manager.list_processes(&id, generation).await.unwrap();
    assert_eq!(inventory.processes.len(), 2);
    assert_eq!(
        inventory
            .processes
            .iter()
            .filter(|one| one.process_id != "init")
            .count(),
        1
    );

    input.write_stdin(b"after restart\n").await.unwrap();
    input.close_stdin().await.unwrap();
    input
        .send_signal(ExecutionProcessSignal::Kill)
        .await
        .unwrap();
    let (mut rest, mut code) = (Vec::new(), None);
    while let Some(event) = process.next_event().await.unwrap() {
        match event {
            ExecEvent::Chunk(chunk) => rest.extend(chunk.data),
            ExecEvent::FlushAck => {}
            ExecEvent::Exit(exit) => code = Some(exit.exit_code),
        }
    }
    assert_eq!(rest, b"before restart\nafter restart\n");
    assert_eq!(code, Some(137));
    manager.kill(&id, generation).await.unwrap();
    let effects = OwnerRuntime::effects(&state);
    assert_eq!(
        effects,
        [
            "create",
            "start",
            "exec",
            "write-stdin",
            "write-stdin",
            "close-stdin",
            "signal-process",
            "kill",
            "delete",
        ]
    );
    assert!(!state.exists());
    owner.kill().await.unwrap();
}
