//! Captured commands.

use std::time::Duration;

use a3sbox_core::{ExecRequest, ExecutionSessionManager as _};
use a3sbox_oci::RuntimeOperation;

use super::assert_unavailable;
use super::launch::end;
use crate::{World, command, eventually};

// proves: B17
pub async fn a_lost_answer_is_replayed_by_another_manager(mut world: World) {
    let launched = world.launch().await;
    let probe = ExecRequest {
        request_id: Some("health-probe-1".to_owned()),
        env: vec!["BETA=request".to_owned(), "GAMMA=also".to_owned()],
        stdin: Some(b"probe input".to_vec()),
        user: Some("1000:1001".to_owned()),
        ..command(&[
            "/bin/sh",
            "-c",
            "echo ran >> /out/ran; cat; echo \" $BETA $GAMMA $(id -u):$(id -g)\"; echo told >&2; exit 23",
        ])
    };
    world.faults.lose_answer(RuntimeOperation::Exec);
    world
        .manager
        .execute(launched.id(), launched.generation(), probe.clone())
        .await
        .unwrap_err();
    world.reopen();
    let output = world
        .manager
        .execute(launched.id(), launched.generation(), probe)
        .await
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "probe input request also 1000:1001\n");
    assert_eq!(output.stderr, b"told\n");
    assert_eq!((output.exit_code, output.truncated), (23, false));
    assert_eq!(world.lines("ran"), 1);
    let execs = world.faults.execs();
    assert_eq!(execs.len(), 2);
    assert_eq!(execs[0], execs[1]);
    assert_eq!(world.faults.calls(RuntimeOperation::WriteStdin), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::CloseStdin), 1);
    end(&world, &launched).await;
}

// proves: B18
pub async fn a_relative_command_is_found_in_the_rootfs(world: World) {
    let launched = world.launch().await;
    let output = world
        .manager
        .execute(
            launched.id(),
            launched.generation(),
            command(&["printf", "sdk-ok"]),
        )
        .await
        .unwrap();
    assert_eq!(output.stdout, b"sdk-ok");
    let args = world.faults.execs()[0].process.args().clone().unwrap();
    assert_eq!(args, ["/bin/printf", "sdk-ok"]);
    end(&world, &launched).await;
}

// proves: B23
pub async fn a_used_key_with_another_command_starts_nothing(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    let keyed = ExecRequest {
        request_id: Some("one-process-key".to_owned()),
        stdin: Some(b"one".to_vec()),
        ..command(&["sh", "-c", "cat >> /out/ran; echo >> /out/ran"])
    };
    let first = world.manager.execute(id, generation, keyed.clone()).await;
    assert_eq!(first.unwrap().exit_code, 0);
    let other = ExecRequest {
        stdin: Some(b"two".to_vec()),
        ..command(&["sh", "-c", "echo other >> /out/ran"])
    };
    let other = ExecRequest {
        request_id: keyed.request_id,
        ..other
    };
    assert_unavailable(
        world.manager.execute(id, generation, other).await,
        "different request",
    );
    let execs = world.faults.execs();
    assert_eq!(execs.len(), 2);
    assert_eq!(execs[0].process_id, execs[1].process_id);
    assert_ne!(execs[0].context, execs[1].context);
    assert_eq!(world.out("ran"), "one\n");
    end(&world, &launched).await;
}

// proves: B30
pub async fn a_timeout_kills_the_process(world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    let slow = ExecRequest {
        timeout_ns: 300_000_000,
        ..command(&["sh", "-c", "echo begun; exec sleep 4711"])
    };
    let output = world
        .manager
        .execute(id, launched.generation(), slow)
        .await
        .unwrap();
    assert_eq!(output.exit_code, 137);
    assert!(
        output
            .stderr
            .ends_with(b"\nProcess killed: timeout exceeded")
    );
    assert_eq!(world.running(id, &["sleep", "4711"]), 0);
    assert_eq!(world.faults.calls(RuntimeOperation::SignalProcess), 1);
    end(&world, &launched).await;
}

// proves: B31
pub async fn a_caller_that_hangs_up_keeps_the_timeout(world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    let slow = ExecRequest {
        timeout_ns: 1_000_000_000,
        ..command(&["sh", "-c", "echo begun >> /out/begun; exec sleep 4712"])
    };
    let call = world.manager.execute(id, launched.generation(), slow);
    tokio::select! {
        done = call => panic!("{done:?} before its time"),
        () = tokio::time::sleep(Duration::from_millis(5)) => {}
    }
    eventually("the timeout's kill", || {
        world.faults.calls(RuntimeOperation::SignalProcess) == 1
    })
    .await;
    eventually("its effect", || world.running(id, &["sleep", "4712"]) == 0).await;
    assert_eq!(
        world.faults.calls(RuntimeOperation::Exec) - 1,
        1,
        "one confirmation"
    );
    end(&world, &launched).await;
}
