//! A runtime service in memory: processes are values, and every verb can be held at its door.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Mutex;

use a3sbox_core::ExecutionManagerResult;
use a3sbox_oci::oci_spec::runtime::{ContainerState, Spec, StateBuilder};
use a3sbox_oci::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, ContainerRecord,
    ContainerTarget, CreateRequest, DeleteMode, DeleteProcessRequest, DeleteRequest, DriverKind,
    Error, ErrorCode, EventBatch, EventsRequest, ExecRequest, ExitStatus, Generation,
    IsolationClass, KillRequest, OciBundle, OciRuntimeService, PAUSED_STATE_ANNOTATION,
    PidsRequest, ProcessId, ProcessRecord, ProcessTarget, ResizeRequest, Result, RuntimeEvent,
    RuntimeEventKind, RuntimeInfo, RuntimePid, SignalProcessRequest, StartRequest, StateRequest,
    TerminalSize, UpdateRequest, WaitProcessRequest, WaitRequest, async_trait,
};
use tokio::sync::watch;

use crate::{BoxRecord, OciBundlePreparationContext, OciBundleProvider, OciPreparedExecution};

/// The end of a process, as the double tells it.
#[derive(Debug, Clone)]
pub(super) enum End {
    Status(ExitStatus),
    /// Nobody saw it.
    Lost,
}

#[derive(Debug)]
struct Container {
    digest: String,
    attachments: String,
    generation: u64,
    pid: u32,
    status: ContainerState,
    paused: bool,
    processes: HashMap<ProcessId, watch::Sender<Option<End>>>,
    pids: HashMap<ProcessId, u32>,
    /// Sequences of out-of-memory events.
    oom: Vec<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    containers: HashMap<String, Container>,
    /// Containers by the order of their creation.
    created: Vec<String>,
    generations: u64,
    pids: u32,
    sequence: u64,
    log: Vec<String>,
    failing: HashMap<&'static str, Error>,
    trapped: HashSet<i32>,
    /// Verbs whose held callers never come through the door.
    abandoned: HashSet<&'static str>,
    sizes: Vec<TerminalSize>,
}

#[derive(Debug)]
pub(super) struct Double {
    inner: Mutex<Inner>,
    held: watch::Sender<HashSet<&'static str>>,
    entered: watch::Sender<HashMap<&'static str, usize>>,
    oom_told: watch::Sender<u64>,
}

impl Default for Double {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            held: watch::Sender::new(HashSet::new()),
            entered: watch::Sender::new(HashMap::new()),
            oom_told: watch::Sender::new(0),
        }
    }
}

impl Double {
    /// Keeps every call of a verb at its door until [`Self::let_go`].
    pub(super) fn hold(&self, verb: &'static str) {
        self.held.send_modify(|held| {
            held.insert(verb);
        });
    }

    pub(super) fn let_go(&self, verb: &'static str) {
        self.held.send_modify(|held| {
            held.remove(verb);
        });
    }

    /// As [`Self::let_go`] for whoever comes from now on; those at the door stay there for ever, as the
    /// calls of a dead owner do.
    pub(super) fn abandon(&self, verb: &'static str) {
        self.lock().abandoned.insert(verb);
        self.let_go(verb);
    }

    /// Waits until a verb was called so often.
    pub(super) async fn entered(&self, verb: &'static str, times: usize) {
        let mut entered = self.entered.subscribe();
        entered
            .wait_for(|calls| calls.get(verb).copied().unwrap_or(0) >= times)
            .await
            .unwrap();
    }

    /// The next call of a verb fails without an effect.
    pub(super) fn fail(&self, verb: &'static str, code: ErrorCode, text: &str) {
        self.lock().failing.insert(verb, Error::new(code, text));
    }

