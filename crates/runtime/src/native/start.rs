//! Start: a created container runs its program.

use std::sync::Arc;

use a3sbox_oci::{ContainerRecord, Error, RuntimeEventKind, StartRequest};

use super::hooks::HookGuard;
use crate::error::RuntimeError;
use crate::journal::Entry;
use crate::native::reaper::SpawnHold;
use crate::owner::state::Status;
use crate::owner::{Container, operation, wrong_state};

pub(crate) async fn start(
    container: Arc<Container>,
    request: StartRequest,
) -> Result<ContainerRecord, Error> {
    let operation = operation(&request.context, "start", &request.target)?;
    let _turn = container.turn().await?;
    if let Some(record) = container.replay(&operation, None)? {
        return Ok(record);
    }
    match container.status() {
        Status::Created => {}
        Status::Running => return container.settle(operation),
        status @ (Status::Creating | Status::Paused | Status::Stopped) => {
            return Err(wrong_state("start", status));
        }
    }
    // The exit of a program that ends at once is recorded after its start.
    let _starting = container.starting.acquire().await;
    let hold = SpawnHold::take();
    container
        .engine
        .start(
            container.folder(),
            container.engine_id(),
            container
                .file()
                .poststart_timeout
                .map(HookGuard::with_longest_timeout_s),
            &hold,
        )
        .await
        .map_err(RuntimeError::engine("OCI runtime start failed"))?;
    drop(hold);
    container.witness(Entry::Started { operation })?;
    container.emit(None, RuntimeEventKind::ContainerStarted);
    Ok(container.record_as(Status::Running))
}
