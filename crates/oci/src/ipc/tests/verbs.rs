//! Every verb goes through unchanged, in both directions.

use super::*;

fn attachments() -> CreateAttachments {
    CreateAttachments::from_bundle(&bundle(), ProcessIo::default())
        .unwrap()
        .with_extension(
            STDIO_EXTENSION,
            STDIO_EXTENSION_VERSION,
            true,
            json!({"terminal": false}),
        )
        .unwrap()
}

fn create(operation: &str) -> CreateRequest {
    CreateRequest {
        context: context(operation),
        id: id("c"),
        bundle: bundle(),
        isolation: IsolationRequest::SharedHostKernel,
        attachments: attachments(),
    }
}

fn exec() -> ExecRequest {
    ExecRequest {
        context: context("exec"),
        container: target(),
        process_id: ProcessId::new("p").unwrap(),
        process: serde_json::from_value(
            json!({"user": {"uid": 1, "gid": 2}, "args": ["/bin/x"], "cwd": "/", "env": ["A=b"]}),
        )
        .unwrap(),
        io: ProcessIo::default(),
        stdio: Some(StdioUris {
            stdout: Some("fifo:///run/out".to_owned()),
            ..StdioUris::default()
        }),
    }
}

fn file(op: FileOp, data: Option<&str>) -> FileRequest {
    FileRequest {
        target: target(),
        op,
        path: "~/x".to_owned(),
        data: data.map(str::to_owned),
        user: None,
        context: data.map(|_| context("file")),
    }
}

#[tokio::test]
async fn every_verb_makes_the_round_trip() {
    let (fake, client, server) = pair().await;
    let direct = Arc::new(Fake::default());
    // Asks through the stream and directly; requests and answers must be the same.
    macro_rules! both {
        ($method:ident, $request:expr) => {{
            let request = $request;
            let near = direct.$method(request.clone()).await;
            let far = soon(stringify!($method), client.$method(request)).await;
            match (near, far) {
                (Ok(near), Ok(far)) => assert_eq!(near, far, stringify!($method)),
                (Err(near), Err(far)) => {
                    let label = stringify!($method).replace('_', "-");
                    assert_eq!(near.for_operation(label), far);
                }
                (near, far) => panic!("{}: {near:?} but {far:?}", stringify!($method)),
            }
        }};
    }
    assert_eq!(client.features().await.unwrap(), info());
    both!(create, create("op"));
    both!(state, StateRequest { target: target() });
    both!(
        state,
        StateRequest {
            target: ContainerTarget::current(id("absent"))
        }
    );
    both!(
        start,
        StartRequest {
            context: context("start"),
            target: target()
        }
    );
    both!(
        kill,
        KillRequest {
            context: context("kill"),
            target: target(),
            signal: Signal::new(15).unwrap(),
            all: true,
        }
    );
    both!(
        delete,
        DeleteRequest {
            context: context("delete"),
            target: target(),
            mode: DeleteMode::Force,
        }
    );
    both!(exec, exec());
    both!(wait, wait("c"));
    both!(
        list,
        ListRequest {
            isolation: Some(IsolationClass::DedicatedVm)
        }
    );
    let operation = ContainerOperationRequest {
        context: context("pause"),
        target: target(),
    };
    both!(pause, operation.clone());
    both!(resume, operation);
    both!(
        update,
        UpdateRequest {
            context: context("update"),
            target: target(),
            resources: serde_json::from_value(json!({"cpu": {"shares": 1024}})).unwrap(),
        }
    );
    both!(processes, ProcessesRequest { target: target() });
    both!(stats, StatsRequest { target: target() });
    both!(
        events,
        EventsRequest {
            container: None,
            after_sequence: 0,
            limit: 10,
            wait_timeout_ms: Some(1),
        }
    );
    both!(read_output, read(17));
    both!(write_stdin, stdin(vec![0, 255, 10]));
    both!(write_stdin, stdin(Vec::new()));
    both!(
        close_stdin,
        CloseStdinRequest {
            context: context("close"),
            process: process(),
        }
    );
    both!(
        resize,
        ResizeRequest {
            context: context("resize"),
            process: process(),
            size: TerminalSize {
                width: 120,
                height: 40,
            },
        }
    );
    both!(
        signal_process,
        SignalProcessRequest {
            context: context("signal"),
            process: process(),
            signal: Signal::new(9).unwrap(),
        }
    );
    both!(
        wait_process,
        WaitProcessRequest {
            process: process(),
            timeout_ms: Some(0),
        }
    );
    both!(file, file(FileOp::Upload, Some("cGF5bG9hZA==")));
    both!(file, file(FileOp::Upload, Some("")));
    both!(file, file(FileOp::Download, None));
    both!(
        filesystem,
        FilesystemRequest {
            target: target(),
            op: FilesystemOp::ListDir,
            path: "/".to_owned(),
            destination: None,
            depth: 2,
            user: None,
            context: None,
        }
    );
    both!(
        checkpoint,
        CheckpointRequest {
            context: context("checkpoint"),
            target: target(),
            image_path: "/image".into(),
            work_path: None,
            exit: true,
            open_tcp: false,
            external_unix_sockets: true,
            terminal: false,
            file_locks: false,
            empty_namespaces: vec!["network".to_owned()],
            cgroups_mode: Some("soft".to_owned()),
        }
    );
    let CreateRequest {
        id,
        bundle,
        isolation,
        attachments,
        ..
    } = create("restore");
    both!(
        restore,
        RestoreRequest {
            context: context("restore"),
            id,
            bundle,
            isolation,
            attachments,
            image_path: "/image".into(),
            work_path: Some("/work".into()),
        }
    );
    both!(pids, PidsRequest { target: target() });
    both!(
        delete_process,
        DeleteProcessRequest {
            context: context("forget"),
            process: process(),
        }
    );
    assert_eq!(
        *fake.asked.lock().unwrap(),
        *direct.asked.lock().unwrap(),
        "what the service was asked"
    );
    drop(client);
    soon("the server ends", server).await.unwrap().unwrap();
}

