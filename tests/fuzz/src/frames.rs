//! What arrives on a socket: at the server, and at the client.

use std::sync::Arc;

use a3sbox_oci::{
    ContainerId, ContainerTarget, Generation, OciRuntimeService, OperationContext, OperationId,
    ProcessId, ProcessTarget, RuntimeTransportClient, StateRequest, WriteStdinRequest,
    serve_transport_connection,
};
use a3sbox_testkit::{RecordingRuntime, RuntimeReport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Room for everything that one run says.
const PIPE_BYTES: usize = 1 << 20;

thread_local! {
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        // A deadline is reached when nothing else can happen, not when a minute is over.
        .start_paused(true)
        .build()
        .unwrap();
}

fn within(future: impl Future<Output = ()>) {
    RUNTIME.with(|runtime| runtime.block_on(future));
}

/// A hostile client.
pub(crate) fn serve(data: &[u8]) {
    within(async {
        let service: Arc<dyn OciRuntimeService> = RecordingRuntime::new(RuntimeReport::default());
        let (mut client, server) = tokio::io::duplex(PIPE_BYTES);
        let served = serve_transport_connection(service, server);
        let spoken = async {
            // The server may have hung up in the middle.
            let _ = client.write_all(data).await;
            let _ = client.shutdown().await;
            let mut said = Vec::new();
            let _ = client.read_to_end(&mut said).await;
        };
        let _ = tokio::join!(served, spoken);
    });
}

/// A hostile server.
pub(crate) fn call(data: &[u8]) {
    within(async {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        let _ = tokio::join!(ask(client), answer(server, data));
    });
}

async fn ask(io: DuplexStream) {
    let Ok(client) = RuntimeTransportClient::from_io(io).await else {
        return;
    };
    let _ = client.features().await;
    let _ = client.state(state()).await;
}

async fn answer(mut io: DuplexStream, data: &[u8]) {
    let _ = io.write_all(data).await;
    let _ = io.shutdown().await;
    let mut said = Vec::new();
    let _ = io.read_to_end(&mut said).await;
}

fn target() -> ContainerTarget {
    ContainerTarget::exact(ContainerId::new("c1").unwrap(), Generation(41))
}

fn state() -> StateRequest {
    StateRequest { target: target() }
}

/// What an honest client says, as it went over the pipe.
pub(crate) fn requests() -> Vec<Vec<u8>> {
    vec![recorded().0]
}

/// What an honest server says.
pub(crate) fn answers() -> Vec<Vec<u8>> {
    vec![recorded().1]
}

/// Both directions of one honest conversation.
fn recorded() -> (Vec<u8>, Vec<u8>) {
    let said = std::cell::RefCell::new((Vec::new(), Vec::new()));
    within(async {
        let service: Arc<dyn OciRuntimeService> = RecordingRuntime::new(RuntimeReport::default());
        let (client_end, client_tap) = tokio::io::duplex(PIPE_BYTES);
        let (server_end, server_tap) = tokio::io::duplex(PIPE_BYTES);
        let talk = async move {
            let client = RuntimeTransportClient::from_io(client_end).await.unwrap();
            client.features().await.unwrap();
            let _ = client.state(state()).await;
            let write = WriteStdinRequest {
                context: OperationContext::new(OperationId::new("op-1").unwrap()),
                process: ProcessTarget {
                    container: target(),
                    process_id: ProcessId::new("p1").unwrap(),
                },
                data: b"some input".to_vec(),
            };
            let _ = client.write_stdin(write).await;
        };
        let (mut from_client, mut to_client) = tokio::io::split(client_tap);
        let (mut from_server, mut to_server) = tokio::io::split(server_tap);
        let up = copy(&mut from_client, &mut to_server, &said, true);
        let down = copy(&mut from_server, &mut to_client, &said, false);
        let served = serve_transport_connection(service, server_end);
        let _ = tokio::join!(talk, up, down, served);
    });
    said.into_inner()
}

async fn copy(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    said: &std::cell::RefCell<(Vec<u8>, Vec<u8>)>,
    up: bool,
) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        hear(said, up, &buffer[..count]);
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

fn hear(said: &std::cell::RefCell<(Vec<u8>, Vec<u8>)>, up: bool, bytes: &[u8]) {
    let mut said = said.borrow_mut();
    let heard = if up { &mut said.0 } else { &mut said.1 };
    heard.extend_from_slice(bytes);
}
