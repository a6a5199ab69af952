//! Streaming processes and terminals.

use a3sbox_core::exec::{ExecRequest, StreamType};
use a3sbox_core::pty::PtyRequest;
use a3sbox_core::{
    ExecEvent, ExecutionIsolation, ExecutionProcess, ExecutionProcessSignal,
    ExecutionSessionManager,
};
use a3sbox_oci::{RuntimeOperation, TerminalSize};
use a3sbox_testkit::{GENERATION, RuntimeReport};

use super::super::IoMode;
use super::{World, exec_request};

fn streaming() -> ExecRequest {
    ExecRequest {
        streaming: true,
        stdin_streaming: true,
        ..exec_request()
    }
}

fn shell() -> PtyRequest {
    PtyRequest {
        cmd: vec!["/bin/sh".to_owned()],
        env: vec!["TERM=xterm".to_owned()],
        working_dir: Some("/".to_owned()),
        rootfs: None,
        user: Some("root".to_owned()),
        cols: 80,
        rows: 24,
    }
}

/// Everything up to the end: both streams and the exit code.
async fn read_to_end(process: &mut ExecutionProcess) -> (Vec<u8>, Vec<u8>, i32) {
    let (mut stdout, mut stderr, mut code) = (Vec::new(), Vec::new(), None);
    while let Some(event) = process.next_event().await.unwrap() {
        match event {
            ExecEvent::Chunk(chunk) => match chunk.stream {
                StreamType::Stdout => stdout.extend(chunk.data),
                StreamType::Stderr => stderr.extend(chunk.data),
            },
            ExecEvent::FlushAck => {}
            ExecEvent::Exit(exit) => assert_eq!(code.replace(exit.exit_code), None),
        }
    }
    (stdout, stderr, code.expect("the process exited"))
}

#[tokio::test]
async fn session_mode_capabilities_are_checked_before_exec_dispatch() {
    for missing in [
        RuntimeOperation::ReadOutput,
        RuntimeOperation::WriteStdin,
        RuntimeOperation::Resize,
    ] {
        let world = World::with_report(RuntimeReport::default().without(missing));
        let launched = world.launch(ExecutionIsolation::Microvm).await;
        let (id, generation) = (launched.id(), launched.generation());
        let error = match missing {
            RuntimeOperation::ReadOutput => world
                .manager
                .execute(id, generation, exec_request())
                .await
                .map(|_| ()),
            RuntimeOperation::WriteStdin => world
                .manager
                .start_process(id, generation, streaming())
                .await
                .map(|_| ()),
            _ => world
                .manager
                .start_pty(id, generation, shell())
                .await
                .map(|_| ()),
        };
        let text = error.unwrap_err().to_string();
        assert!(text.contains(missing.label()), "{text}");
        assert!(world.runtime.recorded().execs.is_empty());
    }
}

#[tokio::test]
async fn streaming_exec_retries_lost_stdin_and_preserves_exact_process_control() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let mut process = world
        .manager
        .start_process(launched.id(), launched.generation(), streaming())
        .await
        .unwrap();
    let input = process.input();
    world.runtime.lose_answer(RuntimeOperation::WriteStdin);
    input.write_stdin(b"replayed input").await.unwrap_err();
    input.write_stdin(b"changed input").await.unwrap_err();
    input.write_stdin(b"replayed input").await.unwrap();
    input.write_stdin(b"next input").await.unwrap();
    input.close_stdin().await.unwrap();
    input
        .send_signal(ExecutionProcessSignal::Kill)
        .await
        .unwrap();
    let (stdout, stderr, code) = read_to_end(&mut process).await;
    assert_eq!(stdout, b"fake stdout\n");
    assert_eq!(stderr, b"fake stderr\n");
    assert_eq!(code, 137);

    let recorded = world.runtime.recorded();
    let ids: Vec<_> = recorded
        .stdin_writes
        .iter()
        .map(|write| &write.context.operation_id)
        .collect();
    assert_eq!(ids.len(), 4);
    assert!(ids[0] == ids[1] && ids[1] == ids[2]);
    assert_ne!(ids[3], ids[0]);
    assert_eq!(world.runtime.stdin_effects().len(), 2);
    assert_eq!(recorded.stdin_closes.len(), 1);
    assert_eq!(recorded.process_signals.len(), 1);
    assert_eq!(recorded.process_signals[0].signal.get(), 9);
    assert_eq!(
        recorded.process_signals[0].process.container.generation,
        Some(GENERATION)
    );
    assert!(!recorded.process_waits.is_empty());
    input.write_stdin(b"too late").await.unwrap_err();
}

#[tokio::test]
async fn pty_routes_merged_output_resize_and_signal_to_the_exact_sdk_process() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Microvm).await;
    let mut process = world
        .manager
        .start_pty(launched.id(), launched.generation(), shell())
        .await
        .unwrap();
    let input = process.input();
    input.write_stdin(b"exit\n").await.unwrap();
    input.resize_pty(120, 40).await.unwrap();
    input.resize_pty(0, 40).await.unwrap_err();
    input
        .send_signal(ExecutionProcessSignal::Terminate)
        .await
        .unwrap();
    match process.next_event().await.unwrap() {
        Some(ExecEvent::Chunk(chunk)) => {
            assert_eq!(
                (chunk.stream, chunk.data.as_slice()),
                (StreamType::Stdout, &b"fake tty\n"[..])
            );
        }
        other => panic!("{other:?}"),
    }
    match process.next_event().await.unwrap() {
        Some(ExecEvent::Exit(exit)) => assert_eq!(exit.exit_code, 143),
        other => panic!("{other:?}"),
    }
    assert!(process.next_event().await.unwrap().is_none());

    let recorded = world.runtime.recorded();
    let [exec] = recorded.execs.as_slice() else {
        panic!("{} execs", recorded.execs.len())
    };
    assert_eq!(exec.process.terminal(), Some(true));
    assert_eq!(exec.io.stdin, IoMode::Terminal);
    assert_eq!(
        exec.io.terminal_size,
        Some(TerminalSize {
            width: 80,
            height: 24
        })
    );
    let [resize] = recorded.resizes.as_slice() else {
        panic!("not one resize")
    };
    assert_eq!(
        resize.size,
        TerminalSize {
            width: 120,
            height: 40
        }
    );
    assert_eq!(resize.process.container, exec.container);
    assert_eq!(resize.process.process_id, exec.process_id);
    assert_eq!(recorded.process_signals[0].signal.get(), 15);
}