fn stdin(data: Vec<u8>) -> WriteStdinRequest {
    WriteStdinRequest {
        context: context("stdin"),
        process: process(),
        data,
    }
}

fn read(bytes: u64) -> ReadOutputRequest {
    ReadOutputRequest {
        process: process(),
        after_sequence: bytes,
        max_bytes: MAX_OUTPUT_READ_BYTES,
        wait_timeout_ms: None,
    }
}

#[tokio::test]
async fn the_largest_bulk_transfers_fit() {
    let (fake, client, _server) = pair().await;
    let largest = MAX_STDIN_WRITE_BYTES;
    soon("stdin", client.write_stdin(stdin(vec![7; largest])))
        .await
        .unwrap();
    let sent = fake.asked.lock().unwrap().pop().unwrap();
    assert!(sent.len() > largest);
    let answer = soon("output", client.read_output(read(largest as u64)))
        .await
        .unwrap();
    assert_eq!(answer, chunks(largest));
    assert_eq!(*fake.reads.lock().unwrap(), [MAX_OUTPUT_READ_BYTES]);
    let text = "A".repeat(MAX_FILE_TRANSFER_BYTES / 3 * 4);
    soon("file", client.file(file(FileOp::Upload, Some(&text))))
        .await
        .unwrap();
    let sent = fake.asked.lock().unwrap().pop().unwrap();
    assert!(sent.contains(&text));
}

#[tokio::test]
async fn a_malformed_request_is_answered_and_the_connection_lives() {
    let (fake, client, _server) = pair().await;
    let error = client
        .exec(ExecRequest {
            process_id: ProcessId::init(),
            ..exec()
        })
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert_eq!(error.operation.as_deref(), Some("exec"));
    assert!(fake.asked.lock().unwrap().is_empty());
    client
        .state(StateRequest { target: target() })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_panic_of_the_service_is_one_failed_call() {
    let (_fake, client, _server) = pair().await;
    let error = client
        .state(StateRequest {
            target: ContainerTarget::current(id("panic")),
        })
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal);
    client
        .state(StateRequest { target: target() })
        .await
        .unwrap();
}

#[tokio::test]
async fn an_operation_past_its_deadline_is_not_sent() {
    let (fake, client, _server) = pair().await;
    let mut request = create("late");
    request.context.deadline_unix_ms = Some(1);
    let error = client.create(request).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::DeadlineExceeded);
    assert!(fake.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_create_is_finished_when_its_caller_and_its_connection_go() {
    let (fake, client, server) = pair().await;
    let call = tokio::spawn(async move { client.create(create("slow")).await });
    until("the create began", || fake.held() == 1).await;
    call.abort();
    soon("the server ends", server).await.unwrap().unwrap();
    assert_eq!((fake.held(), fake.finished.load(Ordering::SeqCst)), (1, 0));
    fake.release.notify_one();
    until("the create finished", || {
        fake.finished.load(Ordering::SeqCst) == 1
    })
    .await;
}