    /// The signal is handled by the processes and ends nothing.
    pub(super) fn trap(&self, signal: i32) {
        self.lock().trapped.insert(signal);
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    pub(super) fn sizes(&self) -> Vec<TerminalSize> {
        self.lock().sizes.clone()
    }

    pub(super) fn containers(&self) -> usize {
        self.lock().containers.len()
    }

    /// Ends the init process of the latest container.
    pub(super) fn end_init(&self, end: End) {
        let mut inner = self.lock();
        let id = inner.created.last().unwrap().clone();
        let container = inner.containers.get_mut(&id).unwrap();
        container.status = ContainerState::Stopped;
        let _ = container.processes[&ProcessId::init()].send_replace(Some(end));
    }

    /// Ends the process with this pid.
    pub(super) fn end_pid(&self, pid: u32, end: End) {
        let inner = self.lock();
        for container in inner.containers.values() {
            for (process, owned) in &container.pids {
                if *owned == pid {
                    let _ = container.processes[process].send_replace(Some(end.clone()));
                }
            }
        }
    }

    /// An out-of-memory kill in the latest container.
    pub(super) fn run_out_of_memory(&self) {
        let mut inner = self.lock();
        inner.sequence += 1;
        let sequence = inner.sequence;
        let id = inner.created.last().unwrap().clone();
        inner.containers.get_mut(&id).unwrap().oom.push(sequence);
        self.oom_told.send_replace(sequence);
    }

    /// The runtime forgets a container, as after a reboot.
    pub(super) fn lose(&self) {
        self.lock().containers.clear();
    }

    /// Another configuration is found under the latest container's name.
    pub(super) fn drift(&self, digest: &str) {
        self.latest(|container| digest.clone_into(&mut container.digest));
    }

    /// The latest container was deleted and made again.
    pub(super) fn replace(&self) {
        self.latest(|container| container.generation += 100);
    }

    fn latest(&self, change: impl FnOnce(&mut Container)) {
        let mut inner = self.lock();
        let id = inner.created.last().unwrap().clone();
        change(inner.containers.get_mut(&id).unwrap());
    }

    pub(super) fn is_paused(&self) -> bool {
        let inner = self.lock();
        inner.containers[inner.created.last().unwrap()].paused
    }

    async fn enter(&self, verb: &'static str) -> Result<()> {
        self.lock().log.push(verb.to_owned());
        self.entered
            .send_modify(|calls| *calls.entry(verb).or_default() += 1);
        let mut held = self.held.subscribe();
        let was_held = held.borrow().contains(verb);
        held.wait_for(|held| !held.contains(verb)).await.unwrap();
        if was_held && self.lock().abandoned.contains(verb) {
            std::future::pending::<()>().await;
        }
        self.lock().failing.remove(verb).map_or(Ok(()), Err)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    fn find(&mut self, target: &ContainerTarget) -> Result<&mut Container> {
        let container = self
            .containers
            .get_mut(target.id.as_str())
            .ok_or_else(|| Error::new(ErrorCode::NotFound, "container does not exist"))?;
        if target
            .generation
            .is_some_and(|asked| asked.0 != container.generation)
        {
            return Err(Error::new(
                ErrorCode::FailedPrecondition,
                "another generation",
            ));
        }
        Ok(container)
    }
}

fn record(id: &str, container: &Container) -> ContainerRecord {
    let mut state = StateBuilder::default()
        .version("1.3.0")
        .id(id)
        .status(container.status)
        .bundle(PathBuf::from("/bundle"));
    if container.status != ContainerState::Stopped {
        state = state.pid(i32::try_from(container.pid).unwrap());
    }
    if container.paused {
        state = state.annotations(HashMap::from([(
            PAUSED_STATE_ANNOTATION.to_owned(),
            "true".to_owned(),
        )]));
    }
    ContainerRecord {
        state: state.build().unwrap(),
        generation: Generation(container.generation),
        driver: DriverKind::NativeLinux,
        isolation: IsolationClass::SharedHostKernel,
        config_digest: container.digest.clone(),
        attachments_digest: Some(container.attachments.clone()),
    }
}

async fn ended(mut end: watch::Receiver<Option<End>>) -> Result<ExitStatus> {
    match end.wait_for(Option::is_some).await {
        Ok(end) => match end.as_ref() {
            Some(End::Status(status)) => Ok(status.clone()),
            _ => Err(Error::new(
                ErrorCode::FailedPrecondition,
                "its owner was lost",
            )),
        },
        Err(_) => Err(Error::new(ErrorCode::NotFound, "container does not exist")),
    }
}

#[async_trait]
impl OciRuntimeService for Double {
    async fn features(&self) -> Result<RuntimeInfo> {
        Ok(serde_json::from_value(serde_json::json!({
            "oci": { "ociVersionMin": "1.0.0", "ociVersionMax": "1.3.0" },
            "drivers": {
                "schema_version": "a3s.oci.features.v1", "platform": "linux",
                "architecture": std::env::consts::ARCH,
                "drivers": [{
                    "driver": "native-linux", "status": "available", "readiness": "supported",
                    "isolation_classes": ["shared-host-kernel"], "evidence": {}
                }]
            },
            "operations": ["create", "state", "start", "kill", "delete", "wait", "exec", "update"],
            "attachments": { "schemas": ["a3s.oci.attachments.v1"], "extensions": {} }
        }))
        .unwrap())
    }

    async fn create(&self, request: CreateRequest) -> Result<ContainerRecord> {
        self.enter("create").await?;
        let mut inner = self.lock();
        let id = request.id.as_str().to_owned();
        if inner.containers.contains_key(&id) {
            return Err(Error::new(ErrorCode::AlreadyExists, "container exists"));
        }
        inner.generations += 1;
        inner.pids += 1;
        // No process has a pid this high, so it has no start time either.
        let pid = 1_000_000_000 + inner.pids;
        let container = Container {
            digest: request.bundle.config_digest().to_owned(),
            attachments: request.attachments.digest()?,
            generation: inner.generations,
            pid,
            status: ContainerState::Created,
            paused: false,
            processes: HashMap::from([(ProcessId::init(), watch::Sender::new(None))]),
            pids: HashMap::from([(ProcessId::init(), pid)]),
            oom: Vec::new(),
        };
        let answer = record(&id, &container);
        inner.created.push(id.clone());
        inner.containers.insert(id, container);
        Ok(answer)
    }

    async fn state(&self, request: StateRequest) -> Result<ContainerRecord> {
        self.enter("state").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        Ok(record(request.target.id.as_str(), container))
    }

    async fn start(&self, request: StartRequest) -> Result<ContainerRecord> {
        self.enter("start").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        if container.status == ContainerState::Created {
            container.status = ContainerState::Running;
        }
        Ok(record(request.target.id.as_str(), container))
    }

    async fn kill(&self, request: KillRequest) -> Result<ContainerRecord> {
        self.enter("kill").await?;
        let mut inner = self.lock();
        inner
            .log
            .push(format!("kill {} all={}", request.signal.get(), request.all));
        let is_trapped = inner.trapped.contains(&request.signal.get());
        let container = inner.find(&request.target)?;
        if container.status == ContainerState::Stopped && !request.all {
            return Err(Error::new(
                ErrorCode::FailedPrecondition,
                "container not running",
            ));
        }
        if !is_trapped {
            container.status = ContainerState::Stopped;
            let end = End::Status(ExitStatus::signaled(request.signal.get(), false)?);
            for (process, sender) in &container.processes {
                let is_live = sender.borrow().is_none();
                if is_live && (request.all || process.is_init()) {
                    let _ = sender.send_replace(Some(end.clone()));
                }
            }
        }
        Ok(record(request.target.id.as_str(), container))
    }

    async fn delete(&self, request: DeleteRequest) -> Result<()> {
        self.enter("delete").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        if container.status != ContainerState::Stopped && request.mode == DeleteMode::StoppedOnly {
            return Err(Error::new(
                ErrorCode::FailedPrecondition,
                "container is running",
            ));
        }
        inner.containers.remove(request.target.id.as_str());
        Ok(())
    }

    async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
        self.enter("exec").await?;
        let mut inner = self.lock();
        inner.pids += 1;
        let pid = 1_000_000_000 + inner.pids;
        inner.sizes.extend(request.io.terminal_size);
        inner.log.push(format!("exec {}", request.process_id));
        let container = inner.find(&request.container)?;
        let id = request.process_id.clone();
        if container.processes.contains_key(&id) {
            return Err(Error::new(ErrorCode::Conflict, "different request"));
        }
        container
            .processes
            .insert(id.clone(), watch::Sender::new(None));
        container.pids.insert(id.clone(), pid);
        Ok(ProcessRecord {
            target: ProcessTarget {
                container: request.container,
                process_id: id,
            },
            pid: Some(pid),
            terminal: request.io.terminal_size.is_some(),
        })
    }

    async fn wait(&self, request: WaitRequest) -> Result<ExitStatus> {
        self.enter("wait").await?;
        let end = self.lock().find(&request.target)?.processes[&ProcessId::init()].subscribe();
        ended(end).await
    }

    async fn wait_process(&self, request: WaitProcessRequest) -> Result<ExitStatus> {
        self.enter("wait-process").await?;
        let end = {
            let mut inner = self.lock();
            let container = inner.find(&request.process.container)?;
            let process = container.processes.get(&request.process.process_id);
            process
                .ok_or_else(|| Error::new(ErrorCode::NotFound, "no such process"))?
                .subscribe()
        };
        ended(end).await
    }

    async fn signal_process(&self, request: SignalProcessRequest) -> Result<()> {
        self.enter("signal-process").await?;
        let mut inner = self.lock();
        inner.log.push(format!("signal {}", request.signal.get()));
        let container = inner.find(&request.process.container)?;
        let process = container
            .processes
            .get(&request.process.process_id)
            .ok_or_else(|| Error::new(ErrorCode::NotFound, "no such process"))?;
        let end = End::Status(ExitStatus::signaled(request.signal.get(), false)?);
        let _ = process.send_replace(Some(end));
        Ok(())
    }

    async fn delete_process(&self, request: DeleteProcessRequest) -> Result<()> {
        self.enter("delete-process").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.process.container)?;
        container.processes.remove(&request.process.process_id);
        container.pids.remove(&request.process.process_id);
        Ok(())
    }

