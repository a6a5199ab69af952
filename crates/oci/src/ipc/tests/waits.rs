//! Calls that wait block nobody, and end when nobody waits for them.

use super::*;

#[tokio::test]
async fn a_wait_blocks_no_other_call() {
    let (fake, client, _server) = pair().await;
    let client = RuntimeClient::new(client);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait(wait("hold")).await }
    });
    until("the wait is held", || fake.held() == 1).await;
    for _ in 0..100 {
        soon("state", client.state(StateRequest { target: target() }))
            .await
            .unwrap();
    }
    fake.release.notify_one();
    let status = soon("the wait ends", waiting).await.unwrap().unwrap();
    assert_eq!(status.signal, Some(9));
}

#[tokio::test]
async fn answers_find_their_requests_in_any_order() {
    let (fake, client, _server) = pair().await;
    let client = Arc::new(client);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200_u32 {
        let client = Arc::clone(&client);
        calls.spawn(async move {
            let bytes = u64::from(number);
            let request = ReadOutputRequest {
                process: process(),
                after_sequence: bytes,
                max_bytes: 1,
                wait_timeout_ms: (number % 3 == 0).then_some(60_000),
            };
            assert_eq!(
                client.read_output(request).await.unwrap(),
                chunks(usize::try_from(bytes).unwrap())
            );
        });
    }
    until("every third is held", || fake.held() == 67).await;
    for _ in 0..67 {
        fake.release.notify_one();
        tokio::task::yield_now().await;
    }
    soon("all answers", async {
        while let Some(call) = calls.join_next().await {
            call.unwrap();
            fake.release.notify_waiters();
        }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_wait_ends_at_the_service() {
    let (fake, client, _server) = pair().await;
    let client = Arc::new(client);
    let waiting = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.wait(wait("hold")).await }
    });
    until("the wait is held", || fake.held() == 1).await;
    waiting.abort();
    until("the wait ended", || fake.held() == 0).await;
    client
        .state(StateRequest { target: target() })
        .await
        .unwrap();
}

#[tokio::test]
async fn waits_have_a_bound_and_leave_room_for_calls() {
    let (fake, client, _server) = pair().await;
    let client = Arc::new(client);
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..MAX_WAITS_IN_FLIGHT {
        let client = Arc::clone(&client);
        waits.spawn(async move { client.wait(wait("hold")).await });
    }
    until("all waits are held", || fake.held() == MAX_WAITS_IN_FLIGHT).await;
    let error = client.wait(wait("hold")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ResourceExhausted);
    assert!(error.retryable);
    soon("state", client.state(StateRequest { target: target() }))
        .await
        .unwrap();
    waits.abort_all();
    until("all waits ended", || fake.held() == 0).await;
    // The places come back with the answers to the dropped waits.
    soon("a place", async {
        while client.wait(wait("c")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn reads_beyond_the_promised_bytes_get_less_but_are_not_held_up() {
    let (fake, client, _server) = pair().await;
    let client = Arc::new(client);
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let client = Arc::clone(&client);
        reads.spawn(async move {
            client
                .read_output(ReadOutputRequest {
                    process: process(),
                    after_sequence: 0,
                    max_bytes: MAX_OUTPUT_READ_BYTES,
                    wait_timeout_ms: Some(60_000),
                })
                .await
        });
    }
    until("all reads are held", || fake.held() == 6).await;
    let mut asked = fake.reads.lock().unwrap().clone();
    asked.sort_unstable();
    assert_eq!(asked[..2], [64 * 1024; 2]);
    assert_eq!(asked[2..], [MAX_OUTPUT_READ_BYTES; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_dropped_calls_on_several_threads_find_their_answers() {
    let (fake, client, server) = pair().await;
    let client = Arc::new(client);
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..8_u64 {
        let client = Arc::clone(&client);
        callers.spawn(async move {
            for round in 0..200_u64 {
                let bytes = caller * 1_000 + round;
                let answer = client.read_output(ReadOutputRequest {
                    process: process(),
                    after_sequence: bytes,
                    max_bytes: 1,
                    wait_timeout_ms: None,
                });
                assert_eq!(
                    answer.await.unwrap(),
                    chunks(usize::try_from(bytes).unwrap())
                );
                // Dropped at some point between being queued and being answered.
                let dropped = client.wait(wait("hold"));
                let _ = tokio::time::timeout(Duration::from_micros(round * 5), dropped).await;
            }
        });
    }
    soon("all callers", async {
        while let Some(outcome) = callers.join_next().await {
            outcome.unwrap();
        }
    })
    .await;
    until("no wait is left", || fake.held() == 0).await;
    drop(client);
    soon("the server ends", server).await.unwrap().unwrap();
}
