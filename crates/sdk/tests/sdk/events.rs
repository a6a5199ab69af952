//! The stream of events.

use std::collections::BTreeMap;

use a3sbox_core::*;
use a3sbox_sdk::{ClientError, SandboxEventStreamOptions};

use crate::fake::{Call, refused, world};

fn batch(sequences: &[u64], next_sequence: u64) -> ExecutionEventBatch {
    ExecutionEventBatch {
        execution_id: ExecutionId::new("execution-1").unwrap(),
        generation: ExecutionGeneration::INITIAL,
        events: sequences
            .iter()
            .map(|sequence| ExecutionRuntimeEvent {
                sequence: *sequence,
                timestamp_unix_ns: 1,
                process_id: None,
                kind: ExecutionEventKind::ProcessExited,
                attributes: BTreeMap::new(),
            })
            .collect(),
        next_sequence,
    }
}

#[tokio::test]
async fn batches_become_one_stream_and_the_first_error_ends_it() {
    let world = world();
    let sandbox = world.sandbox().await;
    world
        .fake
        .answer_events(vec![batch(&[5, 6], 6), batch(&[], 6), batch(&[9], 9)]);
    let mut stream = sandbox
        .stream_events(SandboxEventStreamOptions {
            after_sequence: 4,
            ..SandboxEventStreamOptions::default()
        })
        .unwrap();
    for sequence in [5, 6, 9] {
        assert_eq!(stream.next().await.unwrap().unwrap().sequence, sequence);
    }
    assert!(matches!(
        stream.next().await,
        Some(Err(ClientError::Execution(_)))
    ));
    assert!(stream.next().await.is_none());
    let cursors: Vec<_> = world
        .fake
        .calls()
        .into_iter()
        .map(|call| match call {
            Call::Events(1, request) => {
                assert_eq!((request.limit, request.wait_timeout_ms), (256, Some(1000)));
                request.after_sequence
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(cursors, [4, 6, 6, 9]);
}

#[tokio::test]
async fn a_batch_that_goes_back_is_an_error() {
    let world = world();
    let sandbox = world.sandbox().await;
    world
        .fake
        .answer_events(vec![batch(&[2], 2), batch(&[1], 3)]);
    let mut stream = sandbox
        .stream_events(SandboxEventStreamOptions::default())
        .unwrap();
    stream.next().await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap_err();
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn options_out_of_bounds_are_refused_without_a_call() {
    let world = world();
    let sandbox = world.sandbox().await;
    for (batch_items, wait_timeout_ms) in [(0, 1), (4097, 1), (1, 0)] {
        refused(sandbox.stream_events(SandboxEventStreamOptions {
            after_sequence: 0,
            batch_items,
            wait_timeout_ms,
        }));
    }
    assert_eq!(world.fake.calls(), []);
}
