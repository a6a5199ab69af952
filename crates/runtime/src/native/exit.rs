//! What follows the end of a process: recorded, then published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use a3sbox_oci::{ExitStatus, ProcessId, RuntimeEventKind};

use super::kill;
use super::oom::OomWatch;
use crate::journal::{Entry, Exit};
use crate::native::cgroup::Cgroup;
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
        let dropped = streams.dropped_output();
        if dropped > 0 {
            let bytes = BTreeMap::from([("bytes".to_owned(), dropped.to_string())]);
            container.emit_with(Some(id), RuntimeEventKind::OutputDropped, bytes);
        }
    }
    let noted = container.note(Entry::Exited {
        process: id.clone(),
        exit: exit.clone(),
    });
    if let Err(error) = noted {
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
    // The kernel counts a kill before the process is gone: the event comes before the exit.
    let kills = announce_oom(container);
    let was_oom = container.note_oom_exit(kills);
    let status = match seen.ended {
        Some(Ended::Exited(code)) => ExitStatus::exited(code),
        Some(Ended::Signaled(signal)) => {
            ExitStatus::signaled(signal, was_oom && signal == libc::SIGKILL)
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

/// Emits an out-of-memory event when the cgroup counts more kills than were announced; gives their number.
fn announce_oom(container: &Container) -> u64 {
    let kills = container.cgroup().map_or(0, Cgroup::oom_kills);
    if container.note_oom_kills(kills) {
        container.emit(None, RuntimeEventKind::OutOfMemory);
    }
    kills
}

/// Follows the out-of-memory kills of a container that runs, until its cgroup or the container is gone.
pub(crate) fn watch_oom(container: &Arc<Container>) {
    let Some(cgroup) = container.cgroup() else {
        return;
    };
    let mut watch = match OomWatch::open(cgroup) {
        Ok(Some(watch)) => watch,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(container_id = %container.id(), error = %error, "out-of-memory kills are seen at exits only");
            return;
        }
    };
    let container = Arc::downgrade(container);
    tokio::spawn(async move {
        while watch.next().await.is_some() {
            match container.upgrade() {
                Some(container) if container.status().is_alive() => {
                    announce_oom(&container);
                }
                Some(_) | None => return,
            }
        }
    });
}
