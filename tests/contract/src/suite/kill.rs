//! Kill, and ends of its own.

use a3sbox_core::{ExecutionManager as _, ExecutionState, KillOutcome};
use a3sbox_oci::RuntimeOperation;

use super::assert_invalid;
use crate::{World, eventually, kill_with};

/// A signal that nobody at the manager knows of.
pub(super) fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

// proves: B44
pub async fn a_trapped_signal_gives_the_exit_code(mut world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.reopen();
    let status = world.manager.inspect(id).await.unwrap();
    assert_eq!(status.state, ExecutionState::Running);
    let refused = world
        .manager
        .kill_with_options(id, generation, kill_with(i32::MAX, None))
        .await;
    assert_invalid(refused, "representable");
    assert_eq!(world.faults.calls(RuntimeOperation::Kill), 0);

    let killed = world
        .manager
        .kill_with_options(id, generation, kill_with(15, None))
        .await;
    assert_eq!(killed.unwrap(), KillOutcome::Killed);
    assert_eq!(world.out("signals"), "term\n");
    let record = world.record(id);
    assert_eq!(
        (record.status.as_str(), record.exit_code),
        ("stopped", Some(7))
    );
    assert!(world.metadata(id).oci_runtime.is_none());
    let counts = world.provider.counts();
    assert_eq!(
        (counts.cleanups, counts.drains, counts.owner_losses),
        (1, 1, 0)
    );
    world.assert_nothing_runs(Some(id));
    let again = world.manager.kill(id, generation).await;
    assert_eq!(again.unwrap(), KillOutcome::AlreadyStopped);
    assert!(world.manager.remove(id, generation).await.unwrap());
}

// proves: B47
pub async fn a_signal_that_is_ignored_becomes_a_kill(world: World) {
    // The init of a pid namespace ignores what it has no handler for.
    let launched = world.launch_with(&["sleep", "4713"]).await;
    let (id, generation) = (launched.id(), launched.generation());
    let killed = world
        .manager
        .kill_with_options(id, generation, kill_with(15, Some(0)))
        .await;
    assert_eq!(killed.unwrap(), KillOutcome::Killed);
    assert_eq!(world.faults.calls(RuntimeOperation::Kill), 2);
    assert_eq!(world.record(id).exit_code, Some(137));
    world.assert_nothing_runs(Some(id));
}

// proves: B04 B45
pub async fn an_exit_of_its_own_is_kept(mut world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    let pid = world.record(id).pid.unwrap();
    send(pid, rustix::process::Signal::USR2);
    eventually("the container ends", || world.processes(id).is_empty()).await;
    world.reopen();
    // The exit is recorded a moment after the process is gone.
    let until = std::time::Instant::now() + crate::DEADLINE;
    while world.manager.inspect(id).await.unwrap().state != ExecutionState::Stopped {
        assert!(std::time::Instant::now() < until, "it stays running");
        // The look itself need not yield to whoever records the exit.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let record = world.record(id);
    assert_eq!(
        (record.status.as_str(), record.exit_code),
        ("stopped", Some(23))
    );
    let counts = world.provider.counts();
    assert_eq!(
        (counts.cleanups, counts.drains, counts.owner_losses),
        (1, 1, 0)
    );
    world.assert_nothing_runs(Some(id));
}

/// A kill whose answers are lost is finished by whoever asks next.
pub async fn a_lost_kill_or_delete_answer_is_settled(mut world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    world.faults.lose_answer(RuntimeOperation::Kill);
    world.faults.lose_answer(RuntimeOperation::Delete);
    for _ in 0..3 {
        let killed = world
            .manager
            .kill_with_options(id, generation, kill_with(15, None))
            .await;
        if killed.is_ok() {
            break;
        }
        world.reopen();
    }
    assert_eq!(world.out("signals"), "term\n");
    assert_eq!(world.record(id).status, "stopped");
    world.assert_nothing_runs(Some(id));
}
