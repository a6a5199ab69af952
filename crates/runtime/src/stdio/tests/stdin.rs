//! Input: field case 01, and what else closes it.

use super::*;

fn with_input(world: &World) -> StdioUris {
    StdioUris {
        stdin: world.fifo("in"),
        stdout: world.fifo("out"),
        ..StdioUris::default()
    }
}

#[tokio::test]
async fn input_that_ends_before_the_start_arrives_whole() {
    for _ in 0..50 {
        let world = World::new();
        let uris = with_input(&world);
        let (streams, files) = open_files(&uris).await;
        let out = client(uris.stdout.clone());
        write_input(uris.stdin.clone(), b"hello\n").await;
        streams.close_stdin();
        let child = spawn("cat", files);
        assert!(ended(child).await.success());
        assert_eq!(read_all(out).await, b"hello\n");
        streams.close().await;
    }
}

#[tokio::test]
async fn closing_right_after_the_start_does_not_overtake() {
    for _ in 0..50 {
        let world = World::new();
        let uris = with_input(&world);
        let (streams, files) = open_files(&uris).await;
        let out = client(uris.stdout.clone());
        write_input(uris.stdin.clone(), b"hello\n").await;
        let child = spawn("cat", files);
        streams.close_stdin();
        streams.close_stdin();
        assert!(ended(child).await.success());
        assert_eq!(read_all(out).await, b"hello\n");
    }
}

#[tokio::test]
async fn closing_without_input_is_an_empty_input() {
    let world = World::new();
    let uris = with_input(&world);
    let (streams, files) = open_files(&uris).await;
    streams.close_stdin();
    let out = client(uris.stdout.clone());
    let child = spawn("wc -c", files);
    assert!(ended(child).await.success());
    assert_eq!(read_all(out).await, b"0\n");
}

#[tokio::test]
async fn a_client_that_closes_its_end_has_detached() {
    let world = World::new();
    let uris = with_input(&world);
    let (streams, files) = open_files(&uris).await;
    let mut out = client_end(uris.stdout.clone());
    let mut child = spawn("cat", files);
    for word in [b"one\n", b"two\n"] {
        write_input(uris.stdin.clone(), word).await;
        let (back, got) = blocking(move || {
            let mut got = [0_u8; 4];
            out.read_exact(&mut got).unwrap();
            (out, got)
        })
        .await;
        out = back;
        assert_eq!(&got, word);
        assert!(child.try_wait().unwrap().is_none());
    }
    streams.close_stdin();
    assert!(ended(child).await.success());
}

#[tokio::test]
async fn no_byte_of_64_mib_of_input_is_lost() {
    let world = World::new();
    let uris = with_input(&world);
    let (streams, files) = open_files(&uris).await;
    let out = client(uris.stdout.clone());
    let child = spawn("sha256sum; cat", files);
    let input: &'static [u8] = Vec::leak(b"0123456789abcde\n".repeat(MANY_BYTES / 16));
    write_input(uris.stdin.clone(), input).await;
    streams.close_stdin();
    assert!(ended(child).await.success());
    let expected = blocking(move || {
        let mut sum = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        sum.stdin.take().unwrap().write_all(input).unwrap();
        sum.wait_with_output().unwrap().stdout
    })
    .await;
    assert_eq!(read_all(out).await, expected);
}

#[tokio::test]
async fn a_process_that_does_not_read_blocks_no_close() {
    let world = World::new();
    let uris = with_input(&world);
    let (streams, files) = open_files(&uris).await;
    let mut child = spawn("exec sleep 1000", files);
    let path = uris.stdin.clone().unwrap();
    let mut fifo = OpenOptions::new().write(true).open(path).unwrap();
    let writer = std::thread::spawn(move || {
        // More than fifo and pipe hold: ends with an error when nobody can take it any more.
        fifo.write_all(&[0_u8; 1024 * 1024]).is_err()
    });
    streams.close_stdin();
    child.kill().unwrap();
    ended(child).await;
    assert!(within(streams.drained()).await);
    within(streams.close()).await;
    assert!(blocking(move || writer.join().unwrap()).await);
}

#[tokio::test]
async fn a_file_as_stdin_is_the_process_own() {
    let world = World::new();
    std::fs::write(world.path("in"), "from a file").unwrap();
    let uris = StdioUris {
        stdin: world.uri("in"),
        stdout: world.fifo("out"),
        ..StdioUris::default()
    };
    let (_streams, files) = open_files(&uris).await;
    let out = client(uris.stdout.clone());
    let child = spawn("cat", files);
    assert!(ended(child).await.success());
    assert_eq!(read_all(out).await, b"from a file");
}
