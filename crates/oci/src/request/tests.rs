//! The forms that travel and are stored.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::*;

/// Decodes the form, encodes it again, and expects the same.
fn same<T>(form: Value) -> T
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let value: T = serde_json::from_value(form.clone()).unwrap();
    assert_eq!(serde_json::to_value(&value).unwrap(), form);
    value
}

#[test]
fn requests() {
    same::<StateRequest>(json!({"target": {"id": "c"}}));
    same::<KillRequest>(
        json!({"context": {"operation_id": "o"}, "target": {"id": "c", "generation": 1}, "signal": 9, "all": false}),
    );
    same::<DeleteRequest>(
        json!({"context": {"operation_id": "o", "deadline_unix_ms": 5}, "target": {"id": "c"}, "mode": "stopped-only"}),
    );
    same::<WaitRequest>(json!({"target": {"id": "c"}}));
    same::<WaitRequest>(json!({"target": {"id": "c"}, "timeout_ms": 0}));
    same::<EventsRequest>(json!({"after_sequence": 1, "limit": 2}));
    let process = json!({"container": {"id": "c"}, "process_id": "p"});
    same::<ReadOutputRequest>(json!({"process": process, "after_sequence": 0, "max_bytes": 1}));
    same::<WriteStdinRequest>(
        json!({"context": {"operation_id": "o"}, "process": process, "data": [0, 255]}),
    );
    let exec = same::<ExecRequest>(json!({
        "context": {"operation_id": "o"}, "container": {"id": "c"}, "process_id": "p",
        "process": {"user": {"uid": 1, "gid": 2}, "args": ["x"], "cwd": "/"},
        "io": {"stdin": "null", "stdout": "capture", "stderr": "capture"},
    }));
    assert_eq!(exec.io, ProcessIo::default());
    assert_eq!(exec.stdio, None);
    same::<FileRequest>(json!({"target": {"id": "c"}, "op": "download", "path": "/x"}));
    same::<FilesystemRequest>(
        json!({"target": {"id": "c"}, "op": "move", "path": "/x", "destination": "/y", "depth": 0,
            "context": {"operation_id": "o"}}),
    );
    assert!(
        serde_json::from_value::<KillRequest>(
            json!({"context": {"operation_id": "o"}, "target": {"id": "c"}, "signal": 0, "all": false})
        )
        .is_err()
    );
}

#[test]
fn enums() {
    same::<IsolationRequest>(json!({"class": "dedicated-vm"}));
    same::<IsolationRequest>(json!({"class": "shared-host-kernel"}));
    let shared =
        same::<IsolationRequest>(json!({"class": "shared-guest-kernel", "trust_domain": "t"}));
    assert_eq!(shared.class(), IsolationClass::SharedGuestKernel);
    for (driver, label) in [
        (DriverKind::NativeLinux, "native-linux"),
        (DriverKind::LibkrunKvm, "libkrun-kvm"),
        (DriverKind::LibkrunHvf, "libkrun-hvf"),
        (DriverKind::LibkrunWhpx, "libkrun-whpx"),
    ] {
        assert_eq!(serde_json::to_value(driver).unwrap(), label);
    }
    assert_eq!(
        serde_json::to_value(DriverReadiness::ProbeOnly).unwrap(),
        "probe-only"
    );
    assert_eq!(
        serde_json::to_value(RuntimeEventKind::OutOfMemory).unwrap(),
        "out-of-memory"
    );
    assert_eq!(
        serde_json::to_value(OutputStream::Stderr).unwrap(),
        "stderr"
    );
    for operation in RuntimeOperation::ALL {
        assert_eq!(serde_json::to_value(operation).unwrap(), operation.label());
        assert_eq!(
            RuntimeOperation::from_label(operation.label()),
            Some(*operation)
        );
    }
    assert_eq!(RuntimeOperation::WaitProcess.label(), "wait-process");
    assert!(FilesystemOp::Move.is_mutating() && !FilesystemOp::ListDir.is_mutating());
}

