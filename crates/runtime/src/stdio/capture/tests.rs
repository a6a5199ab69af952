//! The cursor and the bounds of the output log.

use super::*;
use OutputStream::{Stderr, Stdout};

fn both(overflow: Overflow, limit: usize) -> OutputLog {
    OutputLog::with_limit(vec![Stdout, Stderr], overflow, limit)
}

async fn now(log: &OutputLog, after: u64, max: usize) -> Vec<OutputChunk> {
    log.read(after, max, None).await
}

#[tokio::test]
async fn twelve_and_twelve_bytes_give_12_24_25_26() {
    let log = both(Overflow::Block, 1024);
    log.append(Stdout, b"fake stdout\n");
    log.append(Stderr, b"fake stderr\n");
    log.end(Stdout);
    log.end(Stderr);
    let chunks = now(&log, 0, 1024).await;
    let told: Vec<_> = chunks
        .iter()
        .map(|c| (c.sequence, c.stream, c.eof))
        .collect();
    assert_eq!(
        told,
        [
            (12, Stdout, false),
            (24, Stderr, false),
            (25, Stdout, true),
            (26, Stderr, true)
        ]
    );
    assert_eq!(now(&log, 24, 1024).await.len(), 2);
    assert_eq!(now(&log, 26, 1024).await, []);
}

#[tokio::test]
async fn chunks_are_contiguous_for_any_cursor_and_size() {
    let log = both(Overflow::Block, 1024);
    log.append(Stdout, b"abcde");
    log.append(Stderr, b"FGH");
    log.append(Stdout, b"ij");
    for max in 1..12 {
        let mut cursor = 0;
        let mut seen = Vec::new();
        loop {
            let chunks = now(&log, cursor, max).await;
            if chunks.is_empty() {
                break;
            }
            assert!(chunks.iter().map(|c| c.data.len()).sum::<usize>() <= max);
            for chunk in chunks {
                assert_eq!(chunk.sequence, cursor + units(&chunk.data));
                cursor = chunk.sequence;
                seen.extend(chunk.data);
            }
        }
        assert_eq!(seen, b"abcdeFGHij");
    }
    assert_eq!(now(&log, 2, 2).await[0].data, b"cd");
    assert_eq!(now(&log, 99, 2).await, []);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again() {
    let log = both(Overflow::Block, 16);
    log.append(Stdout, b"0123456789");
    let first = now(&log, 0, 4).await;
    assert_eq!(first, now(&log, 0, 4).await);
}

#[tokio::test]
async fn a_full_buffer_waits_for_the_reader() {
    let log = both(Overflow::Block, 8);
    log.append(Stdout, b"01234567");
    assert!(log.is_full());
    let waiting = log.wait_room();
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        () = &mut waiting => panic!("there is no room"),
        () = tokio::task::yield_now() => {}
    }
    now(&log, 8, 8).await;
    waiting.await;
    log.append(Stdout, b"89");
    assert_eq!(now(&log, 8, 8).await[0].data, b"89");
}

#[tokio::test]
async fn an_unread_log_of_init_drops_the_oldest_and_shows_the_gap() {
    let log = OutputLog::with_limit(vec![Stdout], Overflow::DropOldest, SEGMENT_BYTES);
    log.append(Stdout, &vec![b'a'; SEGMENT_BYTES]);
    log.append(Stdout, b"new");
    assert_eq!(log.dropped(), u64::try_from(SEGMENT_BYTES).unwrap());
    let chunks = now(&log, 0, 1024).await;
    assert_eq!(chunks[0].data, b"new");
    assert_ne!(chunks[0].sequence, units(&chunks[0].data));
}

#[tokio::test]
async fn a_read_waits_for_output_and_not_longer() {
    let log = std::sync::Arc::new(both(Overflow::Block, 1024));
    let nothing = log.read(0, 10, Some(Duration::from_millis(5))).await;
    assert_eq!(nothing, []);
    let reader = tokio::spawn({
        let log = std::sync::Arc::clone(&log);
        async move { log.read(0, 10, Some(Duration::from_secs(10))).await }
    });
    tokio::task::yield_now().await;
    log.append(Stderr, b"x");
    assert_eq!(reader.await.unwrap()[0].data, b"x");
}

#[tokio::test]
async fn a_finished_log_answers_at_once() {
    let log = OutputLog::with_limit(vec![Stdout], Overflow::Block, 8);
    log.end(Stdout);
    let chunks = log.read(0, 8, Some(Duration::from_secs(60))).await;
    assert_eq!((chunks[0].sequence, chunks[0].eof), (1, true));
    assert_eq!(log.read(1, 8, Some(Duration::from_secs(60))).await, []);
}
