//! Preparation and the evidence of create.

use a3sbox_core::{
    ExecutionGeneration, ExecutionIsolation, ExecutionManager, ExecutionSnapshotId,
    SnapshotImageConfig, SnapshotMetadata,
};
use a3sbox_oci::{DeleteMode, DriverKind, IsolationClass, IsolationRequest};
use a3sbox_testkit::{ATTACHMENTS_DIGEST, CONFIG_DIGEST, GENERATION};

use super::super::{
    ATTACHMENT_SCHEMA_V1, IoMode, create_operation_context, start_operation_context,
};
use super::provider::lower_marker;
use super::{World, assert_internal, assert_invalid, metadata, operation, request};
use crate::SnapshotStore;
use crate::process::pid_start_time;

/// A published snapshot, and a request that restores it.
fn restore(world: &World) -> (std::path::PathBuf, a3sbox_core::CreateExecutionRequest) {
    let id = "published-snapshot";
    let snapshots = world.home().join("snapshots");
    let source = snapshots.join(format!("{id}-rootfs-source"));
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("file"), "kept").unwrap();
    let mut metadata = SnapshotMetadata::new(
        id.to_owned(),
        id.to_owned(),
        "source-execution".to_owned(),
        "alpine:3.20".to_owned(),
    );
    metadata.image_config = Some(SnapshotImageConfig::default());
    SnapshotStore::new(&snapshots)
        .unwrap()
        .save(metadata, &source)
        .unwrap();
    let mut request = request(ExecutionIsolation::Sandbox);
    request.rootfs_snapshot_id = Some(ExecutionSnapshotId::new(id).unwrap());
    let rootfs = snapshots.join(id).join("rootfs").canonicalize().unwrap();
    (rootfs, request)
}

/// The folder of the only execution.
fn only_box(world: &World) -> std::path::PathBuf {
    let mut boxes = std::fs::read_dir(world.home().join("boxes")).unwrap();
    let found = boxes
        .next()
        .expect("an execution has a folder")
        .unwrap()
        .path();
    assert!(boxes.next().is_none());
    found
}

#[tokio::test]
async fn snapshot_restore_prepares_the_managed_lower_before_oci_bundle_creation() {
    let world = World::new();
    let (rootfs, request) = restore(&world);
    world.provider.expect_lower(rootfs.clone());
    world
        .manager
        .create_and_start(request, &operation("restore"))
        .await
        .unwrap();
    assert_eq!(world.provider.counts().prepares, 1);
    assert_eq!(lower_marker(&only_box(&world)), Some(rootfs));
}

#[tokio::test]
async fn invalid_preparation_is_cleaned_before_runtime_create() {
    let world = World::new();
    let (rootfs, request) = restore(&world);
    world.provider.expect_lower(rootfs);
    world
        .provider
        .answer_console_log("/elsewhere/console.log".into());
    let started = world
        .manager
        .create_and_start(request, &operation("restore"))
        .await;
    assert_invalid(started, "console path");
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 1));
    assert!(world.runtime.recorded().creates.is_empty());
    assert_eq!(world.runtime.container_count(), 0);
    assert_eq!(lower_marker(&only_box(&world)), None);
}

async fn assert_forced_cleanup(world: World, needle: &str) {
    let request = request(ExecutionIsolation::Sandbox);
    let started = world
        .manager
        .create_and_start(request, &operation("evidence"))
        .await;
    assert_internal(started, needle);
    assert_eq!(world.runtime.recorded().deletes, [DeleteMode::Force]);
    assert_eq!(world.runtime.container_count(), 0);
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 1));
}

#[tokio::test]
async fn mismatched_runtime_config_evidence_forces_exact_cleanup() {
    let world = World::new();
    world.runtime.answer_digests(Some(CONFIG_DIGEST), None);
    assert_forced_cleanup(world, "submitted bundle").await;
}

#[tokio::test]
async fn mismatched_runtime_attachment_evidence_forces_exact_cleanup() {
    let world = World::new();
    world.runtime.answer_digests(None, Some(ATTACHMENTS_DIGEST));
    assert_forced_cleanup(world, "submitted manifest").await;
}

#[tokio::test]
async fn launch_persists_exact_runtime_binding_for_both_product_isolations() {
    for (isolation, requested, class, driver) in [
        (
            ExecutionIsolation::Sandbox,
            IsolationRequest::SharedHostKernel,
            IsolationClass::SharedHostKernel,
            DriverKind::NativeLinux,
        ),
        (
            ExecutionIsolation::Microvm,
            IsolationRequest::DedicatedVm,
            IsolationClass::DedicatedVm,
            DriverKind::LibkrunWhpx,
        ),
    ] {
        let world = World::new();
        let launched = world.launch(isolation).await;
        let record = world.record(launched.id());
        assert_eq!(launched.generation(), ExecutionGeneration::INITIAL);
        assert_eq!(metadata(&record).generation, ExecutionGeneration::INITIAL);
        let recorded = world.runtime.recorded();
        let ([create], [start]) = (recorded.creates.as_slice(), recorded.starts.as_slice()) else {
            panic!(
                "{} creates, {} starts",
                recorded.creates.len(),
                recorded.starts.len()
            );
        };
        let seed = launched.operation_id.as_str();
        let initial = ExecutionGeneration::INITIAL;
        assert_eq!(create.isolation, requested);
        assert_eq!(
            create.context,
            create_operation_context(seed, initial, &create.id, class).unwrap()
        );
        assert_eq!(create.attachments.schema_version(), ATTACHMENT_SCHEMA_V1);
        assert_eq!(create.attachments.process_io().stdin, IoMode::Null);
        assert_eq!(
            start.context,
            start_operation_context(seed, initial, &start.target, class).unwrap()
        );
        assert_ne!(create.context.operation_id, start.context.operation_id);

        let binding = metadata(&record).oci_runtime.clone().unwrap();
        assert_eq!(binding.endpoint, world.endpoint());
        assert_eq!(
            binding.target.id.as_str(),
            format!("a3s-box-{}", launched.id())
        );
        assert_eq!(binding.target.generation, Some(GENERATION));
        assert_eq!((binding.driver, binding.isolation), (driver, class));
        assert_eq!(binding.config_digest, create.bundle.config_digest());
        assert_eq!(
            binding.attachments_digest,
            create.attachments.digest().unwrap()
        );
        let own = std::process::id();
        let identity = match isolation {
            ExecutionIsolation::Sandbox => (Some(own), pid_start_time(own)),
            ExecutionIsolation::Microvm => (None, None),
        };
        assert_eq!((record.pid, record.pid_start_time), identity);
        assert!(record.exec_socket_path.as_os_str().is_empty());
        let counts = world.provider.counts();
        assert_eq!((counts.prepares, counts.cleanups), (1, 0));
    }
}
