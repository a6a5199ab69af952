//! The contract's own modes: captured output and written input.

use a3sbox_oci::{IoMode, OutputChunk, OutputStream, ProcessIo, TerminalSize};

use super::*;
use crate::stdio::Overflow;

async fn open_io(io: &ProcessIo) -> (Streams, ChildStdio) {
    let owner = StdioOwner {
        id: "c1",
        namespace: "ns1",
        pumped: false,
    };
    let overflow = Overflow::Block;
    open(StdioSpec::Io { io, overflow }, &owner).await.unwrap()
}

fn session(stdin: IoMode) -> ProcessIo {
    ProcessIo {
        stdin,
        stdout: IoMode::Capture,
        stderr: IoMode::Capture,
        terminal_size: None,
    }
}

/// Reads to the given number of ends, checking the cursor on the way.
async fn read_to_end(streams: &Streams, ends: usize) -> Vec<OutputChunk> {
    let mut all: Vec<OutputChunk> = Vec::new();
    let mut cursor = 0;
    while all.iter().filter(|chunk| chunk.eof).count() < ends {
        let wait = Some(Duration::from_secs(10));
        let chunks = within(streams.read_output(cursor, 1 << 20, wait))
            .await
            .unwrap();
        for chunk in chunks {
            let units = u64::try_from(chunk.data.len()).unwrap().max(1);
            assert_eq!(chunk.sequence, cursor + units);
            cursor = chunk.sequence;
            all.push(chunk);
        }
    }
    all
}

fn text(chunks: &[OutputChunk], stream: OutputStream) -> Vec<u8> {
    chunks
        .iter()
        .filter(|chunk| chunk.stream == stream)
        .flat_map(|chunk| chunk.data.clone())
        .collect()
}

#[tokio::test]
async fn output_is_read_by_cursor_and_ends_are_told_last() {
    let (streams, files) = files(open_io(&session(IoMode::Null)).await);
    let child = spawn("echo fake stdout; echo fake stderr >&2", files);
    assert!(ended(child).await.success());
    streams.exited();
    let chunks = read_to_end(&streams, 2).await;
    assert_eq!(text(&chunks, OutputStream::Stdout), b"fake stdout\n");
    assert_eq!(text(&chunks, OutputStream::Stderr), b"fake stderr\n");
    let ends: Vec<_> = chunks[chunks.len() - 2..]
        .iter()
        .map(|chunk| (chunk.sequence, chunk.stream, chunk.eof))
        .collect();
    assert_eq!(
        ends,
        [
            (25, OutputStream::Stdout, true),
            (26, OutputStream::Stderr, true)
        ]
    );
}

#[tokio::test]
async fn no_captured_byte_is_lost_with_a_bounded_buffer() {
    let (streams, files) = files(open_io(&session(IoMode::Null)).await);
    let child = spawn(&many_bytes_script(), files);
    let chunks = read_to_end(&streams, 2).await;
    assert!(ended(child).await.success());
    assert_many_bytes(&text(&chunks, OutputStream::Stdout));
    assert_eq!(streams.dropped_output(), 0);
}

#[tokio::test]
async fn written_input_arrives_in_order_and_can_be_closed() {
    let (streams, files) = files(open_io(&session(IoMode::Pipe)).await);
    let child = spawn("cat", files);
    for word in ["one ", "two ", "three"] {
        streams.write_stdin(word.into()).await.unwrap();
    }
    streams.close_stdin();
    assert!(matches!(
        streams.write_stdin(b"late".to_vec()).await,
        Err(StdioError::StdinClosed)
    ));
    assert!(ended(child).await.success());
    let chunks = read_to_end(&streams, 2).await;
    assert_eq!(text(&chunks, OutputStream::Stdout), b"one two three");
}

#[tokio::test]
async fn the_largest_write_is_accepted_at_once() {
    let (streams, files) = files(open_io(&session(IoMode::Pipe)).await);
    let input = vec![b'x'; a3sbox_oci::MAX_STDIN_WRITE_BYTES];
    within(streams.write_stdin(input.clone())).await.unwrap();
    streams.close_stdin();
    let child = spawn("wc -c", files);
    assert!(ended(child).await.success());
    let chunks = read_to_end(&streams, 2).await;
    let counted = format!("{}\n", input.len());
    assert_eq!(text(&chunks, OutputStream::Stdout), counted.as_bytes());
}

#[tokio::test]
async fn writing_to_a_process_that_ended_is_refused() {
    let (streams, files) = files(open_io(&session(IoMode::Pipe)).await);
    let child = spawn("exit 0", files);
    assert!(ended(child).await.success());
    streams.exited();
    read_to_end(&streams, 2).await;
    let write = async {
        loop {
            if let Err(error) = streams.write_stdin(b"x".to_vec()).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(matches!(within(write).await, StdioError::StdinClosed));
}

#[tokio::test]
async fn a_background_process_does_not_hold_the_ends_back() {
    let (streams, files) = files(open_io(&session(IoMode::Null)).await);
    let child = spawn("sleep 5 & echo main", files);
    assert!(ended(child).await.success());
    streams.exited();
    let began = std::time::Instant::now();
    let chunks = read_to_end(&streams, 2).await;
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(text(&chunks, OutputStream::Stdout), b"main\n");
}

#[tokio::test]
async fn a_session_on_a_terminal_merges_its_output() {
    let io = ProcessIo {
        stdin: IoMode::Terminal,
        stdout: IoMode::Terminal,
        stderr: IoMode::Terminal,
        terminal_size: Some(TerminalSize {
            width: 132,
            height: 43,
        }),
    };
    let (streams, socket) = console(open_io(&io).await);
    let child = spawn_on_terminal("stty -echo; read line; stty size; echo $line >&2", &socket);
    streams.attach_console(socket).await.unwrap();
    streams.write_stdin(b"typed\n".to_vec()).await.unwrap();
    assert!(ended(child).await.success());
    streams.exited();
    let chunks = read_to_end(&streams, 1).await;
    let seen = text(&chunks, OutputStream::Stdout);
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.ends_with("43 132\r\ntyped\r\n"), "{seen:?}");
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.stream == OutputStream::Stdout)
    );
}

#[tokio::test]
async fn uncaptured_output_and_unpiped_input_are_refused() {
    let io = ProcessIo {
        stdin: IoMode::Null,
        stdout: IoMode::Null,
        stderr: IoMode::Null,
        terminal_size: None,
    };
    let (streams, _files) = files(open_io(&io).await);
    assert!(matches!(
        streams.read_output(0, 1, None).await,
        Err(StdioError::NotCaptured)
    ));
    assert!(matches!(
        streams.write_stdin(b"x".to_vec()).await,
        Err(StdioError::StdinNotPiped)
    ));
}
