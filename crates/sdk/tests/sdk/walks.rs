//! Section 12: whole stories.

use a3sbox_core::*;
use a3sbox_sdk::{CommandRunOptions, Sandbox, SandboxCreateOptions};

use crate::fake::{SIZE, world};

#[tokio::test]
async fn a_life_in_either_isolation() {
    for isolation in [ExecutionIsolation::Microvm, ExecutionIsolation::Sandbox] {
        let world = world();
        let options = SandboxCreateOptions::new("alpine:3.20")
            .isolation(isolation)
            .timeout_seconds(120)
            .env("MODE", "test")
            .metadata("suite", "rust-sdk");
        let sandbox = Sandbox::create_with_client(world.client.clone(), options)
            .await
            .unwrap();
        assert_eq!(sandbox.info().state, ExecutionState::Running);
        let request = world.fake.the_request();
        assert_eq!(request.labels["suite"], "rust-sdk");
        assert_eq!(
            request.config.extra_env,
            [("MODE".to_owned(), "test".to_owned())]
        );
        assert_eq!(request.config.resources.timeout, 120);
        assert_eq!(request.config.isolation, isolation);

        let result = sandbox
            .commands
            .run_with_options("echo", CommandRunOptions::default().cwd("/tmp"))
            .await
            .unwrap();
        assert_eq!((result.exit_code, result.stdout.as_str()), (0, "out\n"));
        let written = sandbox.files.write("/tmp/f", "hello").await.unwrap();
        assert_eq!(written.size, 5);
        assert_eq!(sandbox.files.read_text("/tmp/f").await.unwrap(), "hello");
        assert!(sandbox.files.exists("/tmp/f").await.unwrap());
        sandbox.pause(true).await.unwrap();
        assert_eq!(sandbox.info().state, ExecutionState::Paused);
        sandbox.resume().await.unwrap();
        assert!(sandbox.is_running().await.unwrap());
        sandbox.kill().await.unwrap();
        assert!(!sandbox.is_running().await.unwrap());
        sandbox.kill().await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_outlives_its_sandbox_until_it_is_deleted() {
    let world = world();
    let base = ExecutionSnapshotId::new("base").unwrap();
    let options = SandboxCreateOptions::new("alpine:3.20").filesystem_snapshot(base.clone());
    let sandbox = Sandbox::create_with_client(world.client.clone(), options)
        .await
        .unwrap();
    assert_eq!(world.fake.the_request().rootfs_snapshot_id, Some(base));

    let id = ExecutionSnapshotId::new("after-build").unwrap();
    let taken = sandbox
        .create_filesystem_snapshot(id.clone())
        .await
        .unwrap();
    assert_eq!(taken.snapshot_id, id);
    assert_eq!(sandbox.info().generation, taken.lease.generation.get());
    let client = &world.client;
    assert_eq!(
        client.execution_snapshot_size(&id).await.unwrap(),
        Some(SIZE)
    );
    sandbox.kill().await.unwrap();
    assert_eq!(
        client.execution_snapshot_size(&id).await.unwrap(),
        Some(SIZE)
    );
    assert!(client.delete_execution_snapshot(&id).await.unwrap());
    assert_eq!(client.execution_snapshot_size(&id).await.unwrap(), None);
    assert!(!client.delete_execution_snapshot(&id).await.unwrap());
}
