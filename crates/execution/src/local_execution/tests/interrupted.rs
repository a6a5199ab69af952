//! Each verb broken before and after its effect, seen and unseen, then settled by another process.

use a3sbox_core::{ExecutionResourceUpdate, KillOutcome, ReconcileOutcome};

use super::probe::{Fault, Runtime};
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Start,
    Pause,
    Resume,
    Update,
    Kill,
}

impl Verb {
    const ALL: [Self; 5] = [
        Self::Start,
        Self::Pause,
        Self::Resume,
        Self::Update,
        Self::Kill,
    ];

    const fn call(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Update => "update",
            Self::Kill => "kill",
        }
    }

    /// Brings an execution to the state in which the verb makes sense.
    async fn prepare(self, world: &World) -> ExecutionLease {
        let start = || async {
            let reserved = world
                .manager
                .create(request("alpine:3.20"), &create_op())
                .await
                .unwrap();
            world.stored_lease(&reserved.execution_id).await
        };
        match self {
            Self::Start => start().await,
            Self::Pause | Self::Update | Self::Kill => world.launch().await,
            Self::Resume => {
                let lease = world.launch().await;
                world
                    .manager
                    .pause(&lease.execution_id, lease.generation, true)
                    .await
                    .unwrap()
            }
        }
    }

    async fn run(self, world: &World, lease: &ExecutionLease) -> ExecutionManagerResult<()> {
        let (id, generation) = (&lease.execution_id, lease.generation);
        match self {
            Self::Start => world.manager.start(id, generation).await.map(drop),
            Self::Pause => world.manager.pause(id, generation, true).await.map(drop),
            Self::Resume => world.manager.resume(id, generation).await.map(drop),
            Self::Update => {
                let update = ExecutionResourceUpdate {
                    pids_limit: Some(64),
                    ..ExecutionResourceUpdate::default()
                };
                world
                    .manager
                    .update_resources(id, generation, &operation("update-op"), update)
                    .await
                    .map(drop)
            }
            Self::Kill => world.manager.kill(id, generation).await.map(drop),
        }
    }

    /// Status, generation and runtime after everything was settled.
    const fn settled(self, took_effect: bool) -> (&'static str, u64, Runtime) {
        match (self, took_effect) {
            // What never reached the runtime has failed; there is nothing to take up.
            (Self::Start, false) => ("failed", 1, Runtime::Absent),
            (Self::Start, true) | (Self::Pause, false) => ("running", 1, Runtime::Running),
            (Self::Pause, true) => ("paused", 2, Runtime::Paused),
            (Self::Resume, false) => ("paused", 2, Runtime::Paused),
            (Self::Resume, true) => ("running", 3, Runtime::Running),
            // Both are finished by the claim, whether or not the first attempt had its effect.
            (Self::Update, _) => ("running", 1, Runtime::Running),
            (Self::Kill, _) => ("stopped", 1, Runtime::Absent),
        }
    }
}

impl World {
    async fn stored_lease(&self, id: &a3sbox_core::ExecutionId) -> ExecutionLease {
        let record = self.manager.get(id).await.unwrap().unwrap();
        let metadata = record.metadata().unwrap();
        ExecutionLease {
            execution_id: id.clone(),
            generation: metadata.generation,
            plan: metadata.plan.clone(),
            resources: metadata.request.config.resources.clone(),
            started_at: record.created_at,
        }
    }
}

