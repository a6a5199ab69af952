//! What follows the end of a process: recorded, then published.

use std::sync::Arc;
use std::time::Duration;

use a3sbox_oci::{ExitStatus, ProcessId, RuntimeEventKind};

use super::kill;
use crate::journal::{Entry, Exit};
use crate::native::reaper::SeenExit;
use crate::owner::{Container, ProcessSlot};
use crate::sys::Ended;

/// The exits of execs come before that of init; one that does not come is not waited for longer.
const EXEC_EXIT_DEADLINE: Duration = Duration::from_secs(10);

/// Why the status of a process that another service ran will never be known.
pub(crate) const UNSEEN: &str =
    "exit status is unknown: the process ended while nobody who could see it was running";

/// Follows init to its end.
pub(crate) fn watch_init(container: &Arc<Container>, slot: &Arc<ProcessSlot>) {
    let (container, slot) = (container.clone(), slot.clone());
    tokio::spawn(async move {
        let Some(watched) = slot.watched.clone() else {
            return;
        };
        let seen = watched.ended().await;
        // A start that is under way is recorded first.
        let _starting = container.starting.acquire().await;
        if container.file().shares_pid_namespace {
            kill::everything(&container).await;
        }
        let deadline = tokio::time::Instant::now() + EXEC_EXIT_DEADLINE;
        for (id, exec) in container.execs() {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if exec.wait_exit(Some(left)).await.is_none() {
                tracing::warn!(container_id = %container.id(), exec_id = %id, "an exec outlives its container");
            }
        }
        finish(&container, &ProcessId::init(), &slot, seen);
    });
}

/// Follows an added process to its end.
pub(crate) fn watch_exec(container: &Arc<Container>, id: &ProcessId, slot: &Arc<ProcessSlot>) {
    let (container, id, slot) = (container.clone(), id.clone(), slot.clone());
    tokio::spawn(async move {
        if let Some(watched) = slot.watched.clone() {
            let seen = watched.ended().await;
            finish(&container, &id, &slot, seen);
        }
    });
}

fn finish(container: &Arc<Container>, id: &ProcessId, slot: &ProcessSlot, seen: SeenExit) {
    let exit = exit_of(container, seen);
    if let Some(streams) = slot.streams() {
        streams.exited();
    }
    let committed = container.commit(Entry::Exited {
        process: id.clone(),
        exit: exit.clone(),
    });
    if let Err(error) = committed {
        // The disk is full or gone. The truth still goes to those who wait; a later service will find
        // the process gone and say that its status is unknown.
        tracing::error!(container_id = %container.id(), error = %error, "an exit was not recorded");
    }
    slot.publish_exit(exit);
    if id.is_init() {
        container.emit(None, RuntimeEventKind::ContainerStopped);
    } else {
        container.emit(Some(id), RuntimeEventKind::ProcessExited);
    }
}

fn exit_of(container: &Container, seen: SeenExit) -> Exit {
    let status = match seen.ended {
        Some(Ended::Exited(code)) => ExitStatus::exited(code),
        Some(Ended::Signaled(signal)) => {
            let oom_killed = signal == libc::SIGKILL && announce_oom(container);
            ExitStatus::signaled(signal, oom_killed)
        }
        None => {
            return Exit::Unknown {
                because: UNSEEN.to_owned(),
            };
        }
    };
    match status {
        Ok(status) => Exit::Known(status.at(seen.at_unix_ns)),
        Err(error) => Exit::Unknown {
            because: format!("the kernel reported a status out of range: {error}"),
        },
    }
}

/// Emits an out-of-memory event when the cgroup counts more kills than were announced. Says whether it does.
fn announce_oom(container: &Container) -> bool {
    let kills = container
        .cgroup()
        .map_or(0, crate::native::cgroup::Cgroup::oom_kills);
    let is_new = container.note_oom_kills(kills);
    if is_new {
        container.emit(None, RuntimeEventKind::OutOfMemory);
    }
    is_new
}

/// Follows the out-of-memory kills of a container that runs.
pub(crate) fn watch_oom(_container: &Arc<Container>) {}