    async fn pause(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        self.enter("pause").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        container.paused = true;
        Ok(record(request.target.id.as_str(), container))
    }

    async fn resume(&self, request: ContainerOperationRequest) -> Result<ContainerRecord> {
        self.enter("resume").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        container.paused = false;
        Ok(record(request.target.id.as_str(), container))
    }

    async fn update(&self, request: UpdateRequest) -> Result<ContainerRecord> {
        self.enter("update").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        Ok(record(request.target.id.as_str(), container))
    }

    async fn resize(&self, request: ResizeRequest) -> Result<()> {
        self.enter("resize").await?;
        self.lock().sizes.push(request.size);
        Ok(())
    }

    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<()> {
        self.enter("close-stdin").await?;
        let is_init = request.process.process_id.is_init();
        self.lock().log.push(format!("close-stdin init={is_init}"));
        Ok(())
    }

    async fn checkpoint(&self, request: CheckpointRequest) -> Result<ContainerRecord> {
        self.enter("checkpoint").await?;
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        Ok(record(request.target.id.as_str(), container))
    }

    async fn pids(&self, request: PidsRequest) -> Result<Vec<RuntimePid>> {
        let mut inner = self.lock();
        let container = inner.find(&request.target)?;
        Ok(container
            .pids
            .iter()
            .map(|(process, pid)| RuntimePid {
                pid: *pid,
                process_id: Some(process.clone()),
            })
            .collect())
    }