#[tokio::test]
async fn an_interrupted_verb_is_settled_by_what_the_backend_shows() {
    for verb in Verb::ALL {
        for fault in [Fault::Before, Fault::After] {
            for is_seen in [false, true] {
                let case = format!("{verb:?} {fault:?} seen={is_seen}");
                let mut world = World::new();
                let lease = verb.prepare(&world).await;
                let effects = world.probe.effects(verb.call());
                world.probe.fail(verb.call(), fault);
                if !is_seen {
                    world.probe.fail("inspect", Fault::Before);
                }
                let result = verb.run(&world, &lease).await;
                let completes_itself = is_seen
                    && fault == Fault::After
                    && matches!(verb, Verb::Start | Verb::Pause | Verb::Resume);
                assert_eq!(result.is_ok(), completes_itself, "{case}: {result:?}");
                world.reopen();
                let first = world.manager.reconcile(&create_op()).await;
                if first.is_err() {
                    // The fault of the look was still armed.
                    world.manager.reconcile(&create_op()).await.unwrap();
                }
                let (status, at, runtime) = verb.settled(fault == Fault::After);
                let stored = world.stored(&lease).await;
                assert_eq!(stored.status, status, "{case}");
                assert_eq!(stored.generation().unwrap(), generation(at), "{case}");
                assert_eq!(world.probe.runtime(), runtime, "{case}");
                assert!(
                    stored.metadata().unwrap().pending_operation.is_none(),
                    "{case}"
                );
                assert!(world.probe.effects(verb.call()) <= effects + 1, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn both_errors_are_told_when_the_look_fails_too() {
    let world = World::new();
    world.probe.fail("start", Fault::After);
    world.probe.fail("inspect", Fault::Before);
    let error = world
        .manager
        .create_and_start(request("alpine"), &create_op())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("injected in start"), "{error}");
    assert!(error.contains("injected in inspect"), "{error}");
}

#[tokio::test]
async fn a_runtime_still_creating_leaves_the_claim_for_later() {
    let world = World::new();
    let reserved = world
        .manager
        .create(request("alpine"), &create_op())
        .await
        .unwrap();
    world.probe.fail("start", Fault::Before);
    world.probe.set(Runtime::Created);
    assert_unavailable(
        world
            .manager
            .start(&reserved.execution_id, generation(1))
            .await,
    );
    assert!(matches!(
        world.manager.reconcile(&create_op()).await,
        Ok(ReconcileOutcome::Creating)
    ));
    world.probe.set(Runtime::Running);
    let lease = world
        .manager
        .start(&reserved.execution_id, generation(1))
        .await
        .unwrap();
    assert_eq!(world.stored(&lease).await.status, "running");
    assert_eq!(world.probe.count("start"), 1, "taken up, not started again");
}

#[tokio::test]
async fn an_unreachable_backend_changes_no_record() {
    let world = World::new();
    let lease = world.launch().await;
    world.probe.fail("inspect", Fault::Before);
    assert_unavailable(world.manager.reconcile(&create_op()).await);
    assert_eq!(world.stored(&lease).await.status, "running");
    assert!(matches!(
        world.manager.reconcile(&create_op()).await,
        Ok(ReconcileOutcome::Ready(_))
    ));
}

#[tokio::test]
async fn a_failed_kill_is_finished_with_its_own_claim() {
    let mut world = World::new();
    let lease = world.launch().await;
    world.probe.fail("kill", Fault::Before);
    assert_unavailable(world.manager.kill(&lease.execution_id, generation(1)).await);
    assert_eq!(world.stored(&lease).await.status, "killing");
    world.reopen();
    let outcome = world.manager.kill(&lease.execution_id, generation(1)).await;
    assert_eq!(outcome.unwrap(), KillOutcome::Killed);
    assert_eq!(world.stored(&lease).await.exit_code, Some(137));
}

#[tokio::test]
async fn a_resource_update_is_asked_once_per_operation_and_content() {
    let world = World::new();
    let lease = world.launch().await;
    let id = &lease.execution_id;
    let op = operation("u");
    let update = |pids| ExecutionResourceUpdate {
        pids_limit: Some(pids),
        ..ExecutionResourceUpdate::default()
    };
    let run = |pids| {
        world
            .manager
            .update_resources(id, generation(1), &op, update(pids))
    };
    world.probe.fail("update", Fault::After);
    assert_unavailable(run(72).await);
    assert_eq!(world.stored(&lease).await.status, "updating_resources");
    assert_conflict(run(73).await);
    run(72).await.unwrap();
    assert_eq!(
        (world.probe.count("update"), world.probe.effects("update")),
        (2, 1)
    );
    run(72).await.unwrap();
    assert_conflict(run(73).await);
    assert_eq!(world.probe.count("update"), 2);
    assert_eq!(
        world.stored(&lease).await.resource_limits.pids_limit,
        Some(72)
    );
    // The create's own request is still the same intent.
    let again = world
        .manager
        .create(request("alpine:3.20"), &create_op())
        .await;
    assert_eq!(again.unwrap().execution_id, *id);
}

#[tokio::test]
async fn a_resource_update_that_races_an_end_settles_the_record() {
    let world = World::new();
    let lease = world.launch().await;
    world.probe.set(Runtime::Stopped(Some(17)));
    Verb::Update.run(&world, &lease).await.unwrap_err();
    let stored = world.stored(&lease).await;
    assert_eq!(
        (stored.status.as_str(), stored.exit_code),
        ("stopped", Some(17))
    );
    assert!(stored.metadata().unwrap().pending_operation.is_none());
}

#[tokio::test]
async fn a_record_of_another_boot_has_ended_whatever_the_backend_says() {
    let mut world = World::new();
    let lease = world.launch().await;
    let record = world.stored(&lease).await;
    let expected = (record.state().unwrap(), lease.generation);
    world
        .manager
        .store
        .update(&lease.execution_id, expected, |record| {
            let metadata = record.managed_execution.as_mut().unwrap();
            assert!(metadata.boot_id.is_some());
            metadata.boot_id = Some("another".to_owned());
        })
        .unwrap();
    world.reopen();
    let looks = world.probe.count("inspect");
    let status = world.manager.inspect(&lease.execution_id).await.unwrap();
    assert_eq!(status.state, a3sbox_core::ExecutionState::Stopped);
    assert_eq!(world.probe.count("inspect"), looks);
    let ended = world.stored(&lease).await;
    assert_eq!((ended.status.as_str(), ended.exit_code), ("stopped", None));
}

#[tokio::test]
async fn an_earlier_update_is_known_by_its_id_too() {
    let world = World::new();
    let lease = world.launch().await;
    let (id, generation) = (&lease.execution_id, lease.generation);
    let update = |limit| a3sbox_core::ExecutionResourceUpdate {
        pids_limit: Some(limit),
        ..a3sbox_core::ExecutionResourceUpdate::default()
    };
    let (first, second) = (operation("first"), operation("second"));
    let manager = &world.manager;
    let ask = |op, limit| manager.update_resources(id, generation, op, update(limit));
    ask(&first, 10).await.unwrap();
    ask(&second, 20).await.unwrap();
    ask(&first, 10).await.unwrap();
    assert_conflict(ask(&first, 30).await);
    assert_eq!(world.probe.count("update"), 2);
    let stored = world.stored(&lease).await;
    assert_eq!(stored.resource_limits.pids_limit, Some(20));
}
