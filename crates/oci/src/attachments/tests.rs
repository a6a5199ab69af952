use serde_json::json;

use super::*;
use crate::error::ErrorCode;
use crate::ids::{ContainerId, OperationId};
use crate::request::{IoMode, TerminalSize};

fn bundle(annotations: &Value) -> OciBundle {
    let config = json!({
        "ociVersion": "1.2.0",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["x"], "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/run/secrets/a", "type": "bind", "source": "/s", "options": ["rbind"]},
        ],
        "linux": {"namespaces": [
            {"type": "pid"}, {"type": "network", "path": "/var/run/netns/x"}, {"type": "mount"},
        ]},
        "annotations": annotations,
    });
    OciBundle::from_json("/bundle", config.to_string()).unwrap()
}

fn plain() -> OciBundle {
    bundle(&json!({"a/b~c": "value"}))
}

fn attachments(bundle: &OciBundle) -> CreateAttachments {
    CreateAttachments::from_bundle(bundle, ProcessIo::default()).unwrap()
}

#[test]
fn a_configuration_is_classified_by_pointer_and_text() {
    let bundle = plain();
    let attachments = attachments(&bundle);
    attachments.validate(&bundle).unwrap();
    assert_eq!(attachments.schema_version(), "a3s.oci.attachments.v1");
    let root = attachments.rootfs().unwrap();
    assert_eq!(root.json_pointer, "/root");
    assert_eq!(root.value_digest, sha256_digest(br#"{"path":"rootfs"}"#));
    let pointers = |entries: &[AttachmentEntry]| {
        entries
            .iter()
            .map(|entry| entry.json_pointer.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(pointers(attachments.mounts()), ["/mounts/0", "/mounts/1"]);
    assert_eq!(pointers(attachments.network()), ["/linux/namespaces/1"]);
    assert!(attachments.secrets().is_empty());
    assert!(!attachments.uses_runtime_bundle_handoff());
    let wire = serde_json::to_value(&attachments).unwrap();
    let keys: Vec<_> = wire.as_object().unwrap().keys().cloned().collect();
    let mut expected = vec![
        "schemaVersion",
        "rootfs",
        "mounts",
        "network",
        "processIo",
        "secrets",
        "extensions",
    ];
    expected.sort_unstable();
    let mut keys = keys;
    keys.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(
        serde_json::from_value::<CreateAttachments>(wire.clone()).unwrap(),
        attachments
    );
    let mut unknown = wire;
    unknown["more"] = json!(1);
    assert!(serde_json::from_value::<CreateAttachments>(unknown).is_err());
}

#[test]
fn the_digest_is_that_of_the_content() {
    let bundle = plain();
    let build = |order: [&str; 2]| {
        order
            .iter()
            .fold(attachments(&bundle), |attachments, name| {
                attachments
                    .with_extension(*name, 1, false, json!({"z": 1, "a": {"y": 2, "b": [3]}}))
                    .unwrap()
            })
    };
    let digest = build(["x.one", "x.two"]).digest().unwrap();
    assert_eq!(build(["x.two", "x.one"]).digest().unwrap(), digest);
    assert!(digest.starts_with("sha256:") && digest.len() == 71);
    let text = serde_json::to_string(&build(["x.one", "x.two"])).unwrap();
    let decoded: CreateAttachments = serde_json::from_str(&text).unwrap();
    assert_eq!(decoded.digest().unwrap(), digest);
    let other = attachments(&bundle).with_process_io(ProcessIo {
        stdin: IoMode::Pipe,
        ..ProcessIo::default()
    });
    assert_ne!(other.digest().unwrap(), digest);
    assert_ne!(
        other.digest().unwrap(),
        attachments(&bundle).digest().unwrap()
    );
}

#[test]
fn attachments_of_another_configuration_are_refused() {
    let made_for = plain();
    let attachments = attachments(&made_for);
    let edits: [fn(&mut Value); 4] = [
        |config| config["root"]["path"] = json!("other"),
        |config| config["mounts"][1]["source"] = json!("/other"),
        |config| config["linux"]["namespaces"][1] = json!({"type": "network"}),
        |config| config["mounts"] = json!([]),
    ];
    for edit in edits {
        let mut config: Value = serde_json::from_str(made_for.config_json()).unwrap();
        edit(&mut config);
        let other = OciBundle::from_json("/bundle", config.to_string()).unwrap();
        let error = attachments.validate(&other).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{config}");
    }
    let mut wire = serde_json::to_value(&attachments).unwrap();
    wire["schemaVersion"] = json!("a3s.oci.attachments.v2");
    let newer: CreateAttachments = serde_json::from_value(wire).unwrap();
    assert!(newer.validate(&made_for).is_err());
}

#[test]
fn a_secret_mount_is_moved_and_still_fits() {
    let bundle = plain();
    let attachments = attachments(&bundle).mark_secret_mount(1).unwrap();
    assert_eq!(attachments.secrets()[0].json_pointer, "/mounts/1");
    assert_eq!(attachments.mounts().len(), 1);
    attachments.validate(&bundle).unwrap();
    assert!(attachments.clone().mark_secret_mount(1).is_err());
    let mut wire = serde_json::to_value(&attachments).unwrap();
    wire["mounts"][0] = wire["secrets"][0].clone();
    let twice: CreateAttachments = serde_json::from_value(wire).unwrap();
    assert!(twice.validate(&bundle).is_err());
}

#[test]
fn extensions_carry_a_value_or_an_annotation() {
    let bundle = plain();
    let attachments = attachments(&bundle)
        .with_extension("dev.x", 2, true, json!({"k": "v"}))
        .unwrap()
        .add_extension_from_annotation(&bundle, "a/b~c", 1, false)
        .unwrap();
    attachments.validate(&bundle).unwrap();
    assert_eq!(
        attachments.extension_value("dev.x"),
        Some(&json!({"k": "v"}))
    );
    assert_eq!(attachments.extension_value("a/b~c"), None);
    assert_eq!(attachments.extension_value("absent"), None);
    let entry = attachments.extensions()["a/b~c"].config_entry().unwrap();
    assert_eq!(entry.json_pointer, "/annotations/a~1b~0c");
    assert!(
        attachments
            .validate(&super::tests::bundle(&json!({"a/b~c": "other"})))
            .is_err()
    );
    let again = |name: &str, version, value| {
        attachments
            .clone()
            .with_extension(name, version, true, value)
    };
    assert!(again("dev.x", 1, json!(1)).is_err(), "given twice");
    assert!(again("", 1, json!(1)).is_err());
    assert!(again("with space", 1, json!(1)).is_err());
    assert!(again("dev.y", 0, json!(1)).is_err());
    assert!(again("dev.y", 1, json!(null)).is_err());
    assert!(again("dev.y", 1, json!("x".repeat(256 * 1024))).is_err());
    assert!(
        attachments
            .clone()
            .add_extension_from_annotation(&bundle, "absent", 1, false)
            .is_err()
    );
}

#[test]
fn a_handoff_needs_its_annotation() {
    let name = RUNTIME_BUNDLE_HANDOFF_EXTENSION;
    let agreed = bundle(&json!({name: RUNTIME_BUNDLE_HANDOFF_MOVE_V1}));
    let attachments = super::tests::attachments(&agreed)
        .with_runtime_bundle_handoff(&agreed)
        .unwrap();
    assert!(attachments.uses_runtime_bundle_handoff());
    attachments.validate(&agreed).unwrap();
    let other = bundle(&json!({name: "copy"}));
    for refused in [&other, &plain()] {
        let error = super::tests::attachments(refused)
            .with_runtime_bundle_handoff(refused)
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
    }
    let optional = super::tests::attachments(&agreed)
        .add_extension_from_annotation(&agreed, name, 1, false)
        .unwrap();
    assert!(optional.validate(&agreed).is_err());
}

#[test]
fn the_handoff_directory_is_a_pure_path() {
    let container = ContainerId::new("c-1").unwrap();
    let operation = OperationId::new("op-1").unwrap();
    let path = runtime_bundle_handoff_directory("/run/r", &container, &operation).unwrap();
    assert_eq!(
        path.to_str(),
        Some("/run/r/bundle-handoffs/c-1/op-1/bundle")
    );
    let error = runtime_bundle_handoff_directory("run", &container, &operation).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
}

#[test]
fn process_io_agrees_with_the_terminal() {
    let bundle = plain();
    let size = TerminalSize {
        width: 80,
        height: 24,
    };
    let refused = CreateAttachments::from_bundle(&bundle, ProcessIo::terminal(size)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidArgument);
    let changed = attachments(&bundle).with_process_io(ProcessIo::terminal(size));
    assert!(changed.validate(&bundle).is_err());
    let config = bundle
        .config_json()
        .replace(r#""cwd":"/""#, r#""cwd":"/","terminal":true"#);
    let terminal = OciBundle::from_json("/bundle", config).unwrap();
    let attachments = CreateAttachments::from_bundle(&terminal, ProcessIo::terminal(size)).unwrap();
    attachments.validate(&terminal).unwrap();
    assert!(CreateAttachments::from_bundle(&terminal, ProcessIo::default()).is_err());
}

#[test]
fn capabilities_decide_what_may_be_required() {
    let bundle = plain();
    let capabilities = AttachmentCapabilities::base_v1()
        .with_extension("dev.x", [3, 1, 3])
        .unwrap();
    assert_eq!(
        serde_json::to_value(&capabilities).unwrap(),
        json!({"schemas": ["a3s.oci.attachments.v1"], "extensions": {"dev.x": [1, 3]}})
    );
    assert!(capabilities.supports_schema(ATTACHMENT_SCHEMA_V1));
    assert!(capabilities.supports_extension("dev.x", 3));
    assert!(!capabilities.supports_extension("dev.x", 2));
    let with = |version, required| {
        attachments(&bundle)
            .with_extension("dev.x", version, required, json!(1))
            .unwrap()
    };
    capabilities.require(&with(1, true)).unwrap();
    capabilities.require(&with(2, false)).unwrap();
    let error = capabilities.require(&with(2, true)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unsupported);
    assert!(error.message.contains("dev.x"));
    let none: AttachmentCapabilities =
        serde_json::from_value(json!({"schemas": [], "extensions": {}})).unwrap();
    let error = none.require(&attachments(&bundle)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unsupported);
    assert!(error.message.contains(ATTACHMENT_SCHEMA_V1));
    let unsorted: AttachmentCapabilities =
        serde_json::from_value(json!({"schemas": [], "extensions": {"x": [2, 1]}})).unwrap();
    assert!(unsorted.supports_extension("x", 1));
    for bad in [
        json!({"schemas": [], "more": 1}),
        json!({"schemas": [], "extensions": {"x": []}}),
        json!({"schemas": [], "extensions": {"x": [0]}}),
    ] {
        assert!(serde_json::from_value::<AttachmentCapabilities>(bad).is_err());
    }
}
