//! Which backend a call reaches, with a probe on either side.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use a3sbox_core::{
    BoxConfig, CreateExecutionRequest, ExecutionId, ExecutionIsolation, ExecutionManager,
    ExecutionManagerError, ExecutionManagerResult, KillOutcome, OperationId,
};
use async_trait::async_trait;

use super::record::build_managed_record;
use super::{
    LocalExecutionBackend, LocalExecutionBackendRouter, LocalExecutionHandle,
    LocalExecutionManager, LocalExecutionObservation, OciMigrationPolicy,
};
use crate::{BoxRecord, ManagedRuntimeRoute};

/// Counts what reaches it.
#[derive(Debug, Default)]
struct Probe {
    preflights: AtomicUsize,
    kills: AtomicUsize,
    others: AtomicUsize,
    /// The route that a preflighted record must carry.
    expected_route: Option<ManagedRuntimeRoute>,
    refuses: bool,
}

impl Probe {
    fn calls(&self) -> (usize, usize, usize) {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (
            load(&self.preflights),
            load(&self.kills),
            load(&self.others),
        )
    }

    fn other<T>(&self) -> ExecutionManagerResult<T> {
        self.others.fetch_add(1, Ordering::Relaxed);
        Err(ExecutionManagerError::Internal(
            "a probe runs nothing".to_owned(),
        ))
    }
}

#[async_trait]
impl LocalExecutionBackend for Probe {
    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        self.preflights.fetch_add(1, Ordering::Relaxed);
        if let Some(expected) = self.expected_route {
            assert_eq!(
                record.managed_execution.as_ref().unwrap().runtime_route,
                expected
            );
        }
        if self.refuses {
            return Err(ExecutionManagerError::Unavailable("not here".to_owned()));
        }
        Ok(())
    }

    async fn start(&self, _record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.other()
    }

    async fn inspect(
        &self,
        _record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        self.other()
    }

    async fn pause(
        &self,
        _record: &BoxRecord,
        _keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.other()
    }

    async fn resume(&self, _record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.other()
    }

    async fn kill(&self, _record: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        self.kills.fetch_add(1, Ordering::Relaxed);
        Ok(KillOutcome::Killed)
    }
}

fn request(isolation: ExecutionIsolation) -> CreateExecutionRequest {
    CreateExecutionRequest {
        external_sandbox_id: "routed".to_owned(),
        config: BoxConfig {
            image: "alpine:3.20".to_owned(),
            isolation,
            ..BoxConfig::default()
        },
        labels: std::collections::BTreeMap::new(),
        policy: a3sbox_core::ExecutionRecordPolicy::default(),
        rootfs_snapshot_id: None,
    }
}

fn record(isolation: ExecutionIsolation) -> BoxRecord {
    build_managed_record(
        Path::new("/nonexistent"),
        &ExecutionId::new("routed").unwrap(),
        OperationId::new("routed").unwrap(),
        request(isolation),
        chrono::Utc::now(),
    )
    .unwrap()
}

fn stamped(isolation: ExecutionIsolation, route: ManagedRuntimeRoute) -> BoxRecord {
    let mut record = record(isolation);
    record.managed_execution.as_mut().unwrap().runtime_route = route;
    record
}

struct Routed {
    legacy: Arc<Probe>,
    oci: Arc<Probe>,
    router: LocalExecutionBackendRouter,
}

fn routed(policy: OciMigrationPolicy, legacy: Probe, oci: Probe) -> Routed {
    let (legacy, oci) = (Arc::new(legacy), Arc::new(oci));
    let router = LocalExecutionBackendRouter::new(legacy.clone(), oci.clone(), policy);
    Routed {
        legacy,
        oci,
        router,
    }
}

fn expecting(route: ManagedRuntimeRoute) -> Probe {
    Probe {
        expected_route: Some(route),
        ..Probe::default()
    }
}

#[test]
fn the_policy_decides_the_route_of_new_records_only() {
    use ManagedRuntimeRoute::{BoxVm, OciSdk};
    assert_eq!(
        OciMigrationPolicy::default(),
        OciMigrationPolicy::LegacyOnly
    );
    for (policy, microvm, sandbox) in [
        (OciMigrationPolicy::LegacyOnly, BoxVm, BoxVm),
        (OciMigrationPolicy::SandboxViaOci, BoxVm, OciSdk),
        (OciMigrationPolicy::AllViaOci, OciSdk, OciSdk),
    ] {
        let routed = routed(policy, Probe::default(), Probe::default());
        assert_eq!(routed.router.policy(), policy);
        for (isolation, expected) in [
            (ExecutionIsolation::Microvm, microvm),
            (ExecutionIsolation::Sandbox, sandbox),
        ] {
            assert_eq!(
                routed.router.route_for_create(&record(isolation)).unwrap(),
                expected
            );
        }
    }
}

