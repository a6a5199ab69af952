//! The table of what is accepted.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ValidateRequest;
use crate::*;

fn target() -> Value {
    json!({"id": "c", "generation": 1})
}

fn context() -> Value {
    json!({"operation_id": "op"})
}

/// Lays `changes` over `base`; a null takes a field away.
fn with(base: &Value, changes: &Value) -> Value {
    let mut value = base.clone();
    let fields = value.as_object_mut().unwrap();
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => fields.remove(name),
            change => fields.insert(name.clone(), change.clone()),
        };
    }
    value
}

fn check<R: ValidateRequest + DeserializeOwned>(base: &Value, good: &[Value], bad: &[Value]) {
    let validate = |changes: &Value| {
        serde_json::from_value::<R>(with(base, changes))
            .unwrap()
            .validate()
    };
    for changes in good {
        assert_eq!(validate(changes), Ok(()), "{changes}");
    }
    for changes in bad {
        let error = validate(changes).expect_err(&changes.to_string());
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{changes}");
    }
}

#[test]
fn events() {
    let base = json!({"after_sequence": 0, "limit": 1});
    check::<EventsRequest>(
        &base,
        &[json!({}), json!({"limit": 4096})],
        &[json!({"limit": 0}), json!({"limit": 4097})],
    );
}

#[test]
fn output_and_stdin() {
    let process = json!({"container": target(), "process_id": "p"});
    let base = json!({"process": process, "after_sequence": 0, "max_bytes": 1});
    check::<ReadOutputRequest>(
        &base,
        &[json!({}), json!({"max_bytes": 16 * 1024 * 1024})],
        &[
            json!({"max_bytes": 0}),
            json!({"max_bytes": 16 * 1024 * 1024 + 1}),
        ],
    );
    let mut write = WriteStdinRequest {
        context: serde_json::from_value(context()).unwrap(),
        process: serde_json::from_value(process).unwrap(),
        data: vec![0; MAX_STDIN_WRITE_BYTES],
    };
    assert_eq!(write.validate(), Ok(()));
    write.data.push(0);
    assert_eq!(
        write.validate().unwrap_err().code,
        ErrorCode::InvalidArgument
    );
}

#[test]
fn resize_and_forget() {
    let process = json!({"container": target(), "process_id": "p"});
    let base = json!({"context": context(), "process": process, "size": {"width": 1, "height": 1}});
    check::<ResizeRequest>(
        &base,
        &[json!({})],
        &[
            json!({"size": {"width": 0, "height": 1}}),
            json!({"size": {"width": 1, "height": 0}}),
        ],
    );
    let init = json!({"container": target(), "process_id": "init"});
    check::<DeleteProcessRequest>(
        &json!({"context": context(), "process": process}),
        &[json!({})],
        &[json!({"process": init})],
    );
}

#[test]
fn files() {
    let download = json!({"target": target(), "op": "download", "path": "/x"});
    check::<FileRequest>(
        &download,
        &[
            json!({}),
            json!({"path": "~"}),
            json!({"path": "~/x"}),
            json!({"path": "relative~"}),
            json!({"user": "1000:1001"}),
            json!({"user": "u".repeat(256)}),
            json!({"path": "p".repeat(4096)}),
        ],
        &[
            json!({"path": ""}),
            json!({"path": "a\0"}),
            json!({"path": "~user/x"}),
            json!({"path": "p".repeat(4097)}),
            json!({"user": ""}),
            json!({"user": "a\0"}),
            json!({"user": "u".repeat(257)}),
            json!({"data": ""}),
            json!({"context": context()}),
        ],
    );
    let upload = with(
        &download,
        &json!({"op": "upload", "context": context(), "data": "AQID"}),
    );
    let long = "QUFB".repeat(10_000);
    check::<FileRequest>(
        &upload,
        &[
            json!({}),
            json!({"data": ""}),
            json!({"data": "AQ=="}),
            json!({"data": long}),
            json!({"data": format!("{long}AQ==")}),
        ],
        &[
            json!({"data": null}),
            json!({"context": null}),
            json!({"data": "AQI"}),
            json!({"data": "A*ID"}),
            json!({"data": "AQ==AQID"}),
            json!({"data": format!("{}AQ=={long}", "QUFB".repeat(2047))}),
            json!({"data": "AQID\n"}),
        ],
    );
}