    async fn events(&self, request: EventsRequest) -> Result<EventBatch> {
        let target = request.container.clone().unwrap();
        let mut told = self.oom_told.subscribe();
        loop {
            told.borrow_and_update();
            let events: Vec<RuntimeEvent> = {
                let mut inner = self.lock();
                let container = inner.find(&target)?;
                let new = container
                    .oom
                    .iter()
                    .filter(|seq| **seq > request.after_sequence);
                new.map(|sequence| RuntimeEvent {
                    sequence: *sequence,
                    timestamp_unix_ns: 1,
                    container: target.clone(),
                    process_id: None,
                    kind: RuntimeEventKind::OutOfMemory,
                    attributes: std::collections::BTreeMap::new(),
                })
                .collect()
            };
            if !events.is_empty() || request.wait_timeout_ms == Some(0) {
                let next = events
                    .last()
                    .map_or(request.after_sequence, |event| event.sequence);
                return Ok(EventBatch {
                    events,
                    next_sequence: next,
                });
            }
            let _ = told.changed().await;
        }
    }
}

/// Prepares the smallest bundle there is, and counts.
#[derive(Debug, Default)]
pub(super) struct Provider {
    prepared: Mutex<HashSet<String>>,
}

impl Provider {
    pub(super) fn prepared(&self) -> usize {
        self.prepared.lock().unwrap().len()
    }
}

#[async_trait]
impl OciBundleProvider for Provider {
    async fn prepare(
        &self,
        record: &BoxRecord,
        _context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        let task = record
            .managed_execution
            .as_ref()
            .unwrap()
            .task
            .as_ref()
            .unwrap();
        assert_eq!(
            task.rootfs.len(),
            1,
            "the provider finds the rootfs in the record"
        );
        self.prepared.lock().unwrap().insert(record.id.clone());
        let spec: Spec = serde_json::from_value(serde_json::json!({
            "ociVersion": "1.3.0",
            "process": {
                "terminal": false, "user": { "uid": 0, "gid": 0 },
                "args": ["/bin/true"], "cwd": "/"
            },
            "root": { "path": "rootfs", "readonly": false },
            "linux": { "namespaces": [{ "type": "pid" }] }
        }))
        .unwrap();
        let bundle = OciBundle::from_spec(record.box_dir.join("bundle"), spec).unwrap();
        OciPreparedExecution::new(bundle, record.console_log.clone())
    }

    async fn cleanup(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        self.prepared.lock().unwrap().remove(&record.id);
        Ok(())
    }
}

pub(super) fn exited(code: i32) -> End {
    End::Status(ExitStatus::exited(code).unwrap())
}
