//! From a command to a process of the runtime, under an identity that a repeat shares.

use std::sync::Arc;

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_oci::{
    ContainerTarget, ErrorCode, ExecRequest, ProcessIo, ProcessRecord, ProcessTarget,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::super::OciLocalExecutionBackend;
use super::super::capabilities::require;
use super::super::error::{internal, runtime_error};
use super::super::identity::{exec_process_id, lower_hex, operation_context};
use super::super::record::Execution;
use super::command::SessionCommand;
use super::input::OciProcessInput;
use super::process::OciProcess;
use super::watchdog::Watchdog;
use crate::BoxRecord;

const EXEC: &str = "exec";

/// Everything that makes two execs the same one.
#[derive(Serialize)]
struct Fingerprint<'a> {
    target: &'a ContainerTarget,
    terminal: Option<bool>,
    uid: u32,
    gid: u32,
    args: &'a Option<Vec<String>>,
    env: &'a Option<Vec<String>>,
    cwd: &'a std::path::Path,
    no_new_privileges: Option<bool>,
    io: &'a ProcessIo,
    stdin_digest: Option<String>,
    keeps_stdin: bool,
    timeout_ns: Option<u128>,
}

impl OciLocalExecutionBackend {
    /// Starts the command from a task of its own: a caller that hangs up meanwhile recalls neither the
    /// process nor its timeout.
    pub(super) async fn launch(
        &self,
        record: &BoxRecord,
        command: SessionCommand,
    ) -> ExecutionManagerResult<OciProcess> {
        let (backend, record) = (self.clone(), record.clone());
        tokio::spawn(async move { backend.launch_to_the_end(&record, command).await })
            .await
            .unwrap_or_else(|error| Err(internal(format!("the exec was not dispatched: {error}"))))
    }

    async fn launch_to_the_end(
        &self,
        record: &BoxRecord,
        command: SessionCommand,
    ) -> ExecutionManagerResult<OciProcess> {
        let execution = Execution::new(record, &self.endpoint)?;
        let container = execution.require_binding()?.target.clone();
        require(&self.client, &command.operations()).await?;
        let request = exec_request(&execution, container, &command)?;
        let target = ProcessTarget {
            container: request.container.clone(),
            process_id: request.process_id.clone(),
        };
        let watchdog = command.timeout.map(|timeout| {
            Watchdog::arm(
                self.client.clone(),
                request.clone(),
                execution.generation(),
                timeout,
            )
        });
        if let Err(error) = self.dispatch(request, &target, command.is_terminal()).await {
            if let (Some(watchdog), Dispatch::Refused(_)) = (&watchdog, &error) {
                watchdog.disarm();
            }
            return Err(error.into_inner());
        }
        let input = Arc::new(OciProcessInput::new(
            self.client.clone(),
            target.clone(),
            execution.generation(),
            command.has_stdin(),
            command.is_terminal(),
        ));
        Ok(OciProcess::new(
            self.client.clone(),
            target,
            command.is_terminal(),
            input,
            watchdog,
        ))
    }

    async fn dispatch(
        &self,
        request: ExecRequest,
        target: &ProcessTarget,
        terminal: bool,
    ) -> Result<(), Dispatch> {
        match self.client.exec(request).await {
            Ok(process) => validate_process(&process, target, terminal).map_err(Dispatch::Open),
            Err(error) if is_refusal(error.code) => Err(Dispatch::Refused(runtime_error(error))),
            Err(error) => Err(Dispatch::Open(runtime_error(error))),
        }
    }
}

/// Why a dispatch failed.
#[derive(Debug)]
enum Dispatch {
    /// The runtime started nothing for it.
    Refused(ExecutionManagerError),
    /// The process may exist all the same, so its timeout stays armed.
    Open(ExecutionManagerError),
}

impl Dispatch {
    fn into_inner(self) -> ExecutionManagerError {
        match self {
            Self::Refused(error) | Self::Open(error) => error,
        }
    }
}

const fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidArgument
            | ErrorCode::NotFound
            | ErrorCode::AlreadyExists
            | ErrorCode::FailedPrecondition
            | ErrorCode::Unsupported
            | ErrorCode::PermissionDenied
            | ErrorCode::ResourceExhausted
            | ErrorCode::Conflict
    )
}

fn exec_request(
    execution: &Execution<'_>,
    container: ContainerTarget,
    command: &SessionCommand,
) -> ExecutionManagerResult<ExecRequest> {
    let process = command.process(execution.record)?;
    let io = command.io();
    let generation = execution.generation();
    let seed = command
        .request_id
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let fingerprint = Fingerprint {
        target: &container,
        terminal: process.terminal(),
        uid: process.user().uid(),
        gid: process.user().gid(),
        args: process.args(),
        env: process.env(),
        cwd: process.cwd(),
        no_new_privileges: process.no_new_privileges(),
        io: &io,
        stdin_digest: command
            .stdin
            .as_deref()
            .map(|data| lower_hex(&Sha256::digest(data))),
        keeps_stdin: command.keeps_stdin,
        timeout_ns: command.timeout.map(|timeout| timeout.as_nanos()),
    };
    Ok(ExecRequest {
        context: operation_context(&seed, generation, EXEC, fingerprint)?,
        process_id: exec_process_id(&seed, generation, &container)?,
        container,
        process,
        io,
        stdio: None,
    })
}

fn validate_process(
    process: &ProcessRecord,
    target: &ProcessTarget,
    terminal: bool,
) -> ExecutionManagerResult<()> {
    if process.target != *target {
        return Err(internal(format!(
            "the runtime started process {} instead of {}",
            process.target.process_id, target.process_id
        )));
    }
    if process.terminal != terminal {
        return Err(internal(format!(
            "the runtime started process {} with another kind of I/O",
            target.process_id
        )));
    }
    Ok(())
}
