//! The task face of [`LocalExecutionManager`]: look the owner up, hand the call over, wait.

use a3sbox_oci::ContainerStats;
use a3sbox_oci::oci_spec::runtime::{LinuxResources, Process};
use a3sbox_oci::{StdioUris, TerminalSize};
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::owner::{Handle, no_such_process};
use super::request::{Reply, Request};
use super::types::{
    ProvisionRequest, TaskCheckpoint, TaskCreated, TaskDeleted, TaskEvent, TaskExit, TaskKey,
    TaskPid, TaskState, TaskStatus,
};
use super::view::ProcessView;
use super::{TaskError, TaskManager, TaskResult};
use crate::LocalExecutionManager;

impl Handle {
    /// Queues a request and waits for its answer. Dropping this future cancels nothing that began.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> TaskResult<T> {
        let (reply, answered) = oneshot::channel();
        if self.requests.send(request(reply)).await.is_err() {
            return Err(gone());
        }
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn view(&self, process: Option<&str>) -> TaskResult<watch::Receiver<ProcessView>> {
        match process {
            None => Ok(self.init.clone()),
            Some(exec_id) => self
                .execs
                .get(exec_id)
                .ok_or_else(|| no_such_process(exec_id)),
        }
    }

    fn has_stopped(&self) -> bool {
        self.init.borrow().status == TaskStatus::Stopped
    }

    /// What Pids tells of a container without processes: its init, as it was. containerd 2 takes a shim
    /// with an empty list for a leaked one when it comes back, and deletes the task with its exit status.
    fn ended_init(&self) -> Vec<TaskPid> {
        vec![TaskPid {
            pid: self.init.borrow().pid,
            exec_id: None,
        }]
    }
}

fn gone() -> TaskError {
    TaskError::NotFound("container not created: not found".to_owned())
}

fn named(process: Option<&str>) -> Option<String> {
    process.map(str::to_owned)
}

#[async_trait]
impl TaskManager for LocalExecutionManager {
    async fn provision(&self, request: ProvisionRequest) -> TaskResult<TaskCreated> {
        self.tasks.provision(request).await
    }

    async fn release(&self, key: &TaskKey) -> TaskResult<u32> {
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Start { reply })
            .await
    }

    async fn exec_add(
        &self,
        key: &TaskKey,
        exec_id: &str,
        process: Process,
        stdio: StdioUris,
    ) -> TaskResult<()> {
        let exec_id = exec_id.to_owned();
        let process = Box::new(process);
        self.tasks
            .handle(key)?
            .ask(|reply| Request::ExecAdd {
                exec_id,
                process,
                stdio,
                reply,
            })
            .await
    }

    async fn exec_start(&self, key: &TaskKey, exec_id: &str) -> TaskResult<u32> {
        let exec_id = exec_id.to_owned();
        self.tasks
            .handle(key)?
            .ask(|reply| Request::ExecStart { exec_id, reply })
            .await
    }

    async fn signal(
        &self,
        key: &TaskKey,
        process: Option<&str>,
        signal: i32,
        all: bool,
    ) -> TaskResult<()> {
        let process = named(process);
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Signal {
                process,
                signal,
                all,
                reply,
            })
            .await
    }

    async fn wait(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<TaskExit> {
        let mut view = self.tasks.handle(key)?.view(process)?;
        let seen = view
            .wait_for(|view| view.exit.is_some() || view.start_failed)
            .await;
        let gone = || process.map_or_else(gone, no_such_process);
        match seen {
            Ok(view) => view.exit.clone().ok_or_else(|| {
                TaskError::FailedPrecondition(format!(
                    "process {} did not start: failed precondition",
                    process.unwrap_or_default()
                ))
            }),
            Err(_) => Err(gone()),
        }
    }

    async fn delete(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<TaskDeleted> {
        let process = named(process);
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Delete { process, reply })
            .await
    }

    async fn pause(&self, key: &TaskKey) -> TaskResult<()> {
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Pause { reply })
            .await
    }

    async fn resume(&self, key: &TaskKey) -> TaskResult<()> {
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Resume { reply })
            .await
    }

    async fn update(&self, key: &TaskKey, resources: LinuxResources) -> TaskResult<()> {
        let resources = Box::new(resources);
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Update { resources, reply })
            .await
    }

    async fn resize(
        &self,
        key: &TaskKey,
        process: Option<&str>,
        width: u16,
        height: u16,
    ) -> TaskResult<()> {
        let process = named(process);
        let size = TerminalSize { width, height };
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Resize {
                process,
                size,
                reply,
            })
            .await
    }

    async fn close_stdin(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<()> {
        let process = named(process);
        self.tasks
            .handle(key)?
            .ask(|reply| Request::CloseStdin { process, reply })
            .await
    }

    async fn pids(&self, key: &TaskKey) -> TaskResult<Vec<TaskPid>> {
        let handle = self.tasks.handle(key)?;
        if handle.has_stopped() {
            return Ok(handle.ended_init());
        }
        let task = handle.engine.task()?;
        let listed = timeout(handle.engine.deadlines.pids, task.pids(&handle.record))
            .await
            .map_err(|_| too_slow("the list of processes"))
            .and_then(|listed| listed);
        let processes = match listed {
            Ok(processes) if processes.is_empty() => return Ok(handle.ended_init()),
            // It ended while it was asked.
            Err(_) if handle.has_stopped() => return Ok(handle.ended_init()),
            listed => listed?,
        };
        let names = handle.execs.names();
        Ok(processes
            .into_iter()
            .map(|process| {
                let is_exec =
                    |(_, pid, process_id): &&(String, u32, Option<_>)| match &process.process_id {
                        Some(wanted) => process_id.as_ref() == Some(wanted),
                        None => *pid == process.pid,
                    };
                TaskPid {
                    pid: process.pid,
                    exec_id: names
                        .iter()
                        .find(is_exec)
                        .map(|(exec_id, ..)| exec_id.clone()),
                }
            })
            .collect())
    }

    async fn stats(&self, key: &TaskKey) -> TaskResult<ContainerStats> {
        let handle = self.tasks.handle(key)?;
        let task = handle.engine.task()?;
        timeout(handle.engine.deadlines.stats, task.stats(&handle.record))
            .await
            .map_err(|_| too_slow("the statistics"))?
    }

    async fn state(&self, key: &TaskKey, process: Option<&str>) -> TaskResult<TaskState> {
        let handle = self.tasks.handle(key)?;
        let container = handle.init.borrow().status;
        let view = handle.view(process)?.borrow().clone();
        // All processes of a frozen container are frozen with it.
        let status = match (process, container) {
            (Some(_), TaskStatus::Paused | TaskStatus::Pausing) => container,
            _ => view.status,
        };
        Ok(TaskState {
            status,
            pid: view.pid,
            bundle: handle.bundle.clone(),
            stdio: view.stdio,
            exit: view.exit,
        })
    }

    async fn checkpoint(&self, key: &TaskKey, request: TaskCheckpoint) -> TaskResult<()> {
        let request = Box::new(request);
        self.tasks
            .handle(key)?
            .ask(|reply| Request::Checkpoint { request, reply })
            .await
    }

    async fn task_recover_and_delete(&self, key: &TaskKey) -> TaskResult<TaskDeleted> {
        self.tasks.recover(key).await
    }

    fn live(&self) -> usize {
        self.tasks.live()
    }

    fn take_events(&self) -> Option<mpsc::Receiver<TaskEvent>> {
        self.tasks.take_events()
    }
}

fn too_slow(what: &str) -> TaskError {
    TaskError::DeadlineExceeded(format!("{what} took too long"))
}
