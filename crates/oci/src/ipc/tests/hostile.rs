//! Peers that break the rules, seen from the serving side and from the client.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;

async fn send(stream: &mut DuplexStream, message: &serde_json::Value, tail: &[u8]) {
    let json = message.to_string();
    let lengths = [
        u32::try_from(json.len()).unwrap().to_be_bytes(),
        u32::try_from(tail.len()).unwrap().to_be_bytes(),
    ]
    .concat();
    stream.write_all(&lengths).await.unwrap();
    stream.write_all(json.as_bytes()).await.unwrap();
    stream.write_all(tail).await.unwrap();
}

async fn receive(stream: &mut DuplexStream) -> serde_json::Value {
    let json = usize::try_from(stream.read_u32().await.unwrap()).unwrap();
    let tail = usize::try_from(stream.read_u32().await.unwrap()).unwrap();
    let mut bytes = vec![0; json + tail];
    stream.read_exact(&mut bytes).await.unwrap();
    serde_json::from_slice(&bytes[..json]).unwrap()
}

fn hello() -> serde_json::Value {
    json!({"type": "hello", "protocol_min": 3, "protocol_max": 4})
}

fn request(id: u64, body: serde_json::Value) -> serde_json::Value {
    json!({"type": "request", "protocol": 4, "request_id": id, "request": body})
}

fn state(id: u64) -> serde_json::Value {
    request(
        id,
        json!({"operation": "state", "request": {"target": {"id": "c"}}}),
    )
}

/// A raw peer of a served fake.
fn raw() -> (Arc<Fake>, DuplexStream, JoinHandle<Result<()>>) {
    let fake = Arc::new(Fake::default());
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service: Arc<dyn OciRuntimeService> = Arc::<Fake>::clone(&fake);
    let server = tokio::spawn(serve_transport_connection(service, far));
    (fake, near, server)
}

async fn greeted() -> (Arc<Fake>, DuplexStream, JoinHandle<Result<()>>) {
    let (fake, mut stream, server) = raw();
    send(&mut stream, &hello(), &[]).await;
    assert_eq!(
        receive(&mut stream).await,
        json!({"type": "welcome", "protocol": 4})
    );
    (fake, stream, server)
}

async fn ends_with(server: JoinHandle<Result<()>>, code: ErrorCode) {
    let error = soon("the server ends", server).await.unwrap().unwrap_err();
    assert_eq!(error.code, code, "{error:?}");
}

#[tokio::test]
async fn versions_are_agreed_or_refused() {
    for (min, max, agreed) in [
        (3, 4, Some(4)),
        (1, 3, Some(3)),
        (4, 9, Some(4)),
        (5, 9, None),
        (1, 2, None),
    ] {
        let (_fake, mut stream, server) = raw();
        let hello = json!({"type": "hello", "protocol_min": min, "protocol_max": max});
        send(&mut stream, &hello, &[]).await;
        let reply = receive(&mut stream).await;
        match agreed {
            Some(version) => {
                assert_eq!(reply, json!({"type": "welcome", "protocol": version}));
                drop(stream);
                soon("the server ends", server).await.unwrap().unwrap();
            }
            None => {
                assert_eq!(reply["type"], "reject");
                assert_eq!(reply["error"]["code"], "unsupported");
                ends_with(server, ErrorCode::Unsupported).await;
            }
        }
    }
}

#[tokio::test]
async fn files_need_version_four() {
    let (_fake, mut stream, _server) = raw();
    send(
        &mut stream,
        &json!({"type": "hello", "protocol_min": 3, "protocol_max": 3}),
        &[],
    )
    .await;
    receive(&mut stream).await;
    let request = json!({"type": "request", "protocol": 3, "request_id": 1, "request": {
        "operation": "filesystem",
        "request": {"target": {"id": "c"}, "op": "stat", "path": "/"},
    }});
    send(&mut stream, &request, &[]).await;
    let reply = receive(&mut stream).await;
    assert_eq!(reply["result"]["error"]["code"], "unsupported");
}

