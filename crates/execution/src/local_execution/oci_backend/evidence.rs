//! What the runtime's answers must prove before they are believed. Every violation is `Internal`: a
//! service that answers for another container, or with less isolation than was asked for, is broken.

use a3sbox_core::{ExecutionId, ExecutionManagerError, ExecutionManagerResult};
use a3sbox_oci::oci_spec::runtime::ContainerState;
use a3sbox_oci::{
    ContainerId, ContainerRecord, ExitStatus, IsolationClass, IsolationRequest, RuntimeInfo,
};

use super::error::internal;
use super::{OciPreparedExecution, OciRuntimeBinding, OciRuntimeEndpoint};
use crate::process;

/// Added to a signal's number where only an exit code fits.
const SIGNAL_EXIT_BASE: i32 = 128;

pub(super) fn is_sha256_digest(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The one number for how a process ended.
pub(super) fn exit_code(status: &ExitStatus) -> ExecutionManagerResult<i32> {
    match (status.exit_code, status.signal) {
        (Some(code), None) => Ok(code),
        (None, Some(signal)) => SIGNAL_EXIT_BASE.checked_add(signal).ok_or_else(|| {
            internal(format!(
                "termination by signal {signal} cannot be represented as an exit code"
            ))
        }),
        _ => Err(internal(
            "the runtime reported neither or both of exit code and signal",
        )),
    }
}

/// The init process on this host, where it has one: a VM's pids mean nothing here.
pub(super) fn runtime_process_identity(
    binding: &OciRuntimeBinding,
    record: &ContainerRecord,
) -> ExecutionManagerResult<(Option<u32>, Option<u64>)> {
    binding.validate_record(record)?;
    require_status(record, &[ContainerState::Running])?;
    if record.isolation == IsolationClass::SharedHostKernel {
        host_process(record)
    } else {
        Ok((None, None))
    }
}

fn host_process(record: &ContainerRecord) -> ExecutionManagerResult<(Option<u32>, Option<u64>)> {
    let id = record.state.id();
    let pid = record
        .state
        .pid()
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid > 0)
        .ok_or_else(|| {
            internal(format!(
                "the runtime gave no pid for running container {id}"
            ))
        })?;
    let start_time = process::pid_start_time(pid);
    if cfg!(target_os = "linux") && start_time.is_none() {
        return Err(ExecutionManagerError::Unavailable(format!(
            "process {pid} of container {id} is not alive"
        )));
    }
    Ok((Some(pid), start_time))
}

/// Checks the answer of create against what was submitted.
pub(super) fn validate_created(
    record: &ContainerRecord,
    expected_id: &ContainerId,
    isolation: &IsolationRequest,
    prepared: &OciPreparedExecution,
    info: &RuntimeInfo,
) -> ExecutionManagerResult<()> {
    validate_adopted(record, expected_id, isolation, info)?;
    if record.config_digest != prepared.bundle.config_digest() {
        return Err(internal(format!(
            "container {expected_id} was not created from the submitted bundle: its config digest is {}",
            record.config_digest
        )));
    }
    let submitted = prepared
        .attachments
        .digest()
        .map_err(|error| internal(format!("cannot digest the attachments: {error}")))?;
    if record.attachments_digest.as_deref() != Some(submitted.as_str()) {
        return Err(internal(format!(
            "container {expected_id} was not created from the submitted manifest of attachments"
        )));
    }
    Ok(())
}

/// Checks a container that was found under an execution's id without a stored binding. Its bundle is
/// not at hand, so its digests are only required to be digests.
pub(super) fn validate_adopted(
    record: &ContainerRecord,
    expected_id: &ContainerId,
    isolation: &IsolationRequest,
    info: &RuntimeInfo,
) -> ExecutionManagerResult<()> {
    if record.state.id() != expected_id.as_str() {
        return Err(internal(format!(
            "the runtime answered for container {} instead of {expected_id}",
            record.state.id()
        )));
    }
    if record.generation.0 == 0 {
        return Err(internal(format!(
            "the runtime gave container {expected_id} no generation"
        )));
    }
    if record.isolation != isolation.class() {
        return Err(internal(format!(
            "container {expected_id} has isolation {:?} and not the requested {:?}",
            record.isolation,
            isolation.class()
        )));
    }
    let has_digests = is_sha256_digest(&record.config_digest)
        && record
            .attachments_digest
            .as_deref()
            .is_some_and(is_sha256_digest);
    if !has_digests {
        return Err(internal(format!(
            "the runtime gave malformed or missing digests for container {expected_id}"
        )));
    }
    let advertised = info.drivers.drivers.iter().any(|driver| {
        driver.driver == record.driver
            && driver.can_launch()
            && driver.isolation_classes.contains(&record.isolation)
    });
    if !advertised {
        return Err(internal(format!(
            "container {expected_id} runs under {:?}, which the runtime does not advertise for {:?}",
            record.driver, record.isolation
        )));
    }
    Ok(())
}

/// Binds to a container that passed [`validate_created`] or [`validate_adopted`].
pub(super) fn bind(
    endpoint: &OciRuntimeEndpoint,
    expected_id: &ContainerId,
    record: &ContainerRecord,
) -> ExecutionManagerResult<OciRuntimeBinding> {
    OciRuntimeBinding::from_record(endpoint.clone(), expected_id, record)
}

/// A stored binding must be this execution's and lead to the service that is asked.
pub(super) fn validate_binding(
    binding: &OciRuntimeBinding,
    endpoint: &OciRuntimeEndpoint,
    execution_id: &ExecutionId,
) -> ExecutionManagerResult<()> {
    binding.validate_for(execution_id)?;
    if binding.endpoint != *endpoint {
        return Err(internal(format!(
            "execution {execution_id} is bound to another runtime endpoint"
        )));
    }
    Ok(())
}

pub(super) fn require_status(
    record: &ContainerRecord,
    allowed: &[ContainerState],
) -> ExecutionManagerResult<()> {
    let status = *record.state.status();
    if allowed.contains(&status) {
        return Ok(());
    }
    Err(internal(format!(
        "container {} is {status} after the runtime's answer",
        record.state.id()
    )))
}

/// The answer of pause, resume and update: the same container, running, with the wanted flag.
pub(super) fn validate_running(
    binding: &OciRuntimeBinding,
    record: &ContainerRecord,
    paused: bool,
) -> ExecutionManagerResult<()> {
    binding.validate_record(record)?;
    require_status(record, &[ContainerState::Running])?;
    if record.is_paused() != paused {
        return Err(internal(format!(
            "container {} is {}paused after the runtime's answer",
            record.state.id(),
            if paused { "not " } else { "" }
        )));
    }
    Ok(())
}
