//! The task face of the OCI backend: containerd's verbs on the runtime service.
//!
//! Every call acts on the exact generation of the binding that the task's record keeps. Codes of the
//! service stay apart up to the caller; texts are the service's own but for the few that containerd's
//! clients know by heart.

mod convert;
mod create;

use a3sbox_oci::oci_spec::runtime::{ContainerState, LinuxResources};
use a3sbox_oci::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, ContainerStats,
    ContainerTarget, DeleteMode, DeleteProcessRequest, DeleteRequest, ErrorCode, EventsRequest,
    ExecRequest, KillRequest, OperationContext, PidsRequest, ProcessId, ProcessTarget,
    ResizeRequest, RuntimeEventKind, Signal, SignalProcessRequest, StartRequest, StateRequest,
    StatsRequest, TerminalSize, UpdateRequest, WaitProcessRequest, WaitRequest,
};
use async_trait::async_trait;

use self::convert::{end_of, init_of, io_of};
use super::evidence::{require_status, validate_binding, validate_running};
use super::record::Execution;
use super::{OciLocalExecutionBackend, OciRuntimeBinding};
use crate::BoxRecord;
use crate::task::{
    TaskBackend, TaskCheckpoint, TaskEnd, TaskError, TaskExec, TaskInit, TaskObservation,
    TaskProcess, TaskProvisioned, TaskResult, TaskRuntimeEvents,
};

#[async_trait]
impl TaskBackend for OciLocalExecutionBackend {
    async fn create(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
    ) -> TaskResult<TaskProvisioned> {
        self.create_task(record, context).await
    }

    async fn start(&self, record: &BoxRecord, context: &OperationContext) -> TaskResult<TaskInit> {
        let binding = self.task_binding(record)?;
        self.provider.ensure_log_projection(record, binding).await?;
        let request = StartRequest {
            context: context.clone(),
            target: binding.target.clone(),
        };
        let container = self.client.start(request).await?;
        binding.validate_record(&container)?;
        require_status(
            &container,
            &[ContainerState::Running, ContainerState::Stopped],
        )?;
        Ok(init_of(&container))
    }

    async fn exec(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        exec: TaskExec,
    ) -> TaskResult<u32> {
        let mut process = exec.process;
        let is_terminal = exec.stdio.terminal;
        process.set_terminal(Some(is_terminal));
        let request = ExecRequest {
            context: context.clone(),
            container: self.task_target(record)?,
            process_id: exec.process_id,
            io: io_of(&process, is_terminal, exec.terminal_size),
            process,
            stdio: Some(exec.stdio),
        };
        let expected = (request.container.clone(), request.process_id.clone());
        let started = self.client.exec(request).await?;
        if (&started.target.container, &started.target.process_id) != (&expected.0, &expected.1) {
            return Err(TaskError::Internal(format!(
                "the runtime started process {} instead of {}",
                started.target.process_id, expected.1
            )));
        }
        Ok(started.pid.unwrap_or(0))
    }

    async fn signal(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
        signal: i32,
        all: bool,
    ) -> TaskResult<()> {
        let target = self.task_target(record)?;
        let context = context.clone();
        let signal = Signal::new(signal)?;
        let delivered = if process.is_init() {
            self.client
                .kill(KillRequest {
                    context,
                    target,
                    signal,
                    all,
                })
                .await
                .map(|_| ())
        } else {
            let process = ProcessTarget {
                container: target,
                process_id: process.clone(),
            };
            self.client
                .signal_process(SignalProcessRequest {
                    context,
                    process,
                    signal,
                })
                .await
        };
        delivered.map_err(|error| match error.code {
            // The texts that the runc shim gives for both, and that kubelet and nerdctl expect.
            ErrorCode::NotFound if process.is_init() => {
                TaskError::NotFound("no such container: not found".to_owned())
            }
            ErrorCode::NotFound | ErrorCode::FailedPrecondition => {
                TaskError::NotFound("process already finished: not found".to_owned())
            }
            _ => error.into(),
        })
    }