#[test]
fn an_upload_is_bounded_by_its_decoded_size() {
    let mut request: FileRequest = serde_json::from_value(
        json!({"target": target(), "op": "upload", "path": "/x", "context": context()}),
    )
    .unwrap();
    // 32 MiB is two bytes more than a multiple of three.
    let whole = "AAAA".repeat(MAX_FILE_TRANSFER_BYTES / 3);
    request.data = Some(format!("{whole}AAA="));
    assert_eq!(request.validate(), Ok(()));
    request.data = Some(format!("{whole}AAAA"));
    assert!(request.validate().is_err());
    request.data = Some(format!("{whole}AAAAAAAA"));
    assert!(request.validate().is_err());
}

#[test]
fn filesystem() {
    let base = json!({"target": target(), "op": "stat", "path": "/x", "depth": 0});
    let mutating = json!({"context": context()});
    check::<FilesystemRequest>(
        &base,
        &[
            json!({}),
            json!({"op": "list-dir"}),
            json!({"op": "list-dir", "depth": 64}),
            with(&mutating, &json!({"op": "make-dir"})),
            with(&mutating, &json!({"op": "remove"})),
            with(&mutating, &json!({"op": "move", "destination": "~/y"})),
        ],
        &[
            json!({"depth": 1}),
            json!({"op": "list-dir", "depth": 65}),
            json!({"context": context()}),
            json!({"op": "list-dir", "context": context()}),
            json!({"destination": "/y"}),
            json!({"op": "make-dir"}),
            json!({"op": "remove"}),
            with(&mutating, &json!({"op": "remove", "destination": "/y"})),
            with(&mutating, &json!({"op": "make-dir", "depth": 1})),
            with(&mutating, &json!({"op": "move"})),
            with(&mutating, &json!({"op": "move", "destination": ""})),
            json!({"op": "move", "destination": "/y"}),
        ],
    );
}

fn process(changes: &Value) -> Value {
    let base = json!({"user": {"uid": 0, "gid": 0}, "args": ["/bin/x"], "cwd": "/"});
    with(&base, changes)
}

#[test]
fn exec() {
    let base = json!({
        "context": context(), "container": target(), "process_id": "p", "process": process(&json!({})),
        "io": {"stdin": "null", "stdout": "capture", "stderr": "capture"},
    });
    let with_process = |changes: Value| json!({"process": process(&changes)});
    let terminal_io = json!({"stdin": "terminal", "stdout": "terminal", "stderr": "terminal",
        "terminal_size": {"width": 80, "height": 24}});
    let terminal = |io: &Value| json!({"process": process(&json!({"terminal": true})), "io": io});
    check::<ExecRequest>(
        &base,
        &[
            json!({}),
            with_process(json!({"env": ["A=b", "B=", "C=d=e"]})),
            with_process(json!({"args": ["x", ""]})),
            json!({"io": {"stdin": "pipe", "stdout": "inherit", "stderr": "null"}}),
            terminal(&terminal_io),
            json!({"stdio": {"stdin": "/run/in", "stdout": "fifo:///run/out"}}),
            with(
                &terminal(&terminal_io),
                &json!({"stdio": {"stdout": "/run/out", "terminal": true}}),
            ),
        ],
        &[
            json!({"process_id": "init"}),
            with_process(json!({"args": []})),
            with_process(json!({"args": null})),
            with_process(json!({"args": [""]})),
            with_process(json!({"args": ["a\0b"]})),
            with_process(json!({"cwd": "relative"})),
            with_process(json!({"cwd": ""})),
            with_process(json!({"cwd": "/a\0"})),
            with_process(json!({"env": ["A"]})),
            with_process(json!({"env": ["=b"]})),
            with_process(json!({"env": [""]})),
            with_process(json!({"env": ["A=\0"]})),
            json!({"io": terminal_io}),
            terminal(&json!({"stdin": "null", "stdout": "capture", "stderr": "capture"})),
            terminal(&with(&terminal_io, &json!({"stderr": "null"}))),
            terminal(&with(&terminal_io, &json!({"terminal_size": null}))),
            terminal(&with(
                &terminal_io,
                &json!({"terminal_size": {"width": 0, "height": 24}}),
            )),
            json!({"io": {"stdin": "null", "stdout": "capture", "stderr": "capture",
                "terminal_size": {"width": 80, "height": 24}}}),
            json!({"io": {"stdin": "terminal", "stdout": "capture", "stderr": "capture"}}),
            json!({"stdio": {"stdout": ""}}),
            json!({"stdio": {"stdout": "/a\0"}}),
            json!({"stdio": {"stdout": "/a", "terminal": true}}),
            json!({"stdio": {"stdout": format!("/{}", "a".repeat(4096))}}),
        ],
    );
}

