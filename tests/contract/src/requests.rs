//! Requests of the cases.

use std::collections::BTreeMap;

use a3sbox_core::{
    BoxConfig, CreateExecutionRequest, ExecRequest, ExecutionGeneration, ExecutionIsolation,
    ExecutionRecordPolicy, KillExecutionOptions, NetworkMode, OperationId,
};

/// A create request. Without a command the container runs the provider's own program.
pub fn request(isolation: ExecutionIsolation, cmd: &[&str]) -> CreateExecutionRequest {
    CreateExecutionRequest {
        external_sandbox_id: "sandbox".to_owned(),
        config: BoxConfig {
            image: "busybox".to_owned(),
            isolation,
            cmd: cmd.iter().map(|&word| word.to_owned()).collect(),
            network: NetworkMode::None,
            ..BoxConfig::default()
        },
        labels: BTreeMap::new(),
        policy: ExecutionRecordPolicy::default(),
        rootfs_snapshot_id: None,
    }
}

pub fn operation(name: &str) -> OperationId {
    OperationId::new(format!("operation-{name}")).unwrap()
}

/// A command that may take as long as anything in these tests.
pub fn command(cmd: &[&str]) -> ExecRequest {
    ExecRequest {
        request_id: None,
        cmd: cmd.iter().map(|&word| word.to_owned()).collect(),
        timeout_ns: 60_000_000_000,
        env: Vec::new(),
        working_dir: Some("/".to_owned()),
        rootfs: None,
        stdin: None,
        stdin_streaming: false,
        user: None,
        streaming: false,
    }
}

pub fn kill_with(signal: i32, timeout_secs: Option<u64>) -> KillExecutionOptions {
    KillExecutionOptions {
        signal: Some(signal),
        timeout_secs,
    }
}

pub fn next(generation: ExecutionGeneration) -> ExecutionGeneration {
    ExecutionGeneration::new(generation.get() + 1).unwrap()
}
