//! containerd's task service, called directly: for what `ctr` cannot say, such as closing standard
//! input before the start.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use containerd_client::Client;
use containerd_client::services::v1::snapshots::MountsRequest;
use containerd_client::services::v1::{
    CheckpointTaskRequest, CloseIoRequest, CreateTaskRequest, DeleteProcessRequest, DeleteResponse,
    DeleteTaskRequest, ExecProcessRequest, GetRequest, KillRequest, ListPidsRequest,
    MetricsRequest, PauseTaskRequest, ResizePtyRequest, ResumeTaskRequest, StartRequest,
    UpdateTaskRequest, WaitRequest, WaitResponse,
};
use containerd_client::tonic::{Code, Request, Response, Status};
use containerd_client::types::Mount;
use containerd_client::types::v1::Process;
use prost_types::Any;
use tokio::runtime::Runtime;

/// Limit of one call that does not say otherwise.
const CALL_LIMIT: Duration = Duration::from_secs(30);
const TYPE_URL_PROCESS: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
const TYPE_URL_RESOURCES: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";

/// Paths of a task's fifos; an empty one is none.
#[derive(Debug, Clone, Default)]
pub struct TaskIo {
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
    pub terminal: bool,
}

/// A blocking client of containerd's own API.
#[derive(Clone)]
pub struct Api {
    runtime: Arc<Runtime>,
    client: Arc<Client>,
    namespace: &'static str,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("namespace", &self.namespace)
            .finish()
    }
}

type Called<T> = std::result::Result<T, Status>;

impl Api {
    pub fn connect(socket: impl AsRef<Path>, namespace: &'static str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let socket: PathBuf = socket.as_ref().to_owned();
        let client = runtime
            .block_on(Client::from_path(&socket))
            .context("connect to containerd")?;
        Ok(Self {
            runtime: Arc::new(runtime),
            client: Arc::new(client),
            namespace,
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Ok(value) = self.namespace.parse() {
            request.metadata_mut().insert("containerd-namespace", value);
        }
        request
    }

    fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Called<Response<T>>>,
    ) -> Called<T> {
        self.runtime.block_on(async {
            match tokio::time::timeout(limit, call).await {
                Ok(answer) => answer.map(Response::into_inner),
                Err(_) => Err(Status::new(
                    Code::DeadlineExceeded,
                    format!("no answer within {limit:?}"),
                )),
            }
        })
    }

    fn mounts(&self, key: &str) -> Called<Vec<Mount>> {
        let request = self.request(MountsRequest {
            snapshotter: "overlayfs".into(),
            key: key.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.snapshots().mounts(request).await
        })
        .map(|m| m.mounts)
    }

    /// Task Create for a container that `ctr container create` made; returns the pid.
    pub fn create(&self, id: &str, io: &TaskIo) -> Called<u32> {
        self.create_with(id, io, None, self.mounts(id)?)
    }

    pub fn create_with(
        &self,
        id: &str,
        io: &TaskIo,
        options: Option<Any>,
        rootfs: Vec<Mount>,
    ) -> Called<u32> {
        let request = self.request(CreateTaskRequest {
            container_id: id.into(),
            rootfs,
            stdin: io.stdin.clone(),
            stdout: io.stdout.clone(),
            stderr: io.stderr.clone(),
            terminal: io.terminal,
            options,
            ..Default::default()
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().create(request).await
        })
        .map(|r| r.pid)
    }

    /// Task Start of the init process (`exec_id` empty) or of an exec.
    pub fn start(&self, id: &str, exec_id: &str) -> Called<u32> {
        let request = self.request(StartRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().start(request).await
        })
        .map(|r| r.pid)
    }

