//! Exec: an additional process in a running container. Execs of one container run side by side.

use std::sync::Arc;

use a3sbox_oci::{
    DeleteProcessRequest, Error, ErrorCode, ExecRequest, ProcessId, ProcessRecord, ProcessTarget,
    RuntimeEventKind,
};

use super::create::child_stdio;
use super::{Driver, exit, to_the_end};
use crate::error::RuntimeError;
use crate::journal::{Entry, ExecEntry, Operation};
use crate::native::engine::ExecCall;
use crate::native::reaper::{SpawnHold, Watched};
use crate::owner::state::Status;
use crate::owner::{Container, ProcessSlot, Reserved, operation, wrong_state};
use crate::stdio::{self, ChildStdio, ConsoleSocket, Overflow, StdioOwner, StdioSpec, Streams};

pub(crate) async fn exec(
    driver: Arc<Driver>,
    container: Arc<Container>,
    request: ExecRequest,
) -> Result<ProcessRecord, Error> {
    if request.process_id.is_init() {
        return Err(Error::new(
            ErrorCode::InvalidArgument,
            "the process id init is reserved",
        ));
    }
    // The process id is the key, with the whole request: an operation id of its own adds nothing.
    let operation = operation(
        &request.context,
        "exec",
        &(
            &request.container,
            &request.process_id,
            &request.process,
            &request.io,
            &request.stdio,
        ),
    )?;
    to_the_end(async move {
        for slot in container.expire_sessions(driver.config.session_kept_for) {
            if let Some(streams) = slot.streams() {
                streams.close().await;
            }
        }
        let slot = loop {
            match container.reserve(&request.process_id, &operation)? {
                Reserved::Done(slot) => break slot,
                Reserved::UnderWay(mut settled) => {
                    // Ends when the other attempt has settled, one way or the other.
                    let _ = settled.changed().await;
                }
                Reserved::Fresh => {
                    let ran = run(&driver, &container, &request, &operation).await;
                    container.unreserve(&request.process_id);
                    break ran?;
                }
            }
        };
        Ok(record(&container, &request.process_id, &slot))
    })
    .await
}

pub(crate) fn record(container: &Container, id: &ProcessId, slot: &ProcessSlot) -> ProcessRecord {
    ProcessRecord {
        target: ProcessTarget {
            container: container.target(),
            process_id: id.clone(),
        },
        pid: Some(slot.pid),
        terminal: slot.terminal,
    }
}

async fn run(
    driver: &Driver,
    container: &Arc<Container>,
    request: &ExecRequest,
    operation: &Operation,
) -> Result<Arc<ProcessSlot>, Error> {
    let _turn = container.shared_turn().await?;
    match container.status() {
        Status::Created | Status::Running => {}
        status @ (Status::Creating | Status::Paused | Status::Stopped) => {
            return Err(wrong_state("exec in", status));
        }
    }
    let owner = StdioOwner {
        id: request.process_id.as_str(),
        namespace: &driver.config.namespace,
        pumped: true,
    };
    let source = match &request.stdio {
        Some(uris) => StdioSpec::Uris(uris),
        None => StdioSpec::Io {
            io: &request.io,
            overflow: Overflow::Block,
        },
    };
    let (streams, child) = stdio::open(source, &owner)
        .await
        .map_err(RuntimeError::from)?;
    let launched = launch(container, request, operation, &streams, child).await;
    if launched.is_err() {
        streams.close().await;
    }
    launched
}

async fn launch(
    container: &Arc<Container>,
    request: &ExecRequest,
    operation: &Operation,
    streams: &Streams,
    child: ChildStdio,
) -> Result<Arc<ProcessSlot>, Error> {
    let id = &request.process_id;
    // Beside the journal until the process is in it: after a crash in between it is found by this.
    let pid_file = pid_file(container, id);
    let (fds, console) = child_stdio(child);
    let hold = SpawnHold::take();
    let call = ExecCall {
        id: container.engine_id(),
        process: &request.process,
        pid_file: &pid_file,
        console_socket: console.as_ref().map(ConsoleSocket::path),
        fds,
    };
    let pid = container
        .engine
        .exec(container.folder(), call, &hold)
        .await
        .map_err(RuntimeError::engine("OCI runtime exec failed"))?;
    let watched = Watched::child(pid, &hold).map_err(RuntimeError::io("watch an added process"))?;
    drop(hold);
    let terminal = request.process.terminal().unwrap_or(false);
    let slot = Arc::new(ProcessSlot::running(Arc::new(watched), terminal));
    slot.set_streams(streams.clone());
    let finished = register(container, request, operation, streams, &slot, console).await;
    let _ = std::fs::remove_file(&pid_file);
    if let Err(error) = finished {
        end(&slot).await;
        return Err(error);
    }
    Ok(slot)
}

async fn register(
    container: &Arc<Container>,
    request: &ExecRequest,
    operation: &Operation,
    streams: &Streams,
    slot: &Arc<ProcessSlot>,
    console: Option<ConsoleSocket>,
) -> Result<(), Error> {
    let id = &request.process_id;
    if let Some(socket) = console {
        streams
            .attach_console(socket)
            .await
            .map_err(RuntimeError::from)?;
    }
    let identity = slot
        .identity()
        .ok_or_else(|| Error::new(ErrorCode::Internal, "an added process is not watched"))?;
    container.commit(Entry::Exec(ExecEntry {
        process: id.clone(),
        operation: Some(operation.clone()),
        identity,
        terminal: slot.terminal,
        stdio: request.stdio.clone(),
    }))?;
    container.insert_exec(id, slot.clone());
    container.emit(Some(id), RuntimeEventKind::ProcessStarted);
    exit::watch_exec(container, id, slot);
    Ok(())
}

/// Ends a process that could not be registered, so that it is not lost unseen.
async fn end(slot: &ProcessSlot) {
    if let Some(watched) = &slot.watched {
        let _ = watched.signal(libc::SIGKILL);
        watched.ended().await;
    }
}

pub(crate) const EXEC_PID_PREFIX: &str = "exec-";
pub(crate) const EXEC_PID_SUFFIX: &str = ".pid";

fn pid_file(container: &Container, id: &ProcessId) -> std::path::PathBuf {
    container
        .folder()
        .join(format!("{EXEC_PID_PREFIX}{id}{EXEC_PID_SUFFIX}"))
}

/// Forgets an added process that has ended. One that was never there is forgotten already.
pub(crate) async fn delete_process(
    container: Arc<Container>,
    request: DeleteProcessRequest,
) -> Result<(), Error> {
    let id = request.process.process_id.clone();
    if id.is_init() {
        return Err(Error::new(
            ErrorCode::InvalidArgument,
            "the init process goes with its container",
        ));
    }
    let Ok(slot) = container.process(&request.process) else {
        return Ok(());
    };
    if !slot.has_ended() {
        return Err(Error::new(
            ErrorCode::FailedPrecondition,
            format!("process {id} is still running"),
        ));
    }
    to_the_end(async move {
        if let Some(streams) = slot.streams() {
            streams.drained().await;
            streams.close().await;
        }
        container.commit(Entry::Forgotten {
            process: id.clone(),
        })?;
        container.remove_exec(&id);
        Ok(())
    })
    .await
}
