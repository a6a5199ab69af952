//! The backend over a local socket.

use std::sync::Arc;

use a3sbox_core::{ExecutionIsolation, ExecutionManager, ExecutionManagerError, ReconcileOutcome};
use a3sbox_oci::{OciRuntimeService, serve_transport_connection};
use a3sbox_testkit::{RecordingRuntime, RuntimeReport};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::super::OciLocalExecutionBackend;
use super::provider::TestProvider;
use super::{endpoint, manager, operation, request};

/// Serves one client, and refuses every other one.
fn serve(
    runtime: &Arc<RecordingRuntime>,
    socket: &std::path::Path,
) -> JoinHandle<a3sbox_oci::Result<()>> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap();
    let service: Arc<dyn OciRuntimeService> = runtime.clone();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(listener);
        serve_transport_connection(service, stream).await
    })
}

#[tokio::test]
async fn retained_backend_reconnects_and_reconciles_after_local_runtime_server_restart() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = endpoint(&folder);
    let socket = endpoint.as_unix_socket().unwrap().to_path_buf();
    let runtime = RecordingRuntime::new(RuntimeReport::default());
    let provider = Arc::new(TestProvider::default());
    let server = serve(&runtime, &socket);
    let backend = OciLocalExecutionBackend::connect(endpoint.clone(), provider.clone())
        .await
        .unwrap();
    let manager = manager(&folder, backend);
    let operation_id = operation("connected");
    let lease = manager
        .create_and_start(request(ExecutionIsolation::Sandbox), &operation_id)
        .await
        .unwrap();

    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    let lost = manager.reconcile(&operation_id).await;
    assert!(
        matches!(lost, Err(ExecutionManagerError::Unavailable(_))),
        "{lost:?}"
    );

    let server = serve(&runtime, &socket);
    let outcome = manager.reconcile(&operation_id).await.unwrap();
    let ReconcileOutcome::Ready(again) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(again.execution_id, lease.execution_id);
    assert_eq!(again.generation, lease.generation);
    let recorded = runtime.recorded();
    assert_eq!((recorded.creates.len(), recorded.starts.len()), (1, 1));
    assert_eq!(provider.counts().prepares, 1);
    drop(manager);
    server.await.unwrap().unwrap();
}
