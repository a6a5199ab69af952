//! Terminals: field case 02, sizes, the end of input, readers that stop.

use a3sbox_oci::TerminalSize;

use super::*;

fn on_terminal(world: &World) -> StdioUris {
    StdioUris {
        stdin: world.fifo("in"),
        stdout: world.fifo("out"),
        terminal: true,
        ..StdioUris::default()
    }
}

#[tokio::test]
async fn long_output_arrives_whole() {
    for _ in 0..5 {
        let world = World::new();
        let uris = on_terminal(&world);
        let (streams, socket) = console(open_uris(&uris).await.unwrap());
        let out = client(uris.stdout.clone());
        let child = spawn_on_terminal("seq 1 200000", &socket);
        streams.attach_console(socket).await.unwrap();
        assert!(ended(child).await.success());
        assert!(streams.drained().await);
        let text = String::from_utf8(read_all(out).await).unwrap();
        let mut lines = text.lines().map(|line| line.trim_end_matches('\r'));
        assert_eq!(lines.clone().count(), 200_000);
        assert_eq!(lines.next_back(), Some("200000"));
        streams.close().await;
    }
}

#[tokio::test]
async fn output_of_a_process_that_ended_before_the_attach_arrives() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let out = client(uris.stdout.clone());
    let child = spawn_on_terminal("echo early", &socket);
    assert!(ended(child).await.success());
    streams.exited();
    streams.attach_console(socket).await.unwrap();
    assert!(streams.drained().await);
    assert_eq!(read_all(out).await, b"early\r\n");
}

#[tokio::test]
async fn a_terminal_without_a_size_gets_80_by_24() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let out = client(uris.stdout.clone());
    let child = spawn_on_terminal("read line; stty size; read line; stty size", &socket);
    streams.attach_console(socket).await.unwrap();
    write_input(uris.stdin.clone(), b"\n").await;
    write_input(uris.stdin.clone(), b"\n").await;
    assert!(ended(child).await.success());
    streams.exited();
    let text = String::from_utf8(read_all(out).await).unwrap();
    assert_eq!(text.matches("24 80").count(), 2, "{text:?}");
}

#[tokio::test]
async fn a_resize_before_and_after_the_attach_counts() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let size = |width, height| TerminalSize { width, height };
    streams.resize(size(100, 30)).unwrap();
    let out = client_end(uris.stdout.clone());
    let child = spawn_on_terminal("read a; stty size; read b; stty size", &socket);
    streams.attach_console(socket).await.unwrap();
    write_input(uris.stdin.clone(), b"\n").await;
    let out = read_until(out, "30 100").await;
    streams.resize(size(120, 40)).unwrap();
    write_input(uris.stdin.clone(), b"\n").await;
    read_until(out, "40 120").await;
    assert!(ended(child).await.success());
}

#[tokio::test]
async fn resize_without_a_terminal_is_refused() {
    let (streams, _files) = open_files(&StdioUris::default()).await;
    let size = TerminalSize {
        width: 80,
        height: 24,
    };
    assert!(matches!(streams.resize(size), Err(StdioError::NoTerminal)));
}

#[tokio::test]
async fn closing_the_input_ends_a_program_that_reads_lines() {
    for input in [b"line\n".as_slice(), b"part".as_slice(), b"".as_slice()] {
        let world = World::new();
        let uris = on_terminal(&world);
        let (streams, socket) = console(open_uris(&uris).await.unwrap());
        let out = client(uris.stdout.clone());
        let child = spawn_on_terminal("stty -echo; cat; echo end", &socket);
        streams.attach_console(socket).await.unwrap();
        if !input.is_empty() {
            write_input(uris.stdin.clone(), input).await;
        }
        streams.close_stdin();
        assert!(ended(child).await.success());
        streams.exited();
        let text = read_all(out).await;
        assert!(
            text.ends_with(b"end\r\n"),
            "{:?}",
            String::from_utf8_lossy(&text)
        );
    }
}

#[tokio::test]
async fn a_terminal_that_was_closed_and_opened_again_goes_on() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let out = client(uris.stdout.clone());
    let (closed, go) = (world.path("closed"), world.fifo("go").unwrap());
    let script = format!(
        "t=$(tty); echo first; exec 0</dev/null 1>/dev/null 2>&1; : >{}; read line <{go}; exec >$t; echo second",
        closed.to_str().unwrap()
    );
    let child = spawn_on_terminal(&script, &socket);
    streams.attach_console(socket).await.unwrap();
    until("the terminal was closed", move || closed.exists()).await;
    write_input(Some(go), b"go\n").await;
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    assert_eq!(read_all(out).await, b"first\r\nsecond\r\n");
}

#[tokio::test]
async fn a_stopped_reader_blocks_neither_the_kill_nor_the_close() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let _stopped = client_end(uris.stdout.clone());
    let full = world.path("full");
    let mut child = spawn_on_terminal(&more_than_a_fifo_script(&full), &socket);
    streams.attach_console(socket).await.unwrap();
    until("all was written", move || full.exists()).await;
    child.kill().unwrap();
    ended(child).await;
    let began = std::time::Instant::now();
    assert!(!streams.drained().await);
    streams.close().await;
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_background_process_on_the_terminal_holds_nothing_up() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let out = client(uris.stdout.clone());
    let child = spawn_on_terminal("sleep 5 & echo main", &socket);
    streams.attach_console(socket).await.unwrap();
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    assert_eq!(read_all(out).await, b"main\r\n");
    streams.close().await;
}

#[tokio::test]
async fn something_else_than_a_terminal_is_refused() {
    let world = World::new();
    let uris = on_terminal(&world);
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let path = socket.path().to_owned();
    send_descriptor(&path, &File::open("/dev/null").unwrap().into());
    let refused = streams.attach_console(socket).await;
    assert!(matches!(refused, Err(StdioError::NotAConsole)));
    assert!(!path.exists());
}

#[tokio::test]
async fn a_terminal_writes_to_a_file() {
    let world = World::new();
    let uris = StdioUris {
        stdout: Some(format!("file://{}", world.path("log").to_str().unwrap())),
        terminal: true,
        ..StdioUris::default()
    };
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let child = spawn_on_terminal("echo logged", &socket);
    streams.attach_console(socket).await.unwrap();
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    assert_eq!(std::fs::read(world.path("log")).unwrap(), b"logged\r\n");
}