#[test]
fn update() {
    let base = json!({"context": context(), "target": target(), "resources": {}});
    let with_resources = |resources: Value| json!({"resources": resources});
    check::<UpdateRequest>(
        &base,
        &[
            json!({}),
            with_resources(
                json!({"cpu": {"shares": 2, "quota": -1, "period": 100_000, "cpus": "0-3,5"}}),
            ),
            with_resources(json!({"memory": {"limit": -1, "swap": -1, "reservation": 0}})),
            with_resources(json!({"pids": {"limit": -1}})),
            with_resources(json!({"unified": {"memory.high": "max"}})),
            with_resources(json!({"devices": [{"allow": false, "access": "rwm"}]})),
        ],
        &[
            with_resources(json!({"memory": {"limit": -2}})),
            with_resources(json!({"memory": {"swap": -9}})),
            with_resources(json!({"cpu": {"cpus": "0;1"}})),
            with_resources(json!({"cpu": {"mems": "a"}})),
            with_resources(json!({"unified": {"": "1"}})),
            with_resources(json!({"unified": {"../cgroup.procs": "1"}})),
            with_resources(json!({"unified": {"memory.high": "1\u{0}"}})),
            with_resources(json!({"hugepageLimits": [{"pageSize": "a/b", "limit": 1}]})),
            with_resources(json!({"devices": [{"allow": true, "access": "rx"}]})),
        ],
    );
}

fn create(config: &Value) -> CreateRequest {
    let bundle = OciBundle::from_json("/bundle", config.to_string()).unwrap();
    CreateRequest {
        context: serde_json::from_value(context()).unwrap(),
        id: ContainerId::new("c").unwrap(),
        attachments: CreateAttachments::from_bundle(&bundle, ProcessIo::default()).unwrap(),
        bundle,
        isolation: IsolationRequest::SharedHostKernel,
    }
}

#[test]
fn create_and_run() {
    let minimal = json!({"ociVersion": "1.3.0", "process": process(&json!({"terminal": false})),
        "root": {"path": "rootfs", "readonly": false}});
    let request = create(&minimal);
    assert_eq!(request.validate(), Ok(()));
    for bad in [
        with(&minimal, &json!({"process": null})),
        with(&minimal, &json!({"root": null})),
        with(&minimal, &json!({"root": {"path": ""}})),
        with(&minimal, &json!({"process": process(&json!({"args": []}))})),
        with(&minimal, &json!({"process": process(&json!({"cwd": "x"}))})),
    ] {
        assert!(create(&bad).validate().is_err(), "{bad}");
    }
    // What containerd took from an image is not ours to judge.
    let odd = with(
        &minimal,
        &json!({"process": process(&json!({"env": ["odd"]}))}),
    );
    assert_eq!(create(&odd).validate(), Ok(()));
    let mut foreign = request.clone();
    foreign.attachments = create(&with(&minimal, &json!({"root": {"path": "other"}}))).attachments;
    assert!(foreign.validate().is_err());
    let operation = |name: &str| OperationContext::new(OperationId::new(name).unwrap());
    let run = |start, delete| RunRequest {
        create: request.clone(),
        start_context: operation(start),
        delete_context: operation(delete),
    };
    assert_eq!(run("a", "b").validate(), Ok(()));
    for (start, delete) in [("a", "a"), ("op", "b"), ("a", "op")] {
        assert!(run(start, delete).validate().is_err());
    }
}

#[test]
fn checkpoint() {
    let base = json!({"context": context(), "target": target(), "image_path": "/image"});
    check::<CheckpointRequest>(
        &base,
        &[json!({}), json!({"work_path": "/work"})],
        &[json!({"image_path": "image"}), json!({"work_path": "work"})],
    );
}
