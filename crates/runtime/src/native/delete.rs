//! Delete: nothing of a container is left. The same steps undo a create that failed.
//!
//! ```text
//! kill (force) ─► what is left in the cgroup ─► engine delete, beside the rest of the output
//!              ─► cgroup ─► poststop hooks of the driver ─► streams ─► folder
//! ```
//!
//! Each step looks first, so that a delete that was interrupted can be repeated.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use a3sbox_oci::{DeleteMode, DeleteRequest, Error, ErrorCode, RuntimeEventKind};

use super::{Driver, hooks, kill, to_the_end};
use crate::error::RuntimeError;
use crate::journal::Operation;
use crate::native::cgroup::{Cgroup, CgroupError};
use crate::native::engine::{EngineError, FailureKind};
use crate::native::reaper::SpawnHold;
use crate::owner::state::Status;
use crate::owner::{Container, operation};

/// A killed init is gone within this, or the kernel holds it.
const KILLED_INIT_DEADLINE: Duration = Duration::from_secs(30);

pub(crate) async fn delete(driver: Arc<Driver>, request: DeleteRequest) -> Result<(), Error> {
    let operation = operation(&request.context, "delete", &(&request.target, request.mode))?;
    let container = match driver.registry.find(&request.target) {
        Ok(container) => container,
        Err(error) => {
            return if driver.registry.has_deleted(&operation)? {
                Ok(())
            } else {
                Err(error)
            };
        }
    };
    to_the_end(async move {
        if request.mode == DeleteMode::Force {
            // Before the turn: an exec that is under way ends with its container.
            kill_init(&container);
        }
        let turn = match container.turn().await {
            Ok(turn) => turn,
            // Deleted meanwhile, maybe by the same request.
            Err(_) if driver.registry.has_deleted(&operation)? => return Ok(()),
            Err(error) => return Err(error),
        };
        match (request.mode, container.status()) {
            (_, Status::Stopped) => {}
            (DeleteMode::StoppedOnly, status) => {
                return Err(crate::owner::wrong_state("delete", status));
            }
            (DeleteMode::Force, _) => end_init(&container).await?,
        }
        remove(&driver, &container, &operation).await?;
        drop(turn);
        Ok(())
    })
    .await
}

fn kill_init(container: &Container) {
    let Some(slot) = container.init() else { return };
    if let Some(watched) = slot.watched.as_ref().filter(|_| !slot.has_ended()) {
        // It may have ended just now, which is as good.
        let _ = watched.signal(libc::SIGKILL);
        if let Some(cgroup) = container.cgroup()
            && let Err(error) = cgroup.thaw_for_kill()
        {
            tracing::warn!(container_id = %container.id(), error = %error, "cannot thaw a container that was killed");
        }
    }
}

async fn end_init(container: &Container) -> Result<(), Error> {
    kill_init(container);
    let Some(slot) = container.init() else {
        return Ok(());
    };
    match slot.wait_exit(Some(KILLED_INIT_DEADLINE)).await {
        Some(_) => Ok(()),
        None => Err(Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "init of container {} (pid {}) did not end within {} s of SIGKILL",
                container.id(),
                slot.pid,
                KILLED_INIT_DEADLINE.as_secs()
            ),
        )),
    }
}

async fn remove(
    driver: &Driver,
    container: &Arc<Container>,
    operation: &Operation,
) -> Result<(), Error> {
    if container.file().shares_pid_namespace {
        // Without a pid namespace of its own the end of init has ended nobody else.
        kill::everything(container).await;
    }
    let streams: Vec<_> = container
        .init()
        .into_iter()
        .chain(container.execs().into_iter().map(|(_, slot)| slot))
        .filter_map(|slot| slot.streams().cloned())
        .collect();
    let drain = async {
        for streams in &streams {
            streams.drained().await;
        }
    };
    let (deleted, ()) = tokio::join!(engine_delete(container), drain);
    deleted.map_err(RuntimeError::engine("failed to delete task"))?;
    remove_cgroup(container).await;
    poststop(container).await;
    for streams in &streams {
        streams.close().await;
    }
    remove_folder(container.folder())?;
    container.emit(None, RuntimeEventKind::ContainerDeleted);
    driver.registry.forget(container, Some(operation.clone()));
    Ok(())
}

/// A folder that is gone is gone, also when the sync behind its removal failed: a delete that is tried again
/// would find nothing to work in. One that comes back with the power is adopted and deleted then.
fn remove_folder(folder: &Path) -> Result<(), RuntimeError> {
    match a3sbox_durable::folder::remove_all(folder) {
        Err(error) if !folder.exists() => {
            tracing::warn!(folder = %folder.display(), error = %error, "the removal of a folder may not be durable");
            Ok(())
        }
        other => other.map(drop).map_err(RuntimeError::from),
    }
}

