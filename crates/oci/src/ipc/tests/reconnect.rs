//! What a client does when its stream breaks.

use std::path::PathBuf;

use tempfile::TempDir;
use tokio::net::UnixListener;

use super::*;
use crate::ipc::{LocalIpcListener, PeerPolicy};

fn endpoint() -> (TempDir, PathBuf, LocalIpcEndpoint) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime.sock");
    let endpoint = LocalIpcEndpoint::unix_socket(&path).unwrap();
    (folder, path, endpoint)
}

/// Accepts one connection and no more, as a runtime with a single client does.
fn serve_one(path: &PathBuf, fake: &Arc<Fake>) -> JoinHandle<Result<()>> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    let service: Arc<dyn OciRuntimeService> = Arc::<Fake>::clone(fake);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(listener);
        serve_transport_connection(service, stream).await
    })
}

fn state() -> StateRequest {
    StateRequest { target: target() }
}

fn assert_unavailable<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
    assert!(error.retryable, "{error:?}");
}

#[tokio::test]
async fn a_lost_server_is_unavailable_until_another_listens() {
    let (_folder, path, endpoint) = endpoint();
    let fake = Arc::new(Fake::default());
    let first = serve_one(&path, &fake);
    let client = RuntimeClient::connect(&endpoint).await.unwrap();
    client.state(state()).await.unwrap();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_unavailable(soon("after the loss", client.state(state())).await);
    assert_unavailable(soon("nobody listens", client.state(state())).await);
    let second = serve_one(&path, &fake);
    soon("reconnected", client.state(state())).await.unwrap();
    soon("and again", client.state(state())).await.unwrap();
    drop(client);
    soon("the second server ends", second)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_break_fails_every_pending_call_and_resends_none() {
    let (_folder, path, endpoint) = endpoint();
    let fake = Arc::new(Fake::default());
    let first = serve_one(&path, &fake);
    let client = RuntimeClient::connect(&endpoint).await.unwrap();
    let mut pending = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        pending.spawn(async move { client.wait(wait("hold")).await });
    }
    until("all are pending", || fake.held() == 10).await;
    // Someone listens again before the break: a call that was pending must not use it.
    let second = Arc::new(Fake::default());
    let server = serve_one(&path, &second);
    first.abort();
    while let Some(outcome) = soon("a pending call", pending.join_next()).await {
        assert_unavailable(outcome.unwrap());
    }
    assert!(second.asked.lock().unwrap().is_empty());
    soon("the next call", client.state(state())).await.unwrap();
    assert_eq!(second.asked.lock().unwrap().len(), 1);
    drop(client);
    soon("the server ends", server).await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_at_the_same_time_share_one_new_connection() {
    let (_folder, path, endpoint) = endpoint();
    let fake = Arc::new(Fake::default());
    let first = serve_one(&path, &fake);
    let client = RuntimeClient::connect(&endpoint).await.unwrap();
    first.abort();
    let _ = first.await;
    assert_unavailable(client.state(state()).await);
    // It accepts one connection: a second attempt would be refused.
    let server = serve_one(&path, &fake);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        calls.spawn(async move { client.state(state()).await });
    }
    while let Some(outcome) = soon("a call", calls.join_next()).await {
        outcome.unwrap().unwrap();
    }
    drop(client);
    soon("the server ends", server).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_attempt_outlives_the_call_that_began_it() {
    let (_folder, path, endpoint) = endpoint();
    let fake = Arc::new(Fake::default());
    let first = serve_one(&path, &fake);
    let client = RuntimeClient::connect(&endpoint).await.unwrap();
    first.abort();
    let _ = first.await;
    assert_unavailable(client.state(state()).await);
    let server = serve_one(&path, &fake);
    // Polled once: the attempt has begun, then its call goes.
    {
        let mut call = std::pin::pin!(client.state(state()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    soon("the next call", client.state(state())).await.unwrap();
    drop(client);
    soon("the server ends", server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_given_stream_is_not_opened_again() {
    let (_fake, client, server) = pair().await;
    server.abort();
    assert_unavailable(soon("first", client.state(state())).await);
    assert_unavailable(soon("second", client.state(state())).await);
}

#[tokio::test]
async fn dropping_the_last_client_ends_the_server_cleanly() {
    let (_folder, path, endpoint) = endpoint();
    let fake = Arc::new(Fake::default());
    let server = serve_one(&path, &fake);
    let client = RuntimeClient::connect(&endpoint).await.unwrap();
    let clone = client.clone();
    let waiting = tokio::spawn(async move { clone.wait(wait("hold")).await });
    until("the wait is held", || fake.held() == 1).await;
    drop(client);
    tokio::task::yield_now().await;
    assert!(!server.is_finished(), "a clone is still in use");
    waiting.abort();
    soon("the server ends", server).await.unwrap().unwrap();
    until("the wait ended", || fake.held() == 0).await;
}

#[tokio::test]
async fn the_other_platform_is_unavailable() {
    let endpoint = LocalIpcEndpoint::windows_named_pipe(r"\\.\pipe\a3s").unwrap();
    assert_unavailable(RuntimeClient::connect(&endpoint).await);
}

#[tokio::test]
async fn a_listener_serves_many_and_checks_who_comes() {
    let (_folder, path, endpoint) = endpoint();
    let fake: Arc<dyn OciRuntimeService> = Arc::new(Fake::default());
    let listener = LocalIpcListener::bind(&endpoint, PeerPolicy::SameUser)
        .await
        .unwrap();
    assert!(
        LocalIpcListener::bind(&endpoint, PeerPolicy::SameUser)
            .await
            .is_err(),
        "a live socket is left alone"
    );
    let server = tokio::spawn(listener.serve(Arc::clone(&fake)));
    let mut clients = Vec::new();
    for _ in 0..5 {
        let client = RuntimeClient::connect(&endpoint).await.unwrap();
        client.state(state()).await.unwrap();
        clients.push(client);
    }
    server.abort();
    let _ = server.await;
    assert!(path.exists());
    for client in &clients {
        assert_unavailable(soon("a client", client.state(state())).await);
    }
    let listener = LocalIpcListener::bind(&endpoint, PeerPolicy::Users(Vec::new()))
        .await
        .unwrap();
    let server = tokio::spawn(listener.serve(fake));
    assert_unavailable(RuntimeClient::connect(&endpoint).await);
    server.abort();
}
