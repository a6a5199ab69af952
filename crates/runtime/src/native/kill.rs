//! Signals: to a container's init, to all of it, or to one added process. No engine is needed.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use a3sbox_oci::{
    ContainerRecord, Error, ErrorCode, KillRequest, ProcessId, Signal, SignalProcessRequest,
};

use crate::error::RuntimeError;
use crate::journal::{Entry, Operation};
use crate::native::cgroup::{Cgroup, CgroupError};
use crate::native::identity::ProcessIdentity;
use crate::owner::state::Status;
use crate::owner::{Container, ProcessSlot, operation, wrong_state};
use crate::sys;

/// Rounds of killing what a cgroup holds. Each round kills all that the one before has not seen; a bomb
/// that outruns this many is left to the next delete.
const MAX_KILL_ROUNDS: usize = 100;

/// Delivers a signal to init, or to every process of the container.
pub(crate) fn kill(
    container: &Arc<Container>,
    request: &KillRequest,
) -> Result<ContainerRecord, Error> {
    let operation = operation(
        &request.context,
        "kill",
        &(&request.target, request.signal, request.all),
    )?;
    if let Some(record) = container.replay(&operation, None)? {
        return Ok(record);
    }
    let status = container.status();
    let slot = match (container.init(), status) {
        (_, Status::Creating) | (None, _) => return Err(wrong_state("signal", status)),
        (Some(slot), Status::Created | Status::Running | Status::Paused | Status::Stopped) => slot,
    };
    let answer = container.record();
    container.commit(Entry::Signaled {
        operation: operation.clone(),
        process: None,
    })?;
    let sent = if request.all {
        signal_all(container, request.signal)
    } else {
        signal_slot(container, &slot, request.signal)
    };
    match sent {
        Ok(()) => Ok(answer),
        Err(error) => Err(take_back(container, operation, None, error)),
    }
}

/// Delivers a signal to one process of the container.
pub(crate) fn signal_process(
    container: &Arc<Container>,
    request: &SignalProcessRequest,
) -> Result<(), Error> {
    let id = &request.process.process_id;
    let slot = container.process(&request.process)?;
    let operation = operation(
        &request.context,
        "signal-process",
        &(&request.process, request.signal),
    )?;
    let process = (!id.is_init()).then(|| id.clone());
    if container.replay(&operation, process.as_ref())?.is_some() {
        return Ok(());
    }
    container.commit(Entry::Signaled {
        operation: operation.clone(),
        process: process.clone(),
    })?;
    signal_slot(container, &slot, request.signal)
        .map_err(|error| take_back(container, operation, process, error))
}

/// The signal was not sent, so the operation may be tried again.
fn take_back(
    container: &Container,
    operation: Operation,
    process: Option<ProcessId>,
    error: Error,
) -> Error {
    let undone = container.commit(Entry::NotSignaled {
        operation: operation.id,
        process,
    });
    if let Err(undone) = undone {
        tracing::warn!(container_id = %container.id(), error = %undone, "a failed signal stays in the journal");
    }
    error
}

fn signal_slot(container: &Container, slot: &ProcessSlot, signal: Signal) -> Result<(), Error> {
    let watched = match &slot.watched {
        Some(watched) if !slot.has_ended() => watched,
        _ => return Err(already_finished()),
    };
    watched
        .signal(signal.get())
        .map_err(|error| signal_error(&error, signal))?;
    if signal.get() == libc::SIGKILL {
        thaw_to_die(container);
    }
    Ok(())
}

fn signal_all(container: &Container, signal: Signal) -> Result<(), Error> {
    let cgroup = container
        .cgroup()
        .ok_or_else(|| wrong_state("signal all of", container.status()))?;
    let mut signaled = HashSet::new();
    let sent = signal_members(cgroup, signal.get(), &mut signaled)?;
    if sent == 0 && container.status() == Status::Stopped {
        return Err(already_finished());
    }
    if signal.get() == libc::SIGKILL {
        thaw_to_die(container);
    }
    Ok(())
}

/// Kills every process that is left in the container's cgroup.
pub(crate) async fn everything(container: &Container) {
    let Some(cgroup) = container.cgroup() else {
        return;
    };
    if let Err(error) = kill_members(cgroup).await {
        tracing::warn!(container_id = %container.id(), error = %error, "cannot kill what is left of a container");
    }
}

/// Kills until the cgroup is empty of living processes.
pub(crate) async fn kill_members(cgroup: &Cgroup) -> Result<(), Error> {
    if cgroup.kill().map_err(to_error)? {
        return Ok(());
    }
    // Where the kernel can, all die at one stroke and nothing can fork away; the rounds find nobody then.
    cgroup.kill().map_err(to_error)?;
    let mut signaled = HashSet::new();
    for _ in 0..MAX_KILL_ROUNDS {
        let sent = signal_members(cgroup, libc::SIGKILL, &mut signaled)?;
        thaw(cgroup);
        if sent == 0 {
            return Ok(());
        }
        // Forked between the look and the kill: the next round finds them.
        tokio::task::yield_now().await;
    }
    Err(Error::new(
        ErrorCode::Internal,
        "a container forks faster than it can be killed",
    ))
}

/// Signals the members of a cgroup that were not signaled before; says how many.
fn signal_members(
    cgroup: &Cgroup,
    signal: i32,
    signaled: &mut HashSet<ProcessIdentity>,
) -> Result<usize, Error> {
    let opened: Vec<(ProcessIdentity, OwnedFd)> = members(cgroup)?
        .into_iter()
        .filter_map(ProcessIdentity::of)
        .filter(|identity| !signaled.contains(identity))
        .filter_map(|identity| Some((identity, identity.open()?)))
        .collect();
    // Looked at again: a pid that was given to a stranger before its descriptor was opened is not there.
    let still: HashSet<u32> = members(cgroup)?.into_iter().collect();
    let mut sent = 0;
    for (identity, fd) in opened {
        if !still.contains(&identity.pid) {
            continue;
        }
        match sys::send_signal(fd.as_fd(), signal) {
            Ok(()) => {
                signaled.insert(identity);
                sent += 1;
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => {
                return Err(Error::new(
                    ErrorCode::Internal,
                    format!("cannot signal process {}: {error}", identity.pid),
                ));
            }
        }
    }
    Ok(sent)
}

/// The processes of a cgroup; none when it is gone.
fn members(cgroup: &Cgroup) -> Result<Vec<u32>, Error> {
    cgroup.pids().map_err(to_error)
}

fn to_error(error: CgroupError) -> Error {
    RuntimeError::from(error).into()
}

/// A frozen process of a cgroup v1 does not die of SIGKILL before it is thawed.
fn thaw_to_die(container: &Container) {
    if let Some(cgroup) = container.cgroup() {
        thaw(cgroup);
    }
}

fn thaw(cgroup: &Cgroup) {
    if let Err(error) = cgroup.thaw_for_kill() {
        tracing::warn!(error = %error, "cannot thaw a container that was killed");
    }
}

/// The text is the stock shim's.
fn already_finished() -> Error {
    Error::new(ErrorCode::NotFound, "process already finished")
}

fn signal_error(error: &io::Error, signal: Signal) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => already_finished(),
        Some(libc::EINVAL) => Error::new(
            ErrorCode::InvalidArgument,
            format!("signal {} does not exist", signal.get()),
        ),
        _ => Error::new(
            ErrorCode::Internal,
            format!("cannot send signal {}: {error}", signal.get()),
        ),
    }
}
