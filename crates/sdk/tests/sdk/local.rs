//! The local manager: refusals come before anything is recorded.

use a3sbox_core::*;
use a3sbox_sdk::{A3sBoxClient, ClientError, Sandbox, SandboxCreateOptions};
use tempfile::TempDir;

struct Local {
    home: TempDir,
    client: A3sBoxClient,
}

fn local() -> Local {
    let home = tempfile::tempdir().unwrap();
    let client = A3sBoxClient::from_home(home.path());
    Local { home, client }
}

impl Local {
    async fn create(&self, config: BoxConfig, external: &str) -> a3sbox_sdk::Result<()> {
        let request = CreateExecutionRequest {
            external_sandbox_id: external.into(),
            config,
            labels: Default::default(),
            policy: ExecutionRecordPolicy::default(),
            rootfs_snapshot_id: None,
        };
        // The same operation id each time: a refusal claims none.
        let operation_id = OperationId::new("create-1").unwrap();
        self.client
            .create_box(request, &operation_id)
            .await
            .map(drop)
    }

    fn assert_nothing_recorded(&self) {
        assert!(!self.client.paths().boxes_file.exists());
        assert_eq!(std::fs::read_dir(self.home.path()).unwrap().count(), 0);
    }
}

fn config(isolation: ExecutionIsolation) -> BoxConfig {
    BoxConfig {
        isolation,
        image: "alpine:3.20".into(),
        ..BoxConfig::default()
    }
}

fn with_option(isolation: ExecutionIsolation, entry: &str) -> BoxConfig {
    BoxConfig {
        security_opt: vec![entry.into()],
        ..config(isolation)
    }
}

fn invalid<T: std::fmt::Debug>(result: a3sbox_sdk::Result<T>) -> String {
    match result {
        Err(ClientError::Execution(ExecutionManagerError::InvalidRequest(message))) => message,
        other => panic!("expected InvalidRequest, got {other:?}"),
    }
}

fn unavailable<T: std::fmt::Debug>(result: a3sbox_sdk::Result<T>) -> String {
    match result {
        Err(ClientError::Execution(ExecutionManagerError::Unavailable(message))) => message,
        other => panic!("expected Unavailable, got {other:?}"),
    }
}

#[test]
fn making_a_client_needs_no_runtime_and_creates_nothing() {
    let local = local();
    assert_eq!(local.client.paths().home, local.home.path());
    local.assert_nothing_recorded();
    let missing = local.home.path().join("not/there");
    A3sBoxClient::from_home(&missing);
    assert!(!missing.exists());
}

#[tokio::test]
async fn security_options_that_nobody_honours_are_invalid_and_nothing_is_recorded() {
    let local = local();
    for isolation in [ExecutionIsolation::Microvm, ExecutionIsolation::Sandbox] {
        for (entry, word) in [
            ("apparmor=runtime/default", "AppArmor"),
            ("label=type:container_t", "SELinux"),
            ("seccomp=/profiles/restricted.json", "custom seccomp"),
        ] {
            let message = invalid(local.create(with_option(isolation, entry), "x").await);
            assert!(message.contains(word), "{message}");
            local.assert_nothing_recorded();
        }
    }
}

#[tokio::test]
async fn everything_else_that_can_never_be_honoured_is_invalid_too() {
    let local = local();
    let plain = || config(ExecutionIsolation::Microvm);
    invalid(local.create(plain(), " ").await);
    for vcpus in [0, 256] {
        let mut config = plain();
        config.resources.vcpus = vcpus;
        invalid(local.create(config, "x").await);
    }
    let privileged = BoxConfig {
        privileged: true,
        ..config(ExecutionIsolation::Sandbox)
    };
    invalid(local.create(privileged, "x").await);
    local.assert_nothing_recorded();
}

#[tokio::test]
async fn what_is_missing_is_named_and_nothing_is_recorded() {
    let local = local();
    for (isolation, word) in [
        (ExecutionIsolation::Microvm, "microVM driver"),
        (ExecutionIsolation::Sandbox, "image store"),
    ] {
        let message = unavailable(local.create(config(isolation), "x").await);
        assert!(message.contains(word), "{message}");
        let options = SandboxCreateOptions::new("alpine:3.20").isolation(isolation);
        unavailable(Sandbox::create_with_client(local.client.clone(), options).await);
        local.assert_nothing_recorded();
    }
}

#[tokio::test]
async fn an_unknown_execution_is_not_found() {
    let local = local();
    let id = ExecutionId::new("nobody").unwrap();
    let first = ExecutionGeneration::INITIAL;
    assert!(matches!(
        local.client.inspect_execution(&id).await,
        Err(ClientError::Execution(ExecutionManagerError::NotFound(_)))
    ));
    assert!(matches!(
        local.client.kill_execution(&id, first).await,
        Err(ClientError::Execution(ExecutionManagerError::NotFound(_)))
    ));
    let operation_id = OperationId::new("never").unwrap();
    assert!(matches!(
        local.client.reconcile_operation(&operation_id).await,
        Ok(ReconcileOutcome::Absent)
    ));
    assert!(!local.client.paths().boxes_file.exists());
}
