//! containerd's Task service on the task face of the execution manager: convert, call, convert.
//!
//! One file per verb. Every call is marked as in flight, runs in a span of its own, and is logged once
//! when it fails. The same service answers under the names of version 2 and 3.

mod checkpoint;
mod connect;
mod create;
mod delete;
mod exec;
mod io;
mod kill;
mod pause;
mod pids;
mod shutdown;
mod start;
mod state;
mod stats;
mod update;
mod wait;

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_execution::task::{TaskKey, TaskManager};
use async_trait::async_trait;
use containerd_shim_protos::api::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest,
    PauseRequest, PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest,
    StartRequest, StartResponse, StateRequest, StateResponse, StatsRequest, StatsResponse,
    UpdateTaskRequest, WaitRequest, WaitResponse,
};
use containerd_shim_protos::shim_async::{Task, create_task};
use tracing::{Instrument, debug, info_span, warn};
use ttrpc::r#async::{Service, TtrpcContext};
use ttrpc::{Code, Error, get_status};

use crate::lifecycle::Lifecycle;

/// Names under which the one service is registered: the messages are the same, only the name moved.
const SERVICE_NAMES: [&str; 2] = ["containerd.task.v2.Task", "containerd.task.v3.Task"];

/// The verb that brings a task.
const CREATE: &str = "create";

/// What every verb needs.
pub(crate) struct TaskService {
    pub(crate) manager: Arc<dyn TaskManager>,
    pub(crate) lifecycle: Lifecycle,
    /// The namespace of this shim: every container of it lies there.
    pub(crate) namespace: String,
    /// State root that this shim was started with.
    pub(crate) state_root: PathBuf,
    /// Folder of the engine's state when the options name none.
    pub(crate) engine_root: PathBuf,
}

impl TaskService {
    fn key(&self, container_id: &str) -> TaskKey {
        TaskKey {
            namespace: self.namespace.clone(),
            container_id: container_id.to_owned(),
        }
    }

    /// Runs one verb: counted, in its span, logged once when it fails.
    async fn call<T>(
        &self,
        verb: &'static str,
        container_id: &str,
        exec_id: &str,
        work: impl Future<Output = ttrpc::Result<T>>,
    ) -> ttrpc::Result<T> {
        let Some(_call) = self.lifecycle.enter(verb == CREATE) else {
            return Err(Error::RpcStatus(get_status(
                Code::UNAVAILABLE,
                "the shim is shutting down",
            )));
        };
        let span = info_span!(
            "task",
            verb,
            namespace = self.namespace.as_str(),
            container_id,
            exec_id = tracing::field::Empty,
        );
        if !exec_id.is_empty() {
            span.record("exec_id", exec_id);
        }
        async {
            let result = work.await;
            match &result {
                Ok(_) => debug!("done"),
                // Asking for what is gone is how containerd finds out; it is no fault.
                Err(Error::RpcStatus(status)) if status.code() == Code::NOT_FOUND => {
                    debug!(reason = status.message.as_str(), "not found");
                }
                Err(Error::RpcStatus(status)) => {
                    warn!(code = ?status.code(), reason = status.message.as_str(), "call failed");
                }
                Err(error) => warn!(reason = %error, "call failed"),
            }
            result
        }
        .instrument(span)
        .await
    }
}

/// The service under both of its names, ready to be registered.
pub(crate) fn services(service: TaskService) -> HashMap<String, Service> {
    let service = Arc::new(service);
    let mut services = HashMap::new();
    for name in SERVICE_NAMES {
        // The generated map has one entry, keyed by the version that its protocol file had.
        for handlers in
            create_task(Arc::clone(&service) as Arc<dyn Task + Send + Sync>).into_values()
        {
            services.insert(name.to_owned(), handlers);
        }
    }
    services
}

#[async_trait]
impl Task for TaskService {
    async fn create(
        &self,
        _: &TtrpcContext,
        request: CreateTaskRequest,
    ) -> ttrpc::Result<CreateTaskResponse> {
        let id = request.id.clone();
        self.call(CREATE, &id, "", self.create_task(request)).await
    }

    async fn start(&self, _: &TtrpcContext, request: StartRequest) -> ttrpc::Result<StartResponse> {
        self.call(
            "start",
            &request.id,
            &request.exec_id,
            self.start_process(&request),
        )
        .await
    }

    async fn exec(&self, _: &TtrpcContext, request: ExecProcessRequest) -> ttrpc::Result<Empty> {
        self.call(
            "exec",
            &request.id,
            &request.exec_id,
            self.add_exec(&request),
        )
        .await
    }

    async fn kill(&self, _: &TtrpcContext, request: KillRequest) -> ttrpc::Result<Empty> {
        self.call(
            "kill",
            &request.id,
            &request.exec_id,
            self.kill_process(&request),
        )
        .await
    }

    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> ttrpc::Result<WaitResponse> {
        self.call(
            "wait",
            &request.id,
            &request.exec_id,
            self.wait_process(&request),
        )
        .await
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: DeleteRequest,
    ) -> ttrpc::Result<DeleteResponse> {
        self.call(
            "delete",
            &request.id,
            &request.exec_id,
            self.delete_process(&request),
        )
        .await
    }

    async fn pause(&self, _: &TtrpcContext, request: PauseRequest) -> ttrpc::Result<Empty> {
        self.call("pause", &request.id, "", self.pause_task(&request))
            .await
    }

    async fn resume(&self, _: &TtrpcContext, request: ResumeRequest) -> ttrpc::Result<Empty> {
        self.call("resume", &request.id, "", self.resume_task(&request))
            .await
    }

    async fn update(&self, _: &TtrpcContext, request: UpdateTaskRequest) -> ttrpc::Result<Empty> {
        self.call("update", &request.id, "", self.update_task(&request))
            .await
    }

    async fn state(&self, _: &TtrpcContext, request: StateRequest) -> ttrpc::Result<StateResponse> {
        self.call(
            "state",
            &request.id,
            &request.exec_id,
            self.state_of(&request),
        )
        .await
    }

    async fn pids(&self, _: &TtrpcContext, request: PidsRequest) -> ttrpc::Result<PidsResponse> {
        self.call("pids", &request.id, "", self.list_pids(&request))
            .await
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> ttrpc::Result<StatsResponse> {
        self.call("stats", &request.id, "", self.read_stats(&request))
            .await
    }

    async fn resize_pty(
        &self,
        _: &TtrpcContext,
        request: ResizePtyRequest,
    ) -> ttrpc::Result<Empty> {
        self.call(
            "resize-pty",
            &request.id,
            &request.exec_id,
            self.resize(&request),
        )
        .await
    }

    async fn close_io(&self, _: &TtrpcContext, request: CloseIORequest) -> ttrpc::Result<Empty> {
        self.call(
            "close-io",
            &request.id,
            &request.exec_id,
            self.close_stream(&request),
        )
        .await
    }

    async fn checkpoint(
        &self,
        _: &TtrpcContext,
        request: CheckpointTaskRequest,
    ) -> ttrpc::Result<Empty> {
        self.call(
            "checkpoint",
            &request.id,
            "",
            self.checkpoint_task(&request),
        )
        .await
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: ConnectRequest,
    ) -> ttrpc::Result<ConnectResponse> {
        self.call("connect", &request.id, "", self.connect_task(&request))
            .await
    }

    async fn shutdown(&self, _: &TtrpcContext, request: ShutdownRequest) -> ttrpc::Result<Empty> {
        self.call("shutdown", &request.id, "", self.shut_down())
            .await
    }
}
