//! What is refused before anything is stored or prepared.

use std::sync::Arc;

use a3sbox_core::{ExecutionIsolation, ExecutionManager, ReconcileOutcome};
use a3sbox_oci::runtime_bundle_handoff_directory;
use a3sbox_testkit::{GENERATION, RecordingRuntime, RuntimeReport};

use super::super::{RUNTIME_BUNDLE_HANDOFF_EXTENSION, runtime_container_id};
use super::provider::HandoffProvider;
use super::{World, assert_unavailable, backend, manager, operation, request};

async fn assert_refused(report: RuntimeReport, isolation: ExecutionIsolation, needle: &str) {
    let world = World::with_report(report);
    let operation_id = operation("refused");
    assert_unavailable(
        world
            .manager
            .create(request(isolation), &operation_id)
            .await,
        needle,
    );
    assert!(!world.manager.state_path().exists());
    assert_eq!(world.provider.counts().prepares, 0);
    assert!(world.runtime.recorded().creates.is_empty());
    let outcome = world.manager.reconcile(&operation_id).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Absent), "{outcome:?}");
}

#[tokio::test]
async fn preflight_rejects_probe_only_isolation_before_store_or_preparation() {
    let report = RuntimeReport::default().with_probe_only_vm();
    assert_refused(report, ExecutionIsolation::Microvm, "launch-ready").await;
}

#[tokio::test]
async fn preflight_requires_attachment_v1_before_store_or_preparation() {
    let report = RuntimeReport::default().without_attachment_schema();
    assert_refused(
        report,
        ExecutionIsolation::Sandbox,
        "a3s.oci.attachments.v1",
    )
    .await;
}

#[tokio::test]
async fn bundle_handoff_capability_fails_before_store_or_preparation() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = RecordingRuntime::new(RuntimeReport::default());
    let provider = Arc::new(HandoffProvider::new(folder.path().join("oci-runtime")));
    let manager = manager(&folder, backend(&folder, &runtime, provider.clone()));
    let created = manager
        .create(request(ExecutionIsolation::Microvm), &operation("handoff"))
        .await;
    assert_unavailable(created, RUNTIME_BUNDLE_HANDOFF_EXTENSION);
    assert!(!manager.state_path().exists());
    assert_eq!(
        (provider.counts().preflights, provider.counts().prepares),
        (1, 0)
    );
    assert!(runtime.recorded().creates.is_empty());
}

#[tokio::test]
async fn bundle_handoff_uses_the_exact_context_sent_to_runtime_create() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("oci-runtime");
    let report = RuntimeReport::default().with_extension(RUNTIME_BUNDLE_HANDOFF_EXTENSION, &[1]);
    let runtime = RecordingRuntime::new(report);
    let provider = Arc::new(HandoffProvider::new(root.clone()));
    let manager = manager(&folder, backend(&folder, &runtime, provider.clone()));
    let lease = manager
        .create_and_start(request(ExecutionIsolation::Microvm), &operation("handoff"))
        .await
        .unwrap();
    let creates = runtime.recorded().creates;
    let [create] = creates.as_slice() else {
        panic!("{} creates", creates.len())
    };
    let expected =
        runtime_bundle_handoff_directory(&root, &create.id, &create.context.operation_id).unwrap();
    assert_eq!(create.bundle.directory(), expected.canonicalize().unwrap());
    assert!(create.attachments.uses_runtime_bundle_handoff());
    assert_eq!(
        create.id,
        runtime_container_id(&lease.execution_id).unwrap()
    );
    assert_ne!(lease.generation.get(), GENERATION.0);
    assert!(provider.counts().preflights >= 2);
    assert_eq!(provider.counts().prepares, 1);
}

#[cfg(windows)]
#[test]
fn windows_handoff_comparison_accepts_only_the_verbatim_namespace_spelling() {
    use super::super::exact_handoff_directory_matches;

    let matches =
        |one: &str, other: &str| exact_handoff_directory_matches(one.as_ref(), other.as_ref());
    assert!(matches(r"\\?\C:\root\bundle", r"C:\root\bundle"));
    assert!(matches(
        r"\\?\UNC\server\share\bundle",
        r"\\server\share\bundle"
    ));
    assert!(!matches(r"\\?\C:\other\bundle", r"C:\root\bundle"));
}