#[tokio::test]
async fn a_created_record_is_stamped_before_its_backend_sees_it() {
    for (isolation, route, oci_preflights) in [
        (ExecutionIsolation::Sandbox, ManagedRuntimeRoute::OciSdk, 1),
        (ExecutionIsolation::Microvm, ManagedRuntimeRoute::BoxVm, 0),
    ] {
        let routed = routed(
            OciMigrationPolicy::SandboxViaOci,
            expecting(route),
            expecting(route),
        );
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("boxes.json");
        let manager =
            LocalExecutionManager::new(&state, folder.path(), Arc::new(routed.router.clone()));
        let operation_id = OperationId::new("create").unwrap();
        let reservation = manager
            .create(request(isolation), &operation_id)
            .await
            .unwrap();
        let stored = manager
            .get(&reservation.execution_id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(stored.managed_execution.unwrap().runtime_route, route);
        assert_eq!(routed.oci.calls(), (oci_preflights, 0, 0));
        assert_eq!(routed.legacy.calls(), (1 - oci_preflights, 0, 0));
    }
}

#[tokio::test]
async fn a_refusing_backend_is_never_replaced_by_the_other() {
    let refusing = Probe {
        refuses: true,
        ..Probe::default()
    };
    let routed = routed(OciMigrationPolicy::AllViaOci, Probe::default(), refusing);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("boxes.json");
    let manager =
        LocalExecutionManager::new(&state, folder.path(), Arc::new(routed.router.clone()));
    let created = manager
        .create(
            request(ExecutionIsolation::Microvm),
            &OperationId::new("create").unwrap(),
        )
        .await;
    assert!(
        matches!(created, Err(ExecutionManagerError::Unavailable(_))),
        "{created:?}"
    );
    assert_eq!(routed.legacy.calls(), (0, 0, 0));
    assert_eq!(routed.oci.calls(), (1, 0, 0));
    assert!(!state.exists());
}

#[tokio::test]
async fn a_stored_route_outlives_the_policy() {
    let routed_all = routed(
        OciMigrationPolicy::AllViaOci,
        Probe::default(),
        Probe::default(),
    );
    let boxed = stamped(ExecutionIsolation::Sandbox, ManagedRuntimeRoute::BoxVm);
    assert_eq!(
        routed_all.router.kill(&boxed).await.unwrap(),
        KillOutcome::Killed
    );
    assert_eq!(
        (routed_all.legacy.calls(), routed_all.oci.calls()),
        ((0, 1, 0), (0, 0, 0))
    );

    let routed_none = routed(
        OciMigrationPolicy::LegacyOnly,
        Probe::default(),
        Probe::default(),
    );
    let oci = stamped(ExecutionIsolation::Microvm, ManagedRuntimeRoute::OciSdk);
    assert_eq!(
        routed_none.router.kill(&oci).await.unwrap(),
        KillOutcome::Killed
    );
    assert_eq!(
        (routed_none.legacy.calls(), routed_none.oci.calls()),
        ((0, 0, 0), (0, 1, 0))
    );
}

#[tokio::test]
async fn records_without_a_route_are_judged_by_their_evidence() {
    let routed = routed(
        OciMigrationPolicy::AllViaOci,
        Probe::default(),
        Probe::default(),
    );
    let mut record = record(ExecutionIsolation::Sandbox);
    routed.router.kill(&record).await.unwrap();
    assert_eq!((routed.legacy.calls().1, routed.oci.calls().1), (1, 0));
    record.exec_socket_path = std::path::PathBuf::new();
    routed.router.kill(&record).await.unwrap();
    assert_eq!((routed.legacy.calls().1, routed.oci.calls().1), (1, 1));
}

#[tokio::test]
async fn a_record_that_proves_nothing_reaches_no_backend() {
    let routed = routed(
        OciMigrationPolicy::AllViaOci,
        Probe::default(),
        Probe::default(),
    );
    let mut unmanaged = record(ExecutionIsolation::Sandbox);
    unmanaged.managed_execution = None;
    let mut damaged = record(ExecutionIsolation::Sandbox);
    damaged
        .managed_execution
        .as_mut()
        .unwrap()
        .creation_intent_digest = Some("damaged".to_owned());
    for record in [&unmanaged, &damaged] {
        let killed = routed.router.kill(record).await;
        assert!(
            matches!(killed, Err(ExecutionManagerError::Internal(_))),
            "{killed:?}"
        );
        let preflight = routed.router.preflight(record).await;
        assert!(
            matches!(preflight, Err(ExecutionManagerError::Internal(_))),
            "{preflight:?}"
        );
    }
    let route = routed.router.route_for_create(&unmanaged);
    assert!(
        matches!(route, Err(ExecutionManagerError::Internal(_))),
        "{route:?}"
    );
    assert_eq!(
        (routed.legacy.calls(), routed.oci.calls()),
        ((0, 0, 0), (0, 0, 0))
    );
}

#[tokio::test]
async fn an_answer_comes_back_unchanged() {
    let routed = routed(
        OciMigrationPolicy::AllViaOci,
        Probe::default(),
        Probe::default(),
    );
    let oci = stamped(ExecutionIsolation::Sandbox, ManagedRuntimeRoute::OciSdk);
    for error in [
        routed.router.start(&oci).await.map(|_| ()),
        routed.router.inspect(&oci).await.map(|_| ()),
        routed.router.pause(&oci, true).await.map(|_| ()),
        routed.router.resume(&oci).await.map(|_| ()),
    ] {
        match error {
            Err(ExecutionManagerError::Internal(text)) => assert_eq!(text, "a probe runs nothing"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (routed.legacy.calls(), routed.oci.calls()),
        ((0, 0, 0), (0, 0, 4))
    );
}
