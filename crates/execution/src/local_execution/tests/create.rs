use a3sbox_core::{ExecutionIsolation, ReconcileOutcome};

use super::probe::Fault;
use super::*;
use crate::ManagedRuntimeRoute;

#[tokio::test]
async fn the_route_is_stamped_before_the_one_preflight_and_stored() {
    let world = World::new();
    let reserved = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    assert_eq!(world.probe.count("preflight"), 1);
    assert_eq!(
        world.probe.route_at_preflight(),
        Some(ManagedRuntimeRoute::BoxVm)
    );
    let stored = world.manager.get(&reserved.execution_id).await.unwrap();
    let stored = stored.unwrap();
    assert_eq!(
        stored.metadata().unwrap().runtime_route,
        ManagedRuntimeRoute::BoxVm
    );
    assert_eq!(reserved.generation, ExecutionGeneration::INITIAL);
    assert_eq!(reserved.created_at, stored.created_at);
    assert_eq!(
        stored.box_dir,
        world
            .home()
            .join("boxes")
            .join(reserved.execution_id.as_str())
    );
}

#[tokio::test]
async fn nothing_is_recorded_when_the_preflight_refuses() {
    let world = World::new();
    world.probe.fail("preflight", Fault::Before);
    assert_unavailable(world.manager.create(request("alpine"), &create_op()).await);
    assert!(!world.manager.state_path().exists());
    assert!(matches!(
        world.manager.reconcile(&create_op()).await,
        Ok(ReconcileOutcome::Absent)
    ));
}

#[tokio::test]
async fn an_impossible_request_is_refused_before_anything_and_frees_its_operation() {
    let world = World::new();
    for isolation in [ExecutionIsolation::Microvm, ExecutionIsolation::Sandbox] {
        for (option, word) in [
            ("apparmor=runtime/default", "AppArmor"),
            ("label=type:container_t", "SELinux"),
            ("seccomp=/profiles/restricted.json", "custom seccomp"),
        ] {
            let mut bad = request("alpine");
            bad.config.isolation = isolation;
            bad.config.security_opt = vec![option.into()];
            match world.manager.create(bad, &create_op()).await {
                Err(ExecutionManagerError::InvalidRequest(text)) => {
                    assert!(text.contains(word), "{text}");
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    let mut blank = request("alpine");
    blank.external_sandbox_id = "  ".into();
    let mut huge = request("alpine");
    huge.config.isolation = ExecutionIsolation::Microvm;
    huge.config.resources.vcpus = 256;
    for bad in [blank, huge] {
        let refused = world.manager.create(bad, &create_op()).await;
        assert!(
            matches!(refused, Err(ExecutionManagerError::InvalidRequest(_))),
            "{refused:?}"
        );
    }
    assert!(!world.manager.state_path().exists());
    assert_eq!(world.probe.count("preflight"), 0);
    world.launch().await;
}

#[tokio::test]
async fn a_repeat_is_the_same_execution_and_needs_no_backend() {
    let world = World::new();
    let first = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    world.probe.fail("preflight", Fault::Before);
    let again = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    assert_eq!(again.execution_id, first.execution_id);
    assert_eq!(world.probe.count("preflight"), 1);
    assert_conflict(world.manager.create(request("debian"), &create_op()).await);
    let lease = world
        .manager
        .create_and_start(request("alpine"), &create_op())
        .await
        .unwrap();
    assert_eq!(lease.execution_id, first.execution_id);
    let repeated = world.launch_again(&lease).await;
    assert_eq!(repeated.started_at, lease.started_at);
    assert_eq!(world.probe.count("start"), 1);
}

impl World {
    async fn launch_again(&self, lease: &ExecutionLease) -> ExecutionLease {
        self.manager
            .start(&lease.execution_id, lease.generation)
            .await
            .unwrap()
    }
}
