//! What the runtime must advertise before it is asked for anything.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_oci::{
    ATTACHMENT_SCHEMA_V1, IsolationRequest, RuntimeClient, RuntimeInfo, RuntimeOperation,
};

use super::error::runtime_error;

/// Without these no execution can be taken through its whole life.
const LAUNCH_OPERATIONS: [RuntimeOperation; 6] = [
    RuntimeOperation::Create,
    RuntimeOperation::State,
    RuntimeOperation::Start,
    RuntimeOperation::Kill,
    RuntimeOperation::Delete,
    RuntimeOperation::Wait,
];

/// Asks anew each time: a refusal must not outlive the reason for it.
pub(super) async fn features(client: &RuntimeClient) -> ExecutionManagerResult<RuntimeInfo> {
    client.features().await.map_err(runtime_error)
}

/// # Errors
/// `Unavailable`, naming the first thing that is missing.
pub(super) fn require_launch(
    info: &RuntimeInfo,
    isolation: &IsolationRequest,
) -> ExecutionManagerResult<()> {
    require_operations(info, &LAUNCH_OPERATIONS)?;
    if !info.attachments.supports_schema(ATTACHMENT_SCHEMA_V1) {
        return Err(ExecutionManagerError::Unavailable(format!(
            "the runtime does not advertise attachment schema {ATTACHMENT_SCHEMA_V1}"
        )));
    }
    let class = isolation.class();
    let offers = info
        .drivers
        .drivers
        .iter()
        .any(|driver| driver.can_launch() && driver.isolation_classes.contains(&class));
    if !offers {
        return Err(ExecutionManagerError::Unavailable(format!(
            "the runtime has no launch-ready driver for isolation {class:?}"
        )));
    }
    Ok(())
}

/// # Errors
/// `Unavailable` containing `does not advertise <label>` for the first one that is missing.
pub(super) fn require_operations(
    info: &RuntimeInfo,
    operations: &[RuntimeOperation],
) -> ExecutionManagerResult<()> {
    match operations
        .iter()
        .find(|operation| !info.operations.contains(operation))
    {
        None => Ok(()),
        Some(missing) => Err(ExecutionManagerError::Unavailable(format!(
            "the runtime does not advertise {}",
            missing.label()
        ))),
    }
}

/// [`require_operations`] on a fresh report.
pub(super) async fn require(
    client: &RuntimeClient,
    operations: &[RuntimeOperation],
) -> ExecutionManagerResult<()> {
    require_operations(&features(client).await?, operations)
}
