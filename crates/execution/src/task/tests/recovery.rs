//! The owner dies; another process takes over and ends it.

use super::double::{End, exited};
use super::{World, request, soon};
use crate::task::backend::{TaskInit, TaskObservation};
use crate::task::recover::reconcile;
use crate::task::{InitState, TaskError, TaskManager};

#[tokio::test]
async fn a_process_that_recovery_kills_itself_ends_with_137() {
    let world = World::new();
    let key = world.running("c1").await;
    world.exec(&key, "e").await;
    let world = world.crash();
    assert_eq!(world.manager.live(), 0);
    let deleted = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap();
    assert_eq!(deleted.exit.unwrap().status, Some(137));
    assert!(deleted.pid > 0);
    assert!(world.runtime.log().contains(&"kill 9 all=true".to_owned()));
    world.assert_nothing_left();
    let again = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap_err();
    assert!(matches!(again, TaskError::NotFound(_)), "{again}");
    world.assert_nothing_left();
}

#[tokio::test]
async fn an_exit_that_was_recorded_or_seen_is_reported_and_nothing_is_signalled() {
    for seen_before_the_crash in [true, false] {
        let world = World::new();
        let key = world.running("c1").await;
        if seen_before_the_crash {
            world.runtime.end_init(exited(7));
            soon(world.manager.wait(&key, None)).await.unwrap();
        }
        let world = world.crash();
        if !seen_before_the_crash {
            world.runtime.end_init(exited(7));
        }
        let deleted = soon(world.manager.task_recover_and_delete(&key))
            .await
            .unwrap();
        assert_eq!(deleted.exit.unwrap().status, Some(7));
        assert!(
            !world
                .runtime
                .log()
                .iter()
                .any(|line| line.starts_with("kill"))
        );
        world.assert_nothing_left();
    }
}

#[tokio::test]
async fn an_exit_that_nobody_saw_stays_unknown() {
    let world = World::new();
    let key = world.running("c1").await;
    let world = world.crash();
    world.runtime.end_init(End::Lost);
    let exit = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap()
        .exit
        .unwrap();
    assert_eq!(exit.status, None);
    assert!(exit.unknown_because.is_some());
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_container_that_the_runtime_lost_is_unknown_and_cleaned_up() {
    let world = World::new();
    let key = world.running("c1").await;
    let world = world.crash();
    world.runtime.lose();
    let exit = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap()
        .exit
        .unwrap();
    assert_eq!(exit.status, None);
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_created_container_is_taken_away_too() {
    let world = World::new();
    let key = world.created("c1").await;
    let world = world.crash();
    let deleted = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap();
    assert_eq!(deleted.exit.unwrap().status, Some(137));
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_paused_container_is_killed_in_place() {
    let world = World::new();
    let key = world.running("c1").await;
    soon(world.manager.pause(&key)).await.unwrap();
    let world = world.crash();
    let deleted = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap();
    assert_eq!(deleted.exit.unwrap().status, Some(137));
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_crash_during_the_start_is_settled_by_looking() {
    let world = World::new();
    let key = world.created("c1").await;
    world.runtime.hold("start");
    let manager = world.manager.clone();
    let of = key.clone();
    let caller = tokio::spawn(async move { manager.release(&of).await });
    soon(world.runtime.entered("start", 1)).await;
    caller.abort();
    let _ = caller.await;
    assert_eq!(world.stored_task(&key).init.state, InitState::Starting);
    let store = world.store();
    let other = super::manager(world.folder.path(), &world.runtime, &world.provider);
    // The first owner is alive and holds its lock.
    let refused = soon(other.task_recover_and_delete(&key)).await.unwrap_err();
    assert!(
        matches!(refused, TaskError::FailedPrecondition(_)),
        "{refused}"
    );
    assert!(store.find_container(&key).unwrap().is_some());
}

#[tokio::test]
async fn a_live_owner_is_never_robbed() {
    let world = World::new();
    let key = world.running("c1").await;
    let own = soon(world.manager.task_recover_and_delete(&key))
        .await
        .unwrap_err();
    assert!(matches!(own, TaskError::FailedPrecondition(_)), "{own}");
    let other = super::manager(world.folder.path(), &world.runtime, &world.provider);
    let foreign = soon(other.task_recover_and_delete(&key)).await.unwrap_err();
    assert!(
        matches!(foreign, TaskError::FailedPrecondition(_)),
        "{foreign}"
    );
    assert!(
        foreign
            .to_string()
            .contains(&std::process::id().to_string()),
        "{foreign}"
    );
    let twice = soon(other.provision(request(&key))).await.unwrap_err();
    assert!(matches!(twice, TaskError::FailedPrecondition(_)), "{twice}");
    soon(world.manager.pids(&key)).await.unwrap();
}

#[tokio::test]
async fn a_create_over_the_leftovers_of_a_dead_owner_takes_them_away_first() {
    let world = World::new();
    let key = world.running("c1").await;
    let before = world.stored(&key).unwrap().id;
    let world = world.crash();
    world.created("c1").await;
    assert_ne!(
        world.stored(&key).unwrap().id,
        before,
        "a reused name is a new execution"
    );
    assert_eq!(world.runtime.containers(), 1);
}

#[test]
fn reconcile_follows_the_machine_from_every_state() {
    let process = TaskInit {
        pid: Some(7),
        pid_start_time: Some(1),
    };
    let running = |paused| TaskObservation::Running { process, paused };
    let created = TaskObservation::Created(process);
    let cases = [
        (
            InitState::Creating,
            TaskObservation::Absent,
            InitState::Gone,
        ),
        (InitState::Creating, created, InitState::Created),
        (InitState::Creating, running(false), InitState::Running),
        (
            InitState::Creating,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (InitState::Created, created, InitState::Created),
        (InitState::Created, running(false), InitState::Running),
        (
            InitState::Created,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (
            InitState::Created,
            TaskObservation::Absent,
            InitState::Stopped,
        ),
        (InitState::Starting, created, InitState::Created),
        (InitState::Starting, running(false), InitState::Running),
        (
            InitState::Starting,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (
            InitState::StartingEnded,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (InitState::Running, running(false), InitState::Running),
        (
            InitState::Running,
            TaskObservation::Absent,
            InitState::Stopped,
        ),
        (InitState::Pausing, running(true), InitState::Paused),
        (InitState::Pausing, running(false), InitState::Running),
        (
            InitState::Pausing,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (
            InitState::Paused,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (InitState::Resuming, running(false), InitState::Running),
        (InitState::Resuming, running(true), InitState::Paused),
        (
            InitState::Draining,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (
            InitState::Stopped,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (InitState::Discarding, created, InitState::Created),
        (
            InitState::Deleting,
            TaskObservation::Stopped,
            InitState::Stopped,
        ),
        (
            InitState::Deleting,
            TaskObservation::Absent,
            InitState::Gone,
        ),
    ];
    for (recorded, observed, expected) in cases {
        assert_eq!(
            reconcile(recorded, &observed),
            expected,
            "{recorded:?} {observed:?}"
        );
    }
}
