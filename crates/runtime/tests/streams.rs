//! containerd's stdio names, terminals, statistics and lack of memory, on a real engine.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use a3sbox_oci::{
    CloseStdinRequest, ContainerTarget, DeleteMode, EventsRequest, OciRuntimeService,
    ReadOutputRequest, ResizeRequest, RuntimeEventKind, STDIO_EXTENSION, STDIO_EXTENSION_VERSION,
    StatsRequest, StdioUris, TerminalSize,
};
use serde_json::Value;
use support::{World, context, eventually, init_of, target};

fn fifo(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    let _ = std::fs::remove_file(&path);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    path.to_str().unwrap().to_owned()
}

/// Reads a fifo to its end, as containerd does.
fn reader(path: &str) -> std::thread::JoinHandle<Vec<u8>> {
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    })
}

async fn create_with(world: &World, spec: &Value, stdio: &StdioUris) -> ContainerTarget {
    let mut request = world.create_request(spec).await;
    request.attachments = request
        .attachments
        .with_extension(
            STDIO_EXTENSION,
            STDIO_EXTENSION_VERSION,
            true,
            serde_json::to_value(stdio).unwrap(),
        )
        .unwrap();
    target(&world.service.create(request).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_that_ends_before_the_start_is_not_lost() {
    let world = World::new().await;
    for (command, bytes, expected) in [
        (vec!["cat"], "hello\n", "hello\n"),
        (vec!["wc", "-c"], "", "0\n"),
    ] {
        for round in 0..5 {
            let stdio = StdioUris {
                stdin: Some(fifo(world.folder(), "in")),
                stdout: Some(fifo(world.folder(), "out")),
                ..StdioUris::default()
            };
            let out = reader(stdio.stdout.as_deref().unwrap());
            let container = create_with(&world, &world.spec(&command), &stdio).await;
            let mut input = std::fs::OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(stdio.stdin.as_deref().unwrap())
                .unwrap();
            input.write_all(bytes.as_bytes()).unwrap();
            drop(input);
            let close = CloseStdinRequest {
                context: context(),
                process: init_of(&container),
            };
            // Before and after the start.
            if round % 2 == 0 {
                world.service.close_stdin(close).await.unwrap();
                world.start(&container).await;
            } else {
                world.start(&container).await;
                world.service.close_stdin(close).await.unwrap();
            }
            assert_eq!(world.wait(&container).await.unwrap().exit_code, Some(0));
            world
                .delete(&container, DeleteMode::StoppedOnly)
                .await
                .unwrap();
            assert_eq!(String::from_utf8(out.join().unwrap()).unwrap(), expected);
        }
    }
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_terminal_has_a_size_and_gets_another() {
    let world = World::new().await;
    let mut spec = world.spec(&[
        "sh",
        "-c",
        "trap 'stty size; exit 0' WINCH; stty size; while :; do sleep 0.02; done",
    ]);
    spec["process"]["terminal"] = true.into();
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    let text = || async {
        let chunks = world
            .service
            .read_output(ReadOutputRequest {
                process: init_of(&container),
                after_sequence: 0,
                max_bytes: 4096,
                wait_timeout_ms: Some(100),
            })
            .await
            .unwrap();
        let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.data).collect();
        String::from_utf8(bytes).unwrap()
    };
    while !text().await.contains("24 80") {
        tokio::task::yield_now().await;
    }
    world
        .service
        .resize(ResizeRequest {
            context: context(),
            process: init_of(&container),
            size: TerminalSize {
                width: 132,
                height: 50,
            },
        })
        .await
        .unwrap();
    assert_eq!(world.wait(&container).await.unwrap().exit_code, Some(0));
    while !text().await.contains("50 132") {
        tokio::task::yield_now().await;
    }
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn statistics_are_the_kernels() {
    let world = World::new().await;
    let container = world
        .run(&[
            "sh",
            "-c",
            "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 1000",
        ])
        .await;
    let stats = || async {
        world
            .service
            .stats(StatsRequest {
                target: container.clone(),
            })
            .await
            .unwrap()
    };
    while stats().await.cpu.usage_ns == 0 {
        tokio::task::yield_now().await;
    }
    let stats = stats().await;
    stats.validate().unwrap();
    assert!(stats.process_count >= 1);
    assert!(stats.memory.usage_bytes > 0);
    world.delete(&container, DeleteMode::Force).await.unwrap();
}

#[tokio::test]
async fn lack_of_memory_is_told_before_the_exit() {
    let world = World::new().await;
    let mut spec = world.spec(&["dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"]);
    spec["linux"]["resources"] = serde_json::json!({ "memory": { "limit": 16 << 20 } });
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    let status = world.wait(&container).await.unwrap();
    assert_eq!(status.signal, Some(9));
    assert!(status.oom_killed);
    let events = world
        .service
        .events(EventsRequest {
            container: Some(container.clone()),
            after_sequence: 0,
            limit: 100,
            wait_timeout_ms: None,
        })
        .await
        .unwrap()
        .events;
    let place = |kind| events.iter().position(|event| event.kind == kind).unwrap();
    assert!(place(RuntimeEventKind::OutOfMemory) < place(RuntimeEventKind::ContainerStopped));
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_missing_stream_or_engine_leaves_nothing() {
    let world = World::new().await;
    let spec = world.spec(&["true"]);
    let mut request = world.create_request(&spec).await;
    let stdio = StdioUris {
        stdout: Some("/no/such/fifo".to_owned()),
        ..StdioUris::default()
    };
    request.attachments = request
        .attachments
        .with_extension(
            STDIO_EXTENSION,
            STDIO_EXTENSION_VERSION,
            true,
            serde_json::to_value(&stdio).unwrap(),
        )
        .unwrap();
    let error = world.service.create(request).await.unwrap_err();
    assert!(error.message.contains("/no/such/fifo"), "{error}");
    world.assert_nothing_left();

    for (binary, expected) in [
        (
            "no-such-engine",
            "OCI runtime create failed: exec: \"no-such-engine\": executable file not found in $PATH",
        ),
        (
            "/no/such/engine",
            "OCI runtime create failed: fork/exec /no/such/engine: no such file or directory",
        ),
    ] {
        let mut request = world.create_request(&spec).await;
        request.attachments = request
            .attachments
            .with_extension(
                a3sbox_oci::ENGINE_EXTENSION,
                a3sbox_oci::ENGINE_EXTENSION_VERSION,
                true,
                serde_json::json!({ "binary": binary }),
            )
            .unwrap();
        let error = world.service.create(request).await.unwrap_err();
        assert_eq!(error.message, expected);
        world.assert_nothing_left();
    }

    let mut request = world.create_request(&spec).await;
    request.attachments = request
        .attachments
        .with_extension(
            a3sbox_oci::ENGINE_EXTENSION,
            a3sbox_oci::ENGINE_EXTENSION_VERSION,
            true,
            serde_json::json!({ "sytemdCgroup": true }),
        )
        .unwrap();
    let error = world.service.create(request).await.unwrap_err();
    assert_eq!(error.code, a3sbox_oci::ErrorCode::InvalidArgument);
    assert!(error.message.contains("sytemdCgroup"), "{error}");
}

#[tokio::test]
async fn checkpoint_without_criu_is_refused_before_any_effect() {
    let world = World::new().await;
    if std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .any(|folder| folder.join("criu").is_file())
    {
        eprintln!("skipped: CRIU is installed");
        return;
    }
    let container = world.run(&["sleep", "1000"]).await;
    let error = world
        .service
        .checkpoint(a3sbox_oci::CheckpointRequest {
            context: context(),
            target: container.clone(),
            image_path: world.folder().join("image"),
            work_path: None,
            exit: true,
            open_tcp: false,
            external_unix_sockets: false,
            terminal: false,
            file_locks: false,
            empty_namespaces: Vec::new(),
            cgroups_mode: None,
        })
        .await
        .unwrap_err();
    assert_eq!(error.code, a3sbox_oci::ErrorCode::Unsupported);
    assert!(!world.folder().join("image").exists());
    world.delete(&container, DeleteMode::Force).await.unwrap();
    eventually("nothing is left", || {
        !world.root().join(container.id.as_str()).exists()
    })
    .await;
}
