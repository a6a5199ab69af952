//! Update: the limits of a running container change. Nothing is remembered: the kernel's limit is the truth.

use std::sync::Arc;

use a3sbox_oci::{ContainerRecord, Error, RuntimeEventKind, UpdateRequest};

use crate::error::RuntimeError;
use crate::journal::Entry;
use crate::native::reaper::SpawnHold;
use crate::owner::state::Status;
use crate::owner::{Container, operation, wrong_state};

pub(crate) async fn update(
    container: Arc<Container>,
    request: UpdateRequest,
) -> Result<ContainerRecord, Error> {
    let operation = operation(
        &request.context,
        "update",
        &(&request.target, &request.resources),
    )?;
    let _turn = container.turn().await?;
    if let Some(record) = container.replay(&operation, None)? {
        return Ok(record);
    }
    match container.status() {
        // A created one as well: a kubelet sets the cpus of a container before it starts it.
        // A paused one too: its limits are no business of its freezer.
        Status::Created | Status::Running | Status::Paused => {}
        status @ (Status::Creating | Status::Stopped) => {
            return Err(wrong_state("update", status));
        }
    }
    let hold = SpawnHold::take();
    container
        .engine
        .update(
            container.folder(),
            container.engine_id(),
            &request.resources,
            &hold,
        )
        .await
        .map_err(RuntimeError::engine("OCI runtime update failed"))?;
    drop(hold);
    container.commit(Entry::Updated { operation })?;
    container.emit(None, RuntimeEventKind::ResourcesUpdated);
    Ok(container.record())
}
