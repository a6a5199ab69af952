//! The transport against a small service in the same process.

mod hostile;
mod reconnect;
mod verbs;
mod waits;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{RuntimeTransportClient, serve_transport_connection};
use crate::*;

/// No test takes this long; a wait that does has failed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, step: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, step)
        .await
        .unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// Waits for a condition that another task brings about.
async fn until(what: &str, condition: impl Fn() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Answers every verb, remembers what it was asked, and holds waits and slow creates until told.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<String>>,
    /// Waits that are held now, and effects that were finished.
    held: AtomicUsize,
    finished: AtomicUsize,
    release: Notify,
    /// The largest `max_bytes` of each read.
    reads: Mutex<Vec<u32>>,
}

struct Holding<'a>(&'a AtomicUsize);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Fake {
    fn note(&self, verb: &str, request: &impl serde::Serialize) {
        let text = format!("{verb} {}", serde_json::to_string(request).unwrap());
        self.asked.lock().unwrap().push(text);
    }

    async fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        let _holding = Holding(&self.held);
        self.release.notified().await;
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

fn id(text: &str) -> ContainerId {
    ContainerId::new(text).unwrap()
}

fn target() -> ContainerTarget {
    ContainerTarget::exact(id("c"), Generation(41))
}

fn process() -> ProcessTarget {
    ProcessTarget {
        container: target(),
        process_id: ProcessId::new("p").unwrap(),
    }
}

fn context(operation: &str) -> OperationContext {
    OperationContext::new(OperationId::new(operation).unwrap())
}

fn wait(container: &str) -> WaitRequest {
    WaitRequest {
        target: ContainerTarget::current(id(container)),
        timeout_ms: None,
    }
}

fn bundle() -> OciBundle {
    OciBundle::from_json(
        "/bundle",
        r#"{"ociVersion":"1.3.0","process":{"terminal":false,"user":{"uid":0,"gid":0},"args":["/bin/true"],"cwd":"/"},"root":{"path":"rootfs","readonly":false}}"#,
    )
    .unwrap()
}

fn record() -> ContainerRecord {
    serde_json::from_value(json!({
        "state": {"ociVersion": "1.3.0", "id": "c", "status": "running", "pid": 7, "bundle": "/bundle"},
        "generation": 41,
        "driver": "native-linux",
        "isolation": "shared-host-kernel",
        "config_digest": "sha256:00",
    }))
    .unwrap()
}

fn info() -> RuntimeInfo {
    serde_json::from_value(json!({
        "oci": {"ociVersionMin": "1.0.0", "ociVersionMax": "1.3.0"},
        "drivers": {
            "schema_version": "a3s.oci.features.v1",
            "platform": "linux",
            "architecture": std::env::consts::ARCH,
            "drivers": [{
                "driver": "native-linux", "status": "available", "readiness": "supported",
                "isolation_classes": ["shared-host-kernel"], "evidence": {"fake": "native"},
            }],
        },
        "operations": ["features", "create"],
        "attachments": {"schemas": ["a3s.oci.attachments.v1"], "extensions": {"dev.a3s.bundle-handoff": [1]}},
    }))
    .unwrap()
}

fn process_record() -> ProcessRecord {
    ProcessRecord {
        target: process(),
        pid: Some(9001),
        terminal: false,
    }
}

fn chunks(bytes: usize) -> Vec<OutputChunk> {
    let chunk = |sequence, stream, data: Vec<u8>| OutputChunk {
        sequence,
        stream,
        eof: data.is_empty(),
        data,
    };
    let length = u64::try_from(bytes).unwrap();
    vec![
        chunk(length, OutputStream::Stdout, vec![0xff; bytes]),
        chunk(length + 3, OutputStream::Stderr, vec![1, 2, 3]),
        chunk(length + 4, OutputStream::Stdout, Vec::new()),
    ]
}

#[async_trait]
impl OciRuntimeService for Fake {
    async fn features(&self) -> Result<RuntimeInfo> {
        Ok(info())
    }
    async fn create(&self, request: CreateRequest) -> Result<ContainerRecord> {
        self.note("create", &request);
        if request.context.operation_id.as_str() == "slow" {
            self.hold().await;
        }
        self.finished.fetch_add(1, Ordering::SeqCst);
        Ok(record())
    }
    async fn state(&self, request: StateRequest) -> Result<ContainerRecord> {
        self.note("state", &request);
        match request.target.id.as_str() {
            "absent" => Err(Error::new(ErrorCode::NotFound, "no such container")),
            "panic" => panic!("a service that panics"),
            _ => Ok(record()),
        }
    }
    async fn start(&self, request: StartRequest) -> Result<ContainerRecord> {
        self.note("start", &request);
        Ok(record())
    }
    async fn kill(&self, request: KillRequest) -> Result<ContainerRecord> {
        self.note("kill", &request);
        Ok(record())
    }
    async fn delete(&self, request: DeleteRequest) -> Result<()> {
        self.note("delete", &request);
        Ok(())
    }
    async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
        self.note("exec", &request);
        Ok(process_record())
    }
    async fn wait(&self, request: WaitRequest) -> Result<ExitStatus> {
        self.note("wait", &request);
        if request.target.id.as_str() == "hold" {
            self.hold().await;
        }
        ExitStatus::signaled(9, true)
    }
    async fn list(&self, request: ListRequest) -> Result<Vec<ContainerRecord>> {
        self.note("list", &request);
        Ok(vec![record(), record()])
    }
    async fn pause(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        self.note("pause", &request);
        Ok(record())
    }
    async fn resume(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        self.note("resume", &request);
        Ok(record())
    }
    async fn update(&self, request: UpdateRequest) -> Result<ContainerRecord> {
        self.note("update", &request);
        Ok(record())
    }
    async fn processes(&self, request: ProcessesRequest) -> Result<Vec<ProcessRecord>> {
        self.note("processes", &request);
        Ok(vec![process_record()])
    }
    async fn stats(&self, request: StatsRequest) -> Result<ContainerStats> {
        self.note("stats", &request);
        Ok(ContainerStats {
            target: target(),
            timestamp_unix_ns: 1,
            cpu: CpuStats::default(),
            memory: MemoryStats::default(),
            process_count: 1,
            metrics: [(IO_READ_BYTES_METRIC.to_owned(), 5)].into(),
        })
    }
    async fn events(&self, request: EventsRequest) -> Result<EventBatch> {
        self.note("events", &request);
        Ok(EventBatch {
            events: vec![RuntimeEvent {
                sequence: 1,
                timestamp_unix_ns: 2,
                container: target(),
                process_id: Some(ProcessId::init()),
                kind: RuntimeEventKind::OutOfMemory,
                attributes: std::collections::BTreeMap::new(),
            }],
            next_sequence: 1,
        })
    }
    async fn read_output(&self, request: ReadOutputRequest) -> Result<Vec<OutputChunk>> {
        self.reads.lock().unwrap().push(request.max_bytes);
        self.note("read-output", &request);
        if request.wait_timeout_ms.is_some() {
            self.hold().await;
        }
        Ok(chunks(usize::try_from(request.after_sequence).unwrap()))
    }
    async fn write_stdin(&self, request: WriteStdinRequest) -> Result<()> {
        self.note("write-stdin", &request);
        Ok(())
    }
    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<()> {
        self.note("close-stdin", &request);
        Ok(())
    }
    async fn resize(&self, request: ResizeRequest) -> Result<()> {
        self.note("resize", &request);
        Ok(())
    }
    async fn signal_process(&self, request: SignalProcessRequest) -> Result<()> {
        self.note("signal-process", &request);
        Ok(())
    }
    async fn wait_process(&self, request: WaitProcessRequest) -> Result<ExitStatus> {
        self.note("wait-process", &request);
        Err(Error::new(ErrorCode::DeadlineExceeded, "still running").retryable(true))
    }
    async fn file(&self, request: FileRequest) -> Result<FileResponse> {
        self.note("file", &request);
        Ok(FileResponse {
            target: target(),
            size: 3,
            data: (request.op == FileOp::Download).then(|| "AQID".to_owned()),
        })
    }
    async fn filesystem(&self, request: FilesystemRequest) -> Result<FilesystemResponse> {
        self.note("filesystem", &request);
        Ok(FilesystemResponse {
            target: target(),
            entry: None,
            entries: Vec::new(),
        })
    }
    async fn checkpoint(&self, request: CheckpointRequest) -> Result<ContainerRecord> {
        self.note("checkpoint", &request);
        Ok(record())
    }
    async fn restore(&self, request: RestoreRequest) -> Result<ContainerRecord> {
        self.note("restore", &request);
        Ok(record())
    }
    async fn pids(&self, request: PidsRequest) -> Result<Vec<RuntimePid>> {
        self.note("pids", &request);
        Ok(vec![RuntimePid {
            pid: 7,
            process_id: Some(ProcessId::init()),
        }])
    }
    async fn delete_process(&self, request: DeleteProcessRequest) -> Result<()> {
        self.note("delete-process", &request);
        Ok(())
    }
}

/// A client and a served fake, joined by a pipe in memory.
async fn pair() -> (Arc<Fake>, RuntimeTransportClient, JoinHandle<Result<()>>) {
    let fake = Arc::new(Fake::default());
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service: Arc<dyn OciRuntimeService> = Arc::<Fake>::clone(&fake);
    let server = tokio::spawn(serve_transport_connection(service, far));
    let client = RuntimeTransportClient::from_io(near).await.unwrap();
    (fake, client, server)
}