#[tokio::test]
async fn a_peer_that_says_nothing_and_leaves_is_a_clean_end() {
    let (_fake, stream, server) = raw();
    drop(stream);
    soon("the server ends", server).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_and_stays_is_given_up() {
    let (_fake, _stream, server) = raw();
    let error = server.await.unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn broken_rules_end_the_connection() {
    let (_fake, mut stream, server) = raw();
    send(&mut stream, &state(1), &[]).await;
    ends_with(server, ErrorCode::Internal).await;

    let offences = [
        (hello(), &b""[..]),
        (state(0), b""),
        (
            json!({"type": "response", "protocol": 4, "request_id": 1}),
            b"",
        ),
        (
            json!({"type": "request", "protocol": 3, "request_id": 1, "request": {}}),
            b"",
        ),
        (json!({"type": "request", "protocol": 4}), b""),
        (json!({"type": "other"}), b""),
        (json!([1, 2]), b""),
        (state(1), b"a tail without segments"),
        (
            json!({"type": "cancel", "protocol": 4, "request_id": 1, "segments": [4294967295_u32, 4294967295_u32]}),
            b"",
        ),
    ];
    for (message, tail) in offences {
        let (_fake, mut stream, server) = greeted().await;
        send(&mut stream, &message, tail).await;
        ends_with(server, ErrorCode::Internal).await;
    }

    let (fake, mut stream, server) = greeted().await;
    let wait = json!({"operation": "wait", "request": {"target": {"id": "hold"}}});
    send(&mut stream, &request(1, wait), &[]).await;
    until("the wait is held", || fake.held() == 1).await;
    send(&mut stream, &state(1), &[]).await;
    ends_with(server, ErrorCode::Internal).await;
    until("the wait ended", || fake.held() == 0).await;

    let (_fake, mut stream, server) = greeted().await;
    stream.write_all(&[0xff; 8]).await.unwrap();
    ends_with(server, ErrorCode::ResourceExhausted).await;
}

#[tokio::test]
async fn malformed_requests_are_answered() {
    let (_fake, mut stream, _server) = greeted().await;
    let table = [
        (json!({"operation": "fly", "request": {}}), "unsupported"),
        (json!({"request": {}}), "invalid-argument"),
        (json!({"operation": "state"}), "invalid-argument"),
        (
            json!({"operation": "state", "request": {"target": {"id": "a/b"}}}),
            "invalid-argument",
        ),
        (
            json!({"operation": "events", "request": {"after_sequence": 0, "limit": 0}}),
            "invalid-argument",
        ),
        (
            json!({"operation": "write-stdin", "request": {
                "context": {"operation_id": "o"},
                "process": {"container": {"id": "c"}, "process_id": "p"}, "data": []}}),
            "invalid-argument",
        ),
    ];
    for (number, (body, code)) in (1..).zip(table) {
        send(&mut stream, &request(number, body), &[]).await;
        let reply = receive(&mut stream).await;
        assert_eq!(reply["request_id"], number);
        assert_eq!(reply["result"]["status"], "error");
        assert_eq!(reply["result"]["error"]["code"], code, "{reply}");
    }
    send(&mut stream, &state(99), &[]).await;
    let reply = receive(&mut stream).await;
    assert_eq!(reply["result"]["response"]["operation"], "state");
}

#[tokio::test]
async fn a_peer_that_does_not_read_stops_being_read() {
    let (fake, mut stream, server) = greeted().await;
    let (done, mut outcome) = tokio::sync::oneshot::channel::<()>();
    // Writes for as long as the server takes requests.
    let flood = tokio::spawn(async move {
        for number in 1..100_000 {
            send(&mut stream, &state(number), &[]).await;
        }
        drop(done);
        stream
    });
    let mut quiet = 0;
    let mut seen = 0;
    soon("the server stops reading", async {
        while quiet < 1_000 {
            tokio::task::yield_now().await;
            let now = fake.asked.lock().unwrap().len();
            quiet = if now == seen { quiet + 1 } else { 0 };
            seen = now;
        }
    })
    .await;
    assert!(outcome.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty));
    // What fits into the pipe was answered; beyond that only the bounded places are taken.
    assert!(seen < 2_000, "{seen} requests were taken");
    flood.abort();
    soon("the server ends", server).await.unwrap().ok();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_is_given_up() {
    let (_fake, mut stream, server) = greeted().await;
    let read = json!({"operation": "read-output", "request": {
        "process": {"container": {"id": "c"}, "process_id": "p"},
        "after_sequence": 1_000_000, "max_bytes": 1_000_000}});
    send(&mut stream, &request(1, read), &[]).await;
    let error = server.await.unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
}

/// A client of a server that this test plays.
async fn played() -> (RuntimeTransportClient, DuplexStream) {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let server = async {
        assert_eq!(receive(&mut far).await, hello());
        send(&mut far, &json!({"type": "welcome", "protocol": 4}), &[]).await;
    };
    let (client, ()) = tokio::join!(RuntimeTransportClient::from_io(near), server);
    (client.unwrap(), far)
}

#[tokio::test]
async fn a_client_gives_up_a_server_that_breaks_the_rules() {
    let ok = json!({"status": "ok", "response": {"operation": "state", "response": record()}});
    let replies = [
        json!({"type": "response", "protocol": 4, "request_id": 7, "result": ok}),
        json!({"type": "response", "protocol": 3, "request_id": 1, "result": ok}),
        json!({"type": "welcome", "protocol": 4}),
        json!({"type": "response", "protocol": 4, "request_id": 1, "result": ok, "segments": [5]}),
        json!("nonsense"),
    ];
    for reply in replies {
        let (client, mut server) = played().await;
        let play = async {
            receive(&mut server).await;
            send(&mut server, &reply, &[]).await;
        };
        let (outcome, ()) = tokio::join!(client.state(StateRequest { target: target() }), play);
        let error = outcome.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unavailable, "{reply}");
        assert!(error.retryable);
    }
}

#[tokio::test]
async fn a_malformed_answer_fails_its_call_alone() {
    let (client, mut server) = played().await;
    let results = [
        json!({"status": "ok", "response": {"operation": "start", "response": record()}}),
        json!({"status": "ok", "response": {"operation": "state", "response": {}}}),
        json!({"status": "ok"}),
        json!({"status": "error"}),
    ];
    for (number, result) in (1..).zip(results) {
        let play = async {
            let asked = receive(&mut server).await;
            assert_eq!(asked["request_id"], number);
            let reply =
                json!({"type": "response", "protocol": 4, "request_id": number, "result": result});
            send(&mut server, &reply, &[]).await;
        };
        let (outcome, ()) = tokio::join!(client.state(StateRequest { target: target() }), play);
        assert_eq!(outcome.unwrap_err().code, ErrorCode::Internal, "{result}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_unavailable_in_time() {
    let (client, _server) = played().await;
    let error = client
        .state(StateRequest { target: target() })
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.retryable);
    let error = client
        .wait(WaitRequest {
            timeout_ms: Some(1_000),
            ..wait("c")
        })
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_once() {
    let (client, mut server) = played().await;
    let client = Arc::new(client);
    let call = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.wait(wait("c")).await }
    });
    assert_eq!(receive(&mut server).await["request_id"], 1);
    call.abort();
    assert_eq!(
        receive(&mut server).await,
        json!({"type": "cancel", "protocol": 4, "request_id": 1})
    );
    // The late answer is taken and thrown away; the connection lives.
    let late = json!({"type": "response", "protocol": 4, "request_id": 1,
        "result": {"status": "error", "error": {"code": "unavailable", "message": "cancelled"}}});
    send(&mut server, &late, &[]).await;
    let play = async {
        let asked = receive(&mut server).await;
        assert_eq!(asked["request_id"], 2);
        let result =
            json!({"status": "ok", "response": {"operation": "state", "response": record()}});
        let reply = json!({"type": "response", "protocol": 4, "request_id": 2, "result": result});
        send(&mut server, &reply, &[]).await;
    };
    let (outcome, ()) = tokio::join!(client.state(StateRequest { target: target() }), play);
    assert_eq!(outcome.unwrap(), record());
}

#[tokio::test]
async fn answers_are_bounded_by_their_verb() {
    let (client, mut server) = played().await;
    let play = async {
        receive(&mut server).await;
        let result = json!({"status": "error", "error": {
            "code": "internal", "message": "m".repeat(2 * 1024 * 1024)}});
        let reply = json!({"type": "response", "protocol": 4, "request_id": 1, "result": result});
        send(&mut server, &reply, &[]).await;
    };
    let (outcome, ()) = tokio::join!(client.state(StateRequest { target: target() }), play);
    assert_eq!(outcome.unwrap_err().code, ErrorCode::Unavailable);
    let error = client
        .state(StateRequest { target: target() })
        .await
        .unwrap_err();
    assert_eq!(
        error.code,
        ErrorCode::Unavailable,
        "the stream was given up"
    );

    let (_fake, mut stream, server) = raw();
    let hello =
        json!({"type": "hello", "protocol_min": 3, "protocol_max": 4, "x": "x".repeat(5_000)});
    send(&mut stream, &hello, &[]).await;
    ends_with(server, ErrorCode::ResourceExhausted).await;
}
