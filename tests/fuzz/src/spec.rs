//! An OCI config of any content, and annotations of any name and value.

use a3sbox_oci::{
    ContainerId, CreateAttachments, CreateRequest, EngineOptions, IsolationRequest, OciBundle,
    OperationContext, OperationId, ProcessIo, StdioUris, ValidateRequest as _,
};
use serde_json::json;

/// From the bytes of a config to a checked create request, and over the wire.
pub(crate) fn bundle(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(bundle) = OciBundle::from_json("/bundle", text) else {
        return;
    };
    assert_eq!(bundle.config_json(), text);
    let wire = serde_json::to_vec(&bundle).unwrap();
    assert_eq!(serde_json::from_slice::<OciBundle>(&wire).unwrap(), bundle);
    let Ok(attachments) = CreateAttachments::from_bundle(&bundle, ProcessIo::default()) else {
        return;
    };
    let digest = attachments.digest().unwrap();
    let request = CreateRequest {
        context: OperationContext::new(OperationId::new("op").unwrap()),
        id: ContainerId::new("c1").unwrap(),
        bundle,
        isolation: IsolationRequest::SharedHostKernel,
        attachments,
    };
    if request.validate().is_ok() {
        let wire = serde_json::to_vec(&request).unwrap();
        let read: CreateRequest = serde_json::from_slice(&wire).unwrap();
        assert_eq!(read.attachments.digest().unwrap(), digest);
        read.validate().unwrap();
    }
}

/// The first line is a name, the rest a value.
pub(crate) fn annotation(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (name, value) = text.split_once('\n').unwrap_or((&text, ""));
    let mut spec = minimal();
    spec["annotations"] = json!({ name: value });
    if let Ok(bundle) = OciBundle::from_json("/bundle", spec.to_string())
        && let Ok(plain) = CreateAttachments::from_bundle(&bundle, ProcessIo::default())
        && let Ok(attachments) = plain.add_extension_from_annotation(&bundle, name, 1, true)
        // A handoff has one value, which is looked at here.
        && attachments.validate(&bundle).is_ok()
    {
        let wire = serde_json::to_vec(&attachments).unwrap();
        let read: CreateAttachments = serde_json::from_slice(&wire).unwrap();
        assert_eq!(read, attachments);
    }
    // The values of our own extensions.
    let _ = serde_json::from_str::<StdioUris>(value);
    let _ = serde_json::from_str::<EngineOptions>(value);
}

fn minimal() -> serde_json::Value {
    json!({
        "ociVersion": "1.3.0",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "cwd": "/",
        },
        "root": { "path": "rootfs", "readonly": false },
    })
}

pub(crate) fn specs() -> Vec<Vec<u8>> {
    let mut full = minimal();
    full["hostname"] = json!("h");
    full["mounts"] = json!([
        { "destination": "/proc", "type": "proc", "source": "proc" },
        { "destination": "/data", "type": "bind", "source": "/srv", "options": ["rbind", "ro"] },
    ]);
    full["annotations"] =
        json!({ "io.kubernetes.cri.sandbox-id": "s", "a3s.box/isolation": "native" });
    full["hooks"] = json!({ "poststop": [{ "path": "/bin/true", "timeout": 5 }] });
    full["linux"] = json!({
        "cgroupsPath": "/a/b",
        "namespaces": [{ "type": "pid" }, { "type": "network", "path": "/run/netns/x" }],
        "resources": { "memory": { "limit": 1048576 }, "pids": { "limit": 64 }, "cpu": { "shares": 2 } },
        "uidMappings": [{ "containerID": 0, "hostID": 1000, "size": 65536 }],
        "seccomp": { "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_ALLOW" }] },
    });
    vec![
        minimal().to_string().into_bytes(),
        full.to_string().into_bytes(),
    ]
}

pub(crate) fn annotations() -> Vec<Vec<u8>> {
    [
        "dev.a3s.bundle-handoff\nmove-to-runtime-v1",
        "a3s.box/isolation\nmicrovm",
        "dev.a3sbox.stdio\n{\"stdin\":\"fifo:///run/x\",\"stdout\":\"binary:///bin/log?a=b\",\"terminal\":false}",
        "dev.a3sbox.engine\n{\"binary\":\"runc\",\"root\":\"/run/runc\",\"systemd_cgroup\":true}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