    /// Task Exec; `process` is an OCI process as JSON.
    pub fn exec(
        &self,
        id: &str,
        exec_id: &str,
        process: &serde_json::Value,
        io: &TaskIo,
    ) -> Called<()> {
        let request = self.request(ExecProcessRequest {
            container_id: id.into(),
            stdin: io.stdin.clone(),
            stdout: io.stdout.clone(),
            stderr: io.stderr.clone(),
            terminal: io.terminal,
            spec: Some(Any {
                type_url: TYPE_URL_PROCESS.into(),
                value: process.to_string().into_bytes(),
            }),
            exec_id: exec_id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().exec(request).await
        })
        .map(drop)
    }

    pub fn wait(&self, id: &str, exec_id: &str, limit: Duration) -> Called<WaitResponse> {
        let request = self.request(WaitRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
        });
        self.within(limit, async { self.client.tasks().wait(request).await })
    }

    pub fn kill(&self, id: &str, exec_id: &str, signal: u32, all: bool) -> Called<()> {
        let request = self.request(KillRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
            signal,
            all,
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().kill(request).await
        })
        .map(drop)
    }

    pub fn delete(&self, id: &str) -> Called<DeleteResponse> {
        let request = self.request(DeleteTaskRequest {
            container_id: id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().delete(request).await
        })
    }

    pub fn delete_exec(&self, id: &str, exec_id: &str) -> Called<DeleteResponse> {
        let request = self.request(DeleteProcessRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().delete_process(request).await
        })
    }

    pub fn close_stdin(&self, id: &str, exec_id: &str) -> Called<()> {
        let request = self.request(CloseIoRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
            stdin: true,
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().close_io(request).await
        })
        .map(drop)
    }

    pub fn resize(&self, id: &str, exec_id: &str, width: u32, height: u32) -> Called<()> {
        let request = self.request(ResizePtyRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
            width,
            height,
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().resize_pty(request).await
        })
        .map(drop)
    }

    pub fn pause(&self, id: &str) -> Called<()> {
        let request = self.request(PauseTaskRequest {
            container_id: id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().pause(request).await
        })
        .map(drop)
    }

    pub fn resume(&self, id: &str) -> Called<()> {
        let request = self.request(ResumeTaskRequest {
            container_id: id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().resume(request).await
        })
        .map(drop)
    }

    /// Task Update; `resources` is OCI LinuxResources as JSON.
    pub fn update(&self, id: &str, resources: &serde_json::Value) -> Called<()> {
        let request = self.request(UpdateTaskRequest {
            container_id: id.into(),
            resources: Some(Any {
                type_url: TYPE_URL_RESOURCES.into(),
                value: resources.to_string().into_bytes(),
            }),
            ..Default::default()
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().update(request).await
        })
        .map(drop)
    }

    /// Task Checkpoint with the options that the shim has by default.
    pub fn checkpoint(&self, id: &str) -> Called<()> {
        let request = self.request(CheckpointTaskRequest {
            container_id: id.into(),
            ..Default::default()
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().checkpoint(request).await
        })
        .map(drop)
    }

    /// Task State through containerd.
    pub fn state(&self, id: &str, exec_id: &str) -> Called<Process> {
        let request = self.request(GetRequest {
            container_id: id.into(),
            exec_id: exec_id.into(),
        });
        self.within(CALL_LIMIT, async { self.client.tasks().get(request).await })?
            .process
            .ok_or_else(|| Status::internal("an answer without a process"))
    }

    pub fn pids(&self, id: &str) -> Called<Vec<u32>> {
        let request = self.request(ListPidsRequest {
            container_id: id.into(),
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().list_pids(request).await
        })
        .map(|list| list.processes.into_iter().map(|p| p.pid).collect())
    }

    /// Type URL and size of the metrics of one task.
    pub fn metrics(&self, id: &str) -> Called<Any> {
        let request = self.request(MetricsRequest {
            filters: vec![format!("id=={id}")],
        });
        self.within(CALL_LIMIT, async {
            self.client.tasks().metrics(request).await
        })?
        .metrics
        .into_iter()
        .find(|metric| metric.id == id)
        .and_then(|metric| metric.data)
        .ok_or_else(|| Status::not_found(format!("no metrics of {id}")))
    }
}
