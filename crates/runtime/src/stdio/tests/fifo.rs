//! Output to fifos and files.

use std::os::fd::AsFd;

use rustix::fs::OFlags;

use super::*;

fn outputs(world: &World) -> StdioUris {
    StdioUris {
        stdout: world.fifo("out"),
        stderr: world.fifo("err"),
        ..StdioUris::default()
    }
}

#[tokio::test]
async fn output_arrives_and_ends_with_the_process() {
    let world = World::new();
    let uris = outputs(&world);
    let (streams, files) = open_files(&uris).await;
    let (out, err) = (client(uris.stdout.clone()), client(uris.stderr.clone()));
    let child = spawn("echo out; echo err >&2; exit 3", files);
    assert_eq!(ended(child).await.code(), Some(3));
    assert!(streams.drained().await);
    assert_eq!(read_all(out).await, b"out\n");
    assert_eq!(read_all(err).await, b"err\n");
    streams.close().await;
}

#[tokio::test]
async fn the_container_gets_blocking_write_only_descriptors() {
    let world = World::new();
    let (_streams, files) = open_files(&outputs(&world)).await;
    for fd in [&files.stdout, &files.stderr] {
        let flags = rustix::fs::fcntl_getfl(fd.as_fd()).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
        assert_eq!(flags & OFlags::RWMODE, OFlags::WRONLY);
    }
    let stdin = rustix::fs::fcntl_getfl(files.stdin.as_fd()).unwrap();
    assert!(!stdin.contains(OFlags::NONBLOCK));
}

#[tokio::test]
async fn no_byte_of_64_mib_is_lost() {
    let world = World::new();
    let uris = outputs(&world);
    let (streams, files) = open_files(&uris).await;
    let out = client(uris.stdout.clone());
    let child = spawn(&many_bytes_script(), files);
    assert_many_bytes(&read_all(out).await);
    assert!(ended(child).await.success());
    streams.close().await;
}

#[tokio::test]
async fn a_client_may_leave_and_another_come() {
    let world = World::new();
    let uris = outputs(&world);
    let (streams, files) = open_files(&uris).await;
    let first = client_end(uris.stdout.clone());
    let go = world.fifo("go").unwrap();
    let child = spawn(&format!("echo a; read line <{go}; echo b"), files);
    let first = blocking(move || {
        let mut first = first;
        let mut bytes = [0_u8; 2];
        first.read_exact(&mut bytes).unwrap();
        bytes
    })
    .await;
    assert_eq!(&first, b"a\n");
    // Nobody reads now: the next write must neither fail nor be lost.
    let second = client(uris.stdout.clone());
    write_input(Some(go), b"go\n").await;
    assert!(ended(child).await.success());
    assert_eq!(read_all(second).await, b"b\n");
    streams.close().await;
}

