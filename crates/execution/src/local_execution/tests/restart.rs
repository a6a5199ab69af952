use a3sbox_core::{ReconcileOutcome, RestartExecutionOptions};

use super::probe::{Fault, Runtime};
use super::*;

fn restart_op() -> OperationId {
    operation("restart-op")
}

#[tokio::test]
async fn a_restart_is_one_generation_later_and_happens_once_per_operation() {
    let world = World::new();
    let lease = world.launch().await;
    let id = &lease.execution_id;
    let restarted = world
        .manager
        .restart(id, generation(1), &restart_op())
        .await
        .unwrap();
    assert_eq!(restarted.generation, generation(2));
    let repeated = world
        .manager
        .restart(id, generation(1), &restart_op())
        .await
        .unwrap();
    assert_eq!(repeated.generation, generation(2));
    assert_eq!(repeated.started_at, restarted.started_at);
    assert_eq!(world.probe.count("start"), 2);
    let options = RestartExecutionOptions {
        stop_timeout_secs: Some(1),
    };
    assert_conflict(
        world
            .manager
            .restart_with_options(id, generation(2), &restart_op(), options)
            .await,
    );
    assert_conflict(
        world
            .manager
            .restart(id, generation(1), &operation("stale"))
            .await,
    );
    // The lease of the restart stays what it was, whatever came later.
    world.manager.kill(id, generation(2)).await.unwrap();
    let later = world
        .manager
        .restart(id, generation(1), &restart_op())
        .await
        .unwrap();
    assert_eq!(later.generation, generation(2));
    assert_eq!(world.stored(&lease).await.restart_count, 1);
}

#[tokio::test]
async fn a_stopped_execution_can_be_restarted() {
    let world = World::new();
    let lease = world.launch().await;
    let id = &lease.execution_id;
    world.manager.kill(id, generation(1)).await.unwrap();
    let restarted = world
        .manager
        .restart(id, generation(1), &restart_op())
        .await
        .unwrap();
    assert_eq!(restarted.generation, generation(2));
    let stored = world.stored(&lease).await;
    assert_eq!(
        (stored.status.as_str(), stored.exit_code),
        ("running", None)
    );
    assert!(!stored.stopped_by_user);
}

#[tokio::test]
async fn an_interrupted_restart_goes_on_where_it_was() {
    // (the call that fails, how, the generation that is recorded then)
    let cases = [
        ("stop_for_restart", Fault::Before, 1),
        ("stop_for_restart", Fault::After, 1),
        ("start", Fault::Before, 2),
        ("start", Fault::After, 2),
    ];
    for (call, fault, at_generation) in cases {
        for by_repeat in [false, true] {
            let mut world = World::new();
            let lease = world.launch().await;
            let id = lease.execution_id.clone();
            world.probe.fail(call, fault);
            if call == "start" {
                // The look fails too: nothing is known when the caller gets its error.
                world.probe.fail("inspect", Fault::Before);
            }
            let result = world
                .manager
                .restart(&id, generation(1), &restart_op())
                .await;
            assert_unavailable(result);
            let stored = world.stored(&lease).await;
            assert_eq!(stored.generation().unwrap(), generation(at_generation));
            world.reopen();
            if by_repeat {
                let again = world
                    .manager
                    .restart(&id, generation(1), &restart_op())
                    .await;
                assert_eq!(again.unwrap().generation, generation(2), "{call} {fault:?}");
            }
            match world.manager.reconcile(&create_op()).await.unwrap() {
                ReconcileOutcome::Ready(lease) => assert_eq!(lease.generation, generation(2)),
                other => panic!("{call} {fault:?}: {other:?}"),
            }
            assert_eq!(world.probe.runtime(), Runtime::Running);
            assert_eq!(world.probe.effects("start"), 2, "{call} {fault:?}");
            assert_eq!(
                world.probe.effects("stop_for_restart"),
                1,
                "{call} {fault:?}"
            );
        }
    }
}
