//! Pause and resume: all processes of a container are frozen where they are, and go on.

use std::sync::Arc;

use a3sbox_oci::{ContainerOperationRequest, ContainerRecord, Error, RuntimeEventKind};

use crate::error::RuntimeError;
use crate::journal::Entry;
use crate::native::engine::{EngineError, FailureKind};
use crate::native::reaper::SpawnHold;
use crate::owner::state::Status;
use crate::owner::{Container, operation, wrong_state};

pub(crate) async fn pause(
    container: Arc<Container>,
    request: ContainerOperationRequest,
) -> Result<ContainerRecord, Error> {
    let operation = operation(&request.context, "pause", &request.target)?;
    let _turn = container.turn().await?;
    if let Some(record) = container.replay(&operation, None)? {
        return Ok(record);
    }
    match container.status() {
        Status::Running => {}
        Status::Paused => return container.settle(operation),
        status @ (Status::Creating | Status::Created | Status::Stopped) => {
            return Err(wrong_state("pause", status));
        }
    }
    let hold = SpawnHold::take();
    container
        .engine
        .pause(container.folder(), container.engine_id(), &hold)
        .await
        .map_err(RuntimeError::engine("OCI runtime pause failed"))?;
    drop(hold);
    container.witness(Entry::Paused { operation })?;
    container.emit(None, RuntimeEventKind::ContainerPaused);
    Ok(container.record_as(Status::Paused))
}

pub(crate) async fn resume(
    container: Arc<Container>,
    request: ContainerOperationRequest,
) -> Result<ContainerRecord, Error> {
    let operation = operation(&request.context, "resume", &request.target)?;
    let _turn = container.turn().await?;
    if let Some(record) = container.replay(&operation, None)? {
        return Ok(record);
    }
    match container.status() {
        Status::Paused => {}
        Status::Running => return container.settle(operation),
        status @ (Status::Creating | Status::Created | Status::Stopped) => {
            return Err(wrong_state("resume", status));
        }
    }
    let hold = SpawnHold::take();
    let resumed = container
        .engine
        .resume(container.folder(), container.engine_id(), &hold)
        .await;
    drop(hold);
    match resumed {
        // A SIGKILL has thawed it, or an operator has: it runs.
        Ok(())
        | Err(EngineError::Failed {
            kind: FailureKind::NotPaused,
            ..
        }) => {}
        Err(error) => return Err(RuntimeError::engine("OCI runtime resume failed")(error).into()),
    }
    container.witness(Entry::Resumed { operation })?;
    container.emit(None, RuntimeEventKind::ContainerResumed);
    Ok(container.record_as(Status::Running))
}
