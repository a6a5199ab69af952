//! Added processes on a real engine.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use a3sbox_oci::{
    DeleteMode, DeleteProcessRequest, ErrorCode, OciRuntimeService, PidsRequest, ProcessesRequest,
    Signal, SignalProcessRequest, WriteStdinRequest,
};
use support::{World, context, process};

#[tokio::test]
async fn exit_codes_of_parallel_execs_are_theirs() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    let mut running = Vec::new();
    for code in 0..16 {
        let (service, request) = (
            world.service.clone(),
            world.exec_request(
                &container,
                &format!("e{code}"),
                &["sh", "-c", &format!("exit {code}")],
            ),
        );
        running.push(tokio::spawn(async move {
            let record = service.exec(request).await.unwrap();
            let status = service
                .wait_process(a3sbox_oci::WaitProcessRequest {
                    process: record.target.clone(),
                    timeout_ms: Some(30_000),
                })
                .await
                .unwrap();
            assert_eq!(status.exit_code, Some(code));
            service
                .delete_process(DeleteProcessRequest {
                    context: context(),
                    process: record.target,
                })
                .await
                .unwrap();
        }));
    }
    for exec in running {
        exec.await.unwrap();
    }
    let killed = world
        .exec(&container, "k", &["sh", "-c", "kill -9 $$"])
        .await;
    assert_eq!(world.wait_process(&killed).await.unwrap().signal, Some(9));
    world.delete(&container, DeleteMode::Force).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn commands_that_cannot_be_run_say_why_and_free_their_id() {
    let world = World::new().await;
    let container = world
        .run(&[
            "sh",
            "-c",
            "echo x >/tmp/noexec; printf '#!/no/interp\\n' >/tmp/shebang; while :; do sleep 1; done",
        ])
        .await;
    for (command, cwd, expected) in [
        ("/no/such", "/", "no such file or directory"),
        ("/etc", "/", "permission denied"),
        ("nosuchcmd", "/", "executable file not found in $PATH"),
        ("pwd", "/missing", "no such file or directory"),
        ("/tmp/noexec", "/", "permission denied"),
    ] {
        let mut request = world.exec_request(&container, "same", &[command]);
        request.process.set_cwd(cwd.into());
        let error = world.service.exec(request).await.unwrap_err();
        assert!(error.message.contains(expected), "{command}: {error}");
        assert!(
            error
                .message
                .starts_with("OCI runtime exec failed: exec failed: "),
            "{error}"
        );
    }
    let ok = world.exec(&container, "same", &["echo", "ok"]).await;
    assert_eq!(world.output(&ok).await, "ok\n");
    assert_eq!(world.wait_process(&ok).await.unwrap().exit_code, Some(0));

    let mut bad = world.spec(&["/no/such"]);
    bad["hostname"] = "bad".into();
    let error = world.create_spec(&bad).await.unwrap_err();
    assert!(
        error.message.starts_with(
            "OCI runtime create failed: runc create failed: unable to start container process:"
        ),
        "{error}"
    );
    assert!(!support::cgroup_of(&bad).exists());
    world.delete(&container, DeleteMode::Force).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn stdin_is_written_closed_and_read_back() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    let cat = world.exec(&container, "cat", &["cat"]).await;
    let write = WriteStdinRequest {
        context: context(),
        process: cat.clone(),
        data: b"hello\n".to_vec(),
    };
    world.service.write_stdin(write.clone()).await.unwrap();
    // The answer was lost, the request comes again.
    world.service.write_stdin(write.clone()).await.unwrap();
    let mut other = write;
    other.data = b"other".to_vec();
    let conflict = world.service.write_stdin(other).await.unwrap_err();
    assert_eq!(conflict.code, ErrorCode::Conflict);
    world
        .service
        .close_stdin(a3sbox_oci::CloseStdinRequest {
            context: context(),
            process: cat.clone(),
        })
        .await
        .unwrap();
    assert_eq!(world.output(&cat).await, "hello\n");
    assert_eq!(world.wait_process(&cat).await.unwrap().exit_code, Some(0));
    world.delete(&container, DeleteMode::Force).await.unwrap();
}

#[tokio::test]
async fn a_process_is_listed_signaled_and_forgotten() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    let request = world.exec_request(&container, "long", &["sleep", "1000"]);
    let record = world.service.exec(request.clone()).await.unwrap();
    // Repeated, and with the same process id for something else.
    assert_eq!(world.service.exec(request.clone()).await.unwrap(), record);
    let mut other = request;
    other.process = process(&["true"]);
    other.context = context();
    let taken = world.service.exec(other).await.unwrap_err();
    assert_eq!(taken.code, ErrorCode::Conflict);

    let long = record.target.clone();
    let listed = world
        .service
        .processes(ProcessesRequest {
            target: container.clone(),
        })
        .await
        .unwrap();
    assert_eq!(listed.len(), 2);
    let pids = world
        .service
        .pids(PidsRequest {
            target: container.clone(),
        })
        .await
        .unwrap();
    assert!(pids.iter().any(
        |pid| Some(pid.pid) == record.pid && pid.process_id.as_ref() == Some(&long.process_id)
    ));

    let forget = DeleteProcessRequest {
        context: context(),
        process: long.clone(),
    };
    let busy = world
        .service
        .delete_process(forget.clone())
        .await
        .unwrap_err();
    assert_eq!(busy.code, ErrorCode::FailedPrecondition);
    let signal = SignalProcessRequest {
        context: context(),
        process: long.clone(),
        signal: Signal::new(15).unwrap(),
    };
    world.service.signal_process(signal.clone()).await.unwrap();
    assert_eq!(world.wait_process(&long).await.unwrap().signal, Some(15));
    // Replayed, though the process has ended; a new signal finds nobody.
    world.service.signal_process(signal.clone()).await.unwrap();
    let mut late = signal;
    late.context = context();
    let gone = world.service.signal_process(late).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::NotFound);
    assert_eq!(gone.message, "process already finished");

    world.service.delete_process(forget.clone()).await.unwrap();
    world.service.delete_process(forget).await.unwrap();
    let unknown = world.wait_process(&long).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
    // The id is free again.
    let again = world.exec(&container, "long", &["true"]).await;
    assert_eq!(world.wait_process(&again).await.unwrap().exit_code, Some(0));
    world.delete(&container, DeleteMode::Force).await.unwrap();
}

#[tokio::test]
async fn many_execs_leave_the_journal_small() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    for round in 0..20 {
        let exec = world
            .exec(&container, &format!("probe-{round}"), &["true"])
            .await;
        world.wait_process(&exec).await.unwrap();
        world
            .service
            .delete_process(DeleteProcessRequest {
                context: context(),
                process: exec,
            })
            .await
            .unwrap();
    }
    let names: Vec<_> = std::fs::read_dir(world.root().join(container.id.as_str()))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.len() <= 3, "{names:?}");
    world.delete(&container, DeleteMode::Force).await.unwrap();
}
