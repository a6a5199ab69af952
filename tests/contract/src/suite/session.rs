//! Processes with an open input, and terminals.

use a3sbox_core::{
    ExecEvent, ExecRequest, ExecutionProcess, ExecutionProcessSignal, ExecutionSessionManager as _,
    pty::PtyRequest,
};
use a3sbox_oci::RuntimeOperation;

use super::launch::end;
use crate::{World, command};

// proves: B28
pub async fn lost_input_is_written_once(world: World) {
    let launched = world.launch().await;
    let streaming = ExecRequest {
        streaming: true,
        stdin_streaming: true,
        ..command(&["sh", "-c", "cat > /out/input; echo over; exit 5"])
    };
    let mut process = world
        .manager
        .start_process(launched.id(), launched.generation(), streaming)
        .await
        .unwrap();
    let input = process.input();
    world.faults.lose_answer(RuntimeOperation::WriteStdin);
    input.write_stdin(b"replayed input").await.unwrap_err();
    input.write_stdin(b"changed input").await.unwrap_err();
    input.write_stdin(b"replayed input").await.unwrap();
    input.write_stdin(b", next input").await.unwrap();
    world.faults.lose_answer(RuntimeOperation::CloseStdin);
    input.close_stdin().await.unwrap_err();
    input.close_stdin().await.unwrap();
    let (said, code) = to_the_end(&mut process).await;
    assert_eq!((said.as_str(), code), ("over\n", 5));
    assert_eq!(world.out("input"), "replayed input, next input");
    end(&world, &launched).await;
}

// proves: B29
pub async fn a_terminal_has_its_size_and_takes_signals(world: World) {
    let launched = world.launch().await;
    let request = PtyRequest {
        cmd: vec!["/bin/sh".to_owned()],
        env: vec!["TERM=xterm".to_owned()],
        working_dir: Some("/".to_owned()),
        rootfs: None,
        user: Some("root".to_owned()),
        cols: 80,
        rows: 24,
    };
    let mut process = world
        .manager
        .start_pty(launched.id(), launched.generation(), request)
        .await
        .unwrap();
    let input = process.input();
    input.write_stdin(b"stty size\n").await.unwrap();
    read_until(&mut process, "24 80").await;
    world.faults.lose_answer(RuntimeOperation::Resize);
    input.resize_pty(120, 40).await.unwrap_err();
    input.resize_pty(120, 40).await.unwrap();
    input.write_stdin(b"stty size\n").await.unwrap();
    read_until(&mut process, "40 120").await;
    world.faults.lose_answer(RuntimeOperation::SignalProcess);
    let kill = ExecutionProcessSignal::Kill;
    input.send_signal(kill).await.unwrap_err();
    input.send_signal(kill).await.unwrap();
    let (_, code) = to_the_end(&mut process).await;
    assert_eq!(code, 137);
    end(&world, &launched).await;
}

async fn read_until(process: &mut ExecutionProcess, needle: &str) {
    let mut said = String::new();
    while !said.contains(needle) {
        match tokio::time::timeout(crate::DEADLINE, process.next_event()).await {
            Ok(Ok(Some(ExecEvent::Chunk(chunk)))) => {
                said.push_str(&String::from_utf8_lossy(&chunk.data));
            }
            other => panic!("{other:?} after {said:?}"),
        }
    }
}

/// All output, and the exit code.
async fn to_the_end(process: &mut ExecutionProcess) -> (String, i32) {
    let mut said = String::new();
    loop {
        match tokio::time::timeout(crate::DEADLINE, process.next_event()).await {
            Ok(Ok(Some(ExecEvent::Chunk(chunk)))) => {
                said.push_str(&String::from_utf8_lossy(&chunk.data));
            }
            Ok(Ok(Some(ExecEvent::FlushAck))) => {}
            Ok(Ok(Some(ExecEvent::Exit(exit)))) => return (said, exit.exit_code),
            other => panic!("{other:?} after {said:?}"),
        }
    }
}
