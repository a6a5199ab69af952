//! Logging binaries, by shell scripts.

use super::*;
use crate::stdio::loggers_settled;

/// A uri that runs a script as the logging binary.
fn logger(script: &str) -> Option<String> {
    let escaped: String = script.bytes().map(|byte| format!("%{byte:02x}")).collect();
    Some(format!("binary:///bin/sh?-c={escaped}"))
}

fn both(script: &str) -> StdioUris {
    StdioUris {
        stdout: logger(script),
        stderr: logger(script),
        ..StdioUris::default()
    }
}

/// Copies both streams to files in the folder.
fn copying(world: &World) -> String {
    let folder = world.folder.path().to_str().unwrap();
    format!(
        "cd {folder}; env >env; exec 5>&-; cat <&4 >err & exec 4<&-; cat <&3 >out; wait; echo done >done"
    )
}

#[tokio::test]
async fn a_logging_binary_gets_both_streams_and_who_it_logs_for() {
    let world = World::new();
    let (streams, files) = open_files(&both(&copying(&world))).await;
    let child = spawn("echo out; echo err >&2", files);
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    within(streams.close()).await;
    let text = |name| std::fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(text("out"), "out\n");
    assert_eq!(text("err"), "err\n");
    assert_eq!(text("done"), "done\n");
    assert!(text("env").contains("CONTAINER_ID=c1\n"));
    assert!(text("env").contains("CONTAINER_NAMESPACE=ns1\n"));
    assert!(!text("env").contains("HOME="));
}

#[tokio::test]
async fn a_logging_binary_loses_nothing() {
    let world = World::new();
    let (streams, files) = open_files(&both(&copying(&world))).await;
    let child = spawn(&many_bytes_script(), files);
    assert!(ended(child).await.success());
    within(streams.close()).await;
    assert_many_bytes(&std::fs::read(world.path("out")).unwrap());
}

#[tokio::test]
async fn a_logging_binary_of_a_terminal_loses_nothing() {
    let world = World::new();
    let uris = StdioUris {
        terminal: true,
        ..both(&copying(&world))
    };
    let (streams, socket) = console(open_uris(&uris).await.unwrap());
    let child = spawn_on_terminal("seq 1 200000", &socket);
    streams.attach_console(socket).await.unwrap();
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    within(streams.close()).await;
    let text = std::fs::read_to_string(world.path("out")).unwrap();
    assert_eq!(text.lines().count(), 200_000);
}

#[tokio::test]
async fn the_death_of_a_logging_binary_is_not_noticed_by_the_process() {
    let (streams, files) = open_files(&both("exec 5>&-; head -c 10 <&3 >/dev/null")).await;
    let child = spawn(&many_bytes_script(), files);
    assert!(ended(child).await.success());
    assert!(streams.drained().await);
    within(streams.close()).await;
}

#[tokio::test]
async fn a_slow_logging_binary_is_asked_to_end_and_holds_nothing_up() {
    let world = World::new();
    let pid = world.path("pid");
    let script = format!(
        "trap 'exit 0' TERM; echo $$ >{}; exec 5>&-; while :; do sleep 0.01; done",
        pid.to_str().unwrap()
    );
    let (streams, files) = open_files(&both(&script)).await;
    let mut child = spawn("exec yes", files);
    child.kill().unwrap();
    ended(child).await;
    let began = std::time::Instant::now();
    assert!(streams.drained().await);
    streams.close().await;
    assert!(began.elapsed() < Duration::from_secs(5));
    within(loggers_settled()).await;
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}

#[tokio::test(start_paused = true)]
async fn a_logging_binary_that_is_never_ready_is_an_error_and_leaves_nothing() {
    let world = World::new();
    let mark = world.folder.path().to_str().unwrap();
    let script = format!(": {mark}; sleep 1000; :");
    let error = open_uris(&both(&script)).await.unwrap_err();
    assert!(
        matches!(error, StdioError::LoggerNotReady { .. }),
        "{error}"
    );
    let left = || {
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(mark))
    };
    // What the binary itself had started ends a moment later.
    until("nothing is left", || !left()).await;
}

#[tokio::test]
async fn a_logging_binary_that_is_missing_is_named() {
    let uris = StdioUris {
        stdout: Some("binary:///no/such/logger".to_owned()),
        ..StdioUris::default()
    };
    let error = a3sbox_oci::Error::from(open_uris(&uris).await.unwrap_err());
    assert!(
        error.message.contains("/no/such/logger") && error.message.contains("No such file"),
        "{error}"
    );
}
