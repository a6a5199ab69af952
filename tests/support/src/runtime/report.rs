//! The capability report as a test wants it, built from the shape that travels.

use a3sbox_oci::{Error, ErrorCode, Result, RuntimeInfo, RuntimeOperation};
use serde_json::{Value, json};

/// A report in its JSON form; edits are plain edits of the value.
#[derive(Debug, Clone)]
pub struct RuntimeReport(Value);

impl Default for RuntimeReport {
    fn default() -> Self {
        let absent = [
            RuntimeOperation::List,
            RuntimeOperation::Checkpoint,
            RuntimeOperation::Restore,
        ];
        let operations: Vec<_> = [
            "features",
            "create",
            "state",
            "start",
            "kill",
            "delete",
            "exec",
            "wait",
            "list",
            "pause",
            "resume",
            "update",
            "processes",
            "stats",
            "events",
            "read-output",
            "write-stdin",
            "close-stdin",
            "resize",
            "signal-process",
            "wait-process",
            "file",
            "filesystem",
            "checkpoint",
            "restore",
        ]
        .into_iter()
        .filter(|label| !absent.iter().any(|operation| operation.label() == *label))
        .collect();
        Self(json!({
            "oci": { "ociVersionMin": "1.0.0", "ociVersionMax": "1.3.0" },
            "drivers": {
                "schema_version": "a3s.oci.features.v1",
                "platform": "linux",
                "architecture": std::env::consts::ARCH,
                "drivers": [
                    {
                        "driver": "native-linux",
                        "status": "available",
                        "readiness": "supported",
                        "isolation_classes": ["shared-host-kernel"],
                        "evidence": { "fake": "native" },
                    },
                    {
                        "driver": "libkrun-whpx",
                        "status": "available",
                        "readiness": "experimental",
                        "isolation_classes": ["dedicated-vm"],
                        "evidence": { "fake": "whpx" },
                    },
                ],
            },
            "operations": operations,
            "attachments": { "schemas": ["a3s.oci.attachments.v1"], "extensions": {} },
        }))
    }
}

impl RuntimeReport {
    /// The driver of dedicated VMs is there and cannot launch.
    #[must_use]
    pub fn with_probe_only_vm(mut self) -> Self {
        self.0["drivers"]["drivers"][1]["readiness"] = json!("probe-only");
        self
    }

    #[must_use]
    pub fn without_attachment_schema(mut self) -> Self {
        self.0["attachments"]["schemas"] = json!([]);
        self
    }

    #[must_use]
    pub fn with_extension(mut self, name: &str, versions: &[u16]) -> Self {
        self.0["attachments"]["extensions"][name] = json!(versions);
        self
    }

    #[must_use]
    pub fn without(mut self, operation: RuntimeOperation) -> Self {
        if let Some(operations) = self.0["operations"].as_array_mut() {
            operations.retain(|label| label != operation.label());
        }
        self
    }

    pub(crate) fn decode(&self) -> Result<RuntimeInfo> {
        serde_json::from_value(self.0.clone())
            .map_err(|error| Error::new(ErrorCode::Internal, format!("the report: {error}")))
    }
}