/// Why a create is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undo {
    /// A step has failed; the engine has cleaned up behind itself.
    Failed { poststop_due: bool },
    /// Its service ended in between, and the engine call was killed.
    Interrupted,
}

/// Undoes a create. What cannot be undone is logged; the caller's error is the first one.
pub(crate) async fn undo_create(driver: &Driver, container: &Arc<Container>, why: Undo) {
    if let Some(slot) = container.init()
        && let Some(watched) = &slot.watched
    {
        kill_init(container);
        let ended = tokio::time::timeout(KILLED_INIT_DEADLINE, watched.ended()).await;
        if ended.is_err() {
            tracing::error!(container_id = %container.id(), pid = slot.pid, "init of a failed create does not end");
        }
    }
    if container.cgroup().is_none()
        && let Ok(cgroup) = configured_cgroup(container)
    {
        container.set_cgroup(cgroup);
        // After an ordinary failure a process in there is somebody else's: two containers may have been
        // given one path.
        if why == Undo::Interrupted {
            kill::everything(container).await;
        }
    } else {
        kill::everything(container).await;
    }
    undo_engine(container).await;
    if let Some(cgroup) = container.cgroup()
        && let Err(error) = cgroup.remove()
    {
        tracing::warn!(container_id = %container.id(), error = %error, "the cgroup of a failed create is left");
    }
    if why
        != (Undo::Failed {
            poststop_due: false,
        })
    {
        poststop(container).await;
    }
    if let Err(error) = a3sbox_durable::folder::remove_all(container.folder()) {
        tracing::error!(container_id = %container.id(), error = %error, "the folder of a failed create is left");
    }
    container.emit(None, RuntimeEventKind::ContainerDeleted);
    driver.registry.forget(container, None);
}

/// The cgroup as the config names it, for a container whose processes nobody has seen.
pub(crate) fn configured_cgroup(container: &Container) -> Result<Cgroup, CgroupError> {
    Cgroup::from_config(
        container.file().cgroups_path.as_deref(),
        container.engine_id(),
        container.engine.systemd_cgroup,
    )
}

/// The engine cleans up after a create that fails, but not after one that was killed.
async fn undo_engine(container: &Container) {
    let state = container.engine.root.join(container.engine_id());
    if !state.exists() {
        return;
    }
    let hold = SpawnHold::take();
    let deleted = container
        .engine
        .delete(container.folder(), container.engine_id(), true, None, &hold)
        .await;
    match deleted {
        Ok(()) => {}
        Err(error) if error.kind() == FailureKind::NoContainer => {}
        Err(error) => {
            tracing::error!(container_id = %container.id(), error = %error, "the engine keeps a container whose create failed");
        }
    }
}

/// One engine call as a rule. A container that the engine will not delete as stopped is forced.
async fn engine_delete(container: &Container) -> Result<(), EngineError> {
    let mut result = Ok(());
    for force in [false, true] {
        let hold = SpawnHold::take();
        result = container
            .engine
            .delete(
                container.folder(),
                container.engine_id(),
                force,
                None,
                &hold,
            )
            .await;
        match &result {
            Ok(()) => return Ok(()),
            Err(error) => match error.kind() {
                FailureKind::NoContainer => return Ok(()),
                FailureKind::Hook => {
                    // The spec: warn and go on. The engine had removed the container before.
                    tracing::warn!(container_id = %container.id(), error = %error, "poststop hook failed");
                    return Ok(());
                }
                FailureKind::ContainerExists
                | FailureKind::NotRunning
                | FailureKind::Paused
                | FailureKind::NotPaused
                | FailureKind::StartProcess
                | FailureKind::LimitBelowUse
                | FailureKind::Other => {
                    tracing::warn!(container_id = %container.id(), error = %error, force, "engine delete failed");
                }
            },
        }
    }
    result
}

/// What the engine has left of the cgroup; a process in it is one that an engine call left there.
async fn remove_cgroup(container: &Container) {
    let Some(cgroup) = container.cgroup() else {
        return;
    };
    if cgroup.remove().is_ok() {
        return;
    }
    kill::everything(container).await;
    if let Err(error) = cgroup.remove() {
        tracing::warn!(container_id = %container.id(), error = %error, "a cgroup is left");
    }
}

/// Hooks that the driver took over from the engine.
async fn poststop(container: &Container) {
    let hooks = &container.file().poststop;
    if hooks.is_empty() {
        return;
    }
    let mut state = container.record_as(Status::Stopped).state;
    state.set_id(container.engine_id().to_owned());
    match serde_json::to_vec(&state) {
        Ok(state) => hooks::run_poststop(hooks, &state).await,
        Err(error) => {
            tracing::error!(container_id = %container.id(), error = %error, "poststop hooks were not run");
        }
    }
}