#[tokio::test]
async fn a_stopped_reader_blocks_the_writer_alone() {
    for pumped in [false, true] {
        let world = World::new();
        let uris = outputs(&world);
        let owner = StdioOwner {
            id: "c1",
            namespace: "ns1",
            pumped,
        };
        let (streams, files) = files(open(StdioSpec::Uris(&uris), &owner).await.unwrap());
        let _stopped = client_end(uris.stdout.clone());
        let full = world.path("full");
        let mut child = spawn(&more_than_a_fifo_script(&full), files);
        if pumped {
            until("all was written", move || full.exists()).await;
        }
        child.kill().unwrap();
        ended(child).await;
        let began = std::time::Instant::now();
        assert_eq!(streams.drained().await, !pumped);
        streams.close().await;
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_pumped_process_loses_nothing() {
    let world = World::new();
    let uris = outputs(&world);
    let owner = StdioOwner {
        id: "c1",
        namespace: "ns1",
        pumped: true,
    };
    let (streams, files) = files(open(StdioSpec::Uris(&uris), &owner).await.unwrap());
    let out = client(uris.stdout.clone());
    let child = spawn(&many_bytes_script(), files);
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    assert_many_bytes(&read_all(out).await);
    streams.close().await;
}

#[tokio::test]
async fn what_outlives_a_pumped_process_writes_on_until_the_close() {
    let world = World::new();
    let uris = outputs(&world);
    let owner = StdioOwner {
        id: "e1",
        namespace: "ns1",
        pumped: true,
    };
    let (streams, files) = files(open(StdioSpec::Uris(&uris), &owner).await.unwrap());
    let out = client_end(uris.stdout.clone());
    let go = world.fifo("go").unwrap();
    let script = format!("(read line <{go}; echo late; exec sleep 5) & echo now");
    let child = spawn(&script, files);
    assert!(ended(child).await.success());
    streams.exited();
    let out = read_until(out, "now").await;
    write_input(Some(go), b"go\n").await;
    let mut out = read_until(out, "late").await;
    assert!(!streams.drained().await);
    // It holds a pipe of ours, not the client's fifo.
    streams.close().await;
    let rest = blocking(move || {
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).unwrap();
        rest
    })
    .await;
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_missing_path_is_named() {
    let world = World::new();
    for (stdin, stdout, terminal) in [
        (None, world.uri("nowhere"), false),
        (world.uri("nowhere"), None, false),
        (None, world.uri("nowhere"), true),
    ] {
        let uris = StdioUris {
            stdin,
            stdout,
            terminal,
            ..StdioUris::default()
        };
        let error = a3sbox_oci::Error::from(open_uris(&uris).await.unwrap_err());
        assert!(
            error.message.contains("nowhere") && error.message.contains("No such file"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn nothing_asked_for_is_the_null_device() {
    let (streams, files) = open_files(&StdioUris::default()).await;
    let child = spawn("cat; echo gone; echo gone >&2", files);
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
}

#[tokio::test]
async fn a_file_is_created_with_its_folders_and_appended_to() {
    let world = World::new();
    let file = world.path("a/b/log");
    let uri = Some(format!("file://{}", file.to_str().unwrap()));
    let uris = StdioUris {
        stdout: uri.clone(),
        stderr: uri,
        ..StdioUris::default()
    };
    for _ in 0..2 {
        let (streams, files) = open_files(&uris).await;
        let child = spawn("echo out; echo err >&2", files);
        assert!(ended(child).await.success());
        assert!(streams.drained().await);
        streams.close().await;
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("out\n").count(), 2);
    assert_eq!(text.matches("err\n").count(), 2);
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&file), 0o644);
    assert_eq!(mode(&world.path("a/b")), 0o755);
}

#[tokio::test]
async fn no_byte_of_a_file_is_lost() {
    let world = World::new();
    let file = world.path("log");
    let uris = StdioUris {
        stdout: Some(format!("file://{}", file.to_str().unwrap())),
        ..StdioUris::default()
    };
    let (streams, files) = open_files(&uris).await;
    let child = spawn(&many_bytes_script(), files);
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    assert_many_bytes(&std::fs::read(&file).unwrap());
}

#[tokio::test]
async fn an_adopted_process_keeps_its_fifo_without_a_client() {
    let world = World::new();
    let uris = outputs(&world);
    let (streams, files) = open_files(&uris).await;
    let go = world.fifo("go").unwrap();
    let child = spawn(&format!("read line <{go}; echo late"), files);
    let adopted = Streams::adopt(Some(&uris));
    // The shim that opened them is gone.
    streams.close().await;
    drop(streams);
    let go = Some(go);
    write_input(go, b"go\n").await;
    assert!(ended(child).await.success());
    let mut reader = OpenOptions::new();
    use std::os::unix::fs::OpenOptionsExt;
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let mut late = reader
        .read(true)
        .custom_flags(nonblocking)
        .open(uris.stdout.unwrap())
        .unwrap();
    let mut text = String::new();
    late.read_to_string(&mut text).unwrap();
    assert_eq!(text, "late\n");
    adopted.close().await;
}