#[test]
fn records_and_errors() {
    let mut record = same::<ContainerRecord>(json!({
        "state": {"ociVersion": "1.3.0", "id": "c", "status": "running", "pid": 7, "bundle": "/b",
            "annotations": {"dev.a3s.oci.runtime.paused": "true"}},
        "generation": 41, "driver": "native-linux", "isolation": "shared-host-kernel",
        "config_digest": "sha256:1",
    }));
    assert!(record.is_paused());
    record.state.set_annotations(Some(
        [(PAUSED_STATE_ANNOTATION.to_owned(), "TRUE".to_owned())].into(),
    ));
    assert!(!record.is_paused());
    same::<OutputChunk>(
        json!({"sequence": 3, "stream": "stdout", "data": [1, 2, 3], "eof": false}),
    );
    let error = same::<Error>(json!({"code": "not-found", "message": "m", "retryable": false}));
    assert_eq!(error.to_string(), "m");
    let error = Error::unsupported("read-output");
    assert_eq!(error.code, ErrorCode::Unsupported);
    assert_eq!(error.operation.as_deref(), Some("read-output"));
    assert!(error.message.contains("read-output"));
    let error = error.for_operation("x").retryable(true);
    same::<Error>(serde_json::to_value(&error).unwrap());
}

#[test]
fn runtime_info() {
    let form = json!({
        "oci": {"ociVersionMin": "1.0.0", "ociVersionMax": "1.3.0"},
        "drivers": {
            "schema_version": "a3s.oci.features.v1", "platform": "linux", "architecture": "x86_64",
            "drivers": [
                {"driver": "native-linux", "status": "available", "readiness": "supported",
                    "isolation_classes": ["shared-host-kernel"], "evidence": {"fake": "native"}},
                {"driver": "libkrun-whpx", "status": "available", "readiness": "probe-only",
                    "isolation_classes": ["dedicated-vm"], "evidence": {"fake": "whpx"}},
            ],
        },
        "operations": ["features", "read-output", "filesystem"],
        "attachments": {"schemas": ["a3s.oci.attachments.v1"], "extensions": {"dev.a3s.bundle-handoff": [1]}},
    });
    // The typed OCI features write their absent fields as null.
    let mut info: RuntimeInfo = serde_json::from_value(form.clone()).unwrap();
    let mut wire = serde_json::to_value(&info).unwrap();
    assert_eq!(
        serde_json::from_value::<RuntimeInfo>(wire.clone()).unwrap(),
        info
    );
    let oci = wire["oci"].as_object_mut().unwrap();
    oci.retain(|_, value| !value.is_null());
    assert_eq!(wire, form);
    assert!(info.drivers.drivers[0].can_launch());
    assert!(!info.drivers.drivers[1].can_launch());
    info.operations
        .retain(|operation| *operation != RuntimeOperation::ReadOutput);
    assert_eq!(info.operations.len(), 2);
}

#[test]
fn statistics() {
    let good = ContainerStats {
        target: ContainerTarget::current(ContainerId::new("c").unwrap()),
        timestamp_unix_ns: 1,
        cpu: CpuStats {
            usage_ns: 5,
            user_ns: 2,
            system_ns: 3,
            throttled_ns: 0,
        },
        memory: MemoryStats {
            usage_bytes: 4,
            limit_bytes: None,
            peak_bytes: Some(4),
        },
        process_count: 1,
        metrics: [(IO_READ_BYTES_METRIC.to_owned(), 1)].into(),
    };
    assert_eq!(good.validate(), Ok(()));
    let breaks: [fn(&mut ContainerStats); 6] = [
        |stats| stats.timestamp_unix_ns = 0,
        |stats| stats.cpu.user_ns = 3,
        |stats| stats.cpu.user_ns = u64::MAX,
        |stats| stats.memory.peak_bytes = Some(3),
        |stats| {
            stats.metrics.insert("a b".to_owned(), 1);
        },
        |stats| {
            stats.metrics.insert("m".repeat(257), 1);
        },
    ];
    for change in breaks {
        let mut stats = good.clone();
        change(&mut stats);
        assert!(stats.validate().is_err(), "{stats:?}");
    }
}