    async fn wait(&self, record: &BoxRecord, process: &ProcessId) -> TaskResult<TaskEnd> {
        let target = self.task_target(record)?;
        let ended = if process.is_init() {
            self.client
                .wait(WaitRequest {
                    target,
                    timeout_ms: None,
                })
                .await
        } else {
            let process = ProcessTarget {
                container: target,
                process_id: process.clone(),
            };
            self.client
                .wait_process(WaitProcessRequest {
                    process,
                    timeout_ms: None,
                })
                .await
        };
        match ended {
            Ok(status) => end_of(&status),
            Err(error) => match error.code {
                ErrorCode::FailedPrecondition | ErrorCode::NotFound => Ok(TaskEnd::Unknown {
                    reason: error.message,
                }),
                _ => Err(error.into()),
            },
        }
    }

    async fn delete(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        force: bool,
    ) -> TaskResult<()> {
        if let (false, Ok(binding)) = (force, self.task_binding(record)) {
            self.provider.ensure_log_projection(record, binding).await?;
            if record.exit_code.is_some() {
                self.provider
                    .wait_log_projection_drained(record, binding)
                    .await?;
            } else {
                self.provider
                    .wait_log_projection_stopped_after_owner_loss(record, binding)
                    .await?;
            }
        }
        let request = DeleteRequest {
            context: context.clone(),
            target: self.task_target(record)?,
            mode: if force {
                DeleteMode::Force
            } else {
                DeleteMode::StoppedOnly
            },
        };
        match self.client.delete(request).await {
            Ok(()) => {}
            Err(error) if error.code == ErrorCode::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.provider.cleanup(record).await?;
        Ok(())
    }

    async fn delete_process(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
    ) -> TaskResult<()> {
        let process = ProcessTarget {
            container: self.task_target(record)?,
            process_id: process.clone(),
        };
        let request = DeleteProcessRequest {
            context: context.clone(),
            process,
        };
        match self.client.delete_process(request).await {
            Ok(()) => Ok(()),
            // A runtime that keeps nothing of ended processes has nothing to forget.
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Unsupported) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn pause(&self, record: &BoxRecord, context: &OperationContext) -> TaskResult<()> {
        let binding = self.task_binding(record)?;
        let request = ContainerOperationRequest {
            context: context.clone(),
            target: binding.target.clone(),
        };
        let container = self.client.pause(request).await?;
        Ok(validate_running(binding, &container, true)?)
    }

    async fn resume(&self, record: &BoxRecord, context: &OperationContext) -> TaskResult<()> {
        let binding = self.task_binding(record)?;
        let request = ContainerOperationRequest {
            context: context.clone(),
            target: binding.target.clone(),
        };
        let container = self.client.resume(request).await?;
        Ok(validate_running(binding, &container, false)?)
    }

    async fn update(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        resources: LinuxResources,
    ) -> TaskResult<()> {
        let binding = self.task_binding(record)?;
        let request = UpdateRequest {
            context: context.clone(),
            target: binding.target.clone(),
            resources,
        };
        let container = self.client.update(request).await?;
        Ok(binding.validate_record(&container)?)
    }

    async fn resize(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
        size: TerminalSize,
    ) -> TaskResult<()> {
        let process = ProcessTarget {
            container: self.task_target(record)?,
            process_id: process.clone(),
        };
        let request = ResizeRequest {
            context: context.clone(),
            process,
            size,
        };
        Ok(self.client.resize(request).await?)
    }

    async fn close_stdin(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        process: &ProcessId,
    ) -> TaskResult<()> {
        let process = ProcessTarget {
            container: self.task_target(record)?,
            process_id: process.clone(),
        };
        let request = CloseStdinRequest {
            context: context.clone(),
            process,
        };
        Ok(self.client.close_stdin(request).await?)
    }

    async fn checkpoint(
        &self,
        record: &BoxRecord,
        context: &OperationContext,
        request: &TaskCheckpoint,
    ) -> TaskResult<()> {
        let request = CheckpointRequest {
            context: context.clone(),
            target: self.task_target(record)?,
            image_path: request.image_path.clone(),
            work_path: request.work_path.clone(),
            exit: request.exit,
            open_tcp: request.open_tcp,
            external_unix_sockets: request.external_unix_sockets,
            terminal: request.terminal,
            file_locks: request.file_locks,
            empty_namespaces: request.empty_namespaces.clone(),
            cgroups_mode: request.cgroups_mode.clone(),
        };
        self.client.checkpoint(request).await?;
        Ok(())
    }

    async fn pids(&self, record: &BoxRecord) -> TaskResult<Vec<TaskProcess>> {
        let pids = self
            .client
            .pids(PidsRequest {
                target: self.task_target(record)?,
            })
            .await?;
        Ok(pids
            .into_iter()
            .map(|process| TaskProcess {
                pid: process.pid,
                process_id: process.process_id,
            })
            .collect())
    }

    async fn stats(&self, record: &BoxRecord) -> TaskResult<ContainerStats> {
        let target = self.task_target(record)?;
        match self
            .client
            .stats(StatsRequest {
                target: target.clone(),
            })
            .await
        {
            Ok(stats) if stats.target == target => Ok(stats),
            Ok(stats) => Err(TaskError::Internal(format!(
                "the runtime gave statistics of container {} instead of {}",
                stats.target.id, target.id
            ))),
            Err(error) if error.code == ErrorCode::NotFound => Err(TaskError::NotFound(
                "cgroup does not exist: not found".to_owned(),
            )),
            Err(error) => Err(error.into()),
        }
    }

    async fn events(
        &self,
        record: &BoxRecord,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> TaskResult<TaskRuntimeEvents> {
        let request = EventsRequest {
            container: Some(self.task_target(record)?),
            after_sequence: after,
            limit,
            wait_timeout_ms: Some(wait_ms),
        };
        let batch = self.client.events(request).await?;
        Ok(TaskRuntimeEvents {
            out_of_memory: batch
                .events
                .iter()
                .filter(|event| event.kind == RuntimeEventKind::OutOfMemory)
                .map(|event| event.sequence)
                .collect(),
            next: batch.next_sequence.max(after),
        })
    }

    async fn inspect(&self, record: &BoxRecord) -> TaskResult<TaskObservation> {
        let target = self.task_target(record)?;
        let container = match self.client.state(StateRequest { target }).await {
            Ok(container) => container,
            Err(error) if error.code == ErrorCode::NotFound => return Ok(TaskObservation::Absent),
            Err(error) => return Err(error.into()),
        };
        if let Ok(binding) = self.task_binding(record) {
            binding.validate_record(&container)?;
        }
        Ok(match *container.state.status() {
            ContainerState::Creating | ContainerState::Created => {
                TaskObservation::Created(init_of(&container))
            }
            ContainerState::Running => TaskObservation::Running {
                process: init_of(&container),
                paused: container.is_paused(),
            },
            ContainerState::Stopped => TaskObservation::Stopped,
        })
    }
}

impl OciLocalExecutionBackend {
    /// The binding that the task keeps until its delete, also when the execution has ended.
    fn task_binding<'a>(&self, record: &'a BoxRecord) -> TaskResult<&'a OciRuntimeBinding> {
        let managed = record.metadata()?;
        let binding = managed
            .task
            .as_ref()
            .and_then(|task| task.binding.as_ref())
            .or(managed.oci_runtime.as_ref())
            .ok_or_else(|| {
                TaskError::FailedPrecondition(
                    "container must be created: failed precondition".to_owned(),
                )
            })?;
        validate_binding(binding, &self.endpoint, &record.execution_id()?)?;
        Ok(binding)
    }

    /// The bound generation; before the create was recorded, whatever the runtime has under the id.
    fn task_target(&self, record: &BoxRecord) -> TaskResult<ContainerTarget> {
        match self.task_binding(record) {
            Ok(binding) => Ok(binding.target.clone()),
            Err(TaskError::FailedPrecondition(_)) => {
                let execution = Execution::new(record, &self.endpoint)?;
                Ok(ContainerTarget::current(execution.container_id.clone()))
            }
            Err(error) => Err(error),
        }
    }
}
