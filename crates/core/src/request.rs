//! The request that creates an execution.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::BoxConfig;
use crate::ids::ExecutionSnapshotId;
use crate::policy::ExecutionRecordPolicy;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateExecutionRequest {
    /// An untrusted label of the caller's; never a path component.
    pub external_sandbox_id: String,
    pub config: BoxConfig,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub policy: ExecutionRecordPolicy,
    #[serde(default)]
    pub rootfs_snapshot_id: Option<ExecutionSnapshotId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire_and_serialises_the_same_twice() {
        let mut request = CreateExecutionRequest {
            external_sandbox_id: "label".into(),
            config: BoxConfig::default(),
            labels: BTreeMap::from([("a".into(), "b".into())]),
            policy: ExecutionRecordPolicy::default(),
            rootfs_snapshot_id: Some(ExecutionSnapshotId::new("base-1").unwrap()),
        };
        request.config.extra_env = vec![("K".into(), "V".into())];
        request
            .policy
            .log_config
            .options
            .extend((0..32).map(|n| (format!("k{n}"), n.to_string())));
        let value = serde_json::to_value(&request).unwrap();
        let back: CreateExecutionRequest = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&back).unwrap(), value);
        assert_eq!(value["rootfs_snapshot_id"], "base-1");
        assert_eq!(
            serde_json::to_string(&back).unwrap(),
            serde_json::to_string(&request).unwrap()
        );
    }

    #[test]
    fn labels_policy_and_snapshot_may_be_absent() {
        let value = serde_json::json!({
            "external_sandbox_id": "x",
            "config": BoxConfig::default(),
        });
        let request: CreateExecutionRequest = serde_json::from_value(value).unwrap();
        assert!(request.labels.is_empty());
        assert_eq!(request.policy, ExecutionRecordPolicy::default());
        assert!(request.rootfs_snapshot_id.is_none());
    }
}
