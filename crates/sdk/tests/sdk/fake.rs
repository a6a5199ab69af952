//! A manager in memory that writes down what it is asked, and can be told to answer otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use a3sbox_core::log::LogEntry;
use a3sbox_core::pty::PtyRequest;
use a3sbox_core::*;
use a3sbox_sdk::{A3sBoxClient, A3sBoxPaths};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;

/// One call, as the manager saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    Create(String, serde_json::Value),
    Start(String, u64),
    CreateAndStart(String, serde_json::Value),
    Inspect,
    ReadLogs(u64),
    ListProcesses(u64),
    Stats(u64),
    Events(u64, ExecutionEventsRequest),
    UpdateResources(u64, String, ExecutionResourceUpdate),
    Snapshot(u64, String),
    SnapshotSize(String),
    DeleteSnapshot(String),
    Pause(u64, bool),
    Resume(u64),
    Restart(u64, String, RestartExecutionOptions),
    Kill(u64),
    Remove(u64),
    Reconcile(String),
    Execute(u64, ExecRequest),
    Transfer(u64, FileRequest),
    Filesystem(u64, FilesystemRequest),
}

/// One execution at a time, as a real manager would keep it.
#[derive(Debug)]
struct Execution {
    id: ExecutionId,
    generation: ExecutionGeneration,
    state: ExecutionState,
    config: BoxConfig,
    removed: bool,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    created: u32,
    execution: Option<Execution>,
    files: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<String, u64>,
    restarts: BTreeMap<String, ExecutionGeneration>,
    log: Vec<LogEntry>,
    error: Option<fn(&ExecutionId) -> ExecutionManagerError>,
    exec_output: Option<ExecOutput>,
    file_response: Option<FileResponse>,
    filesystem_response: Option<FilesystemResponse>,
    batches: Vec<ExecutionEventBatch>,
    remove_on_kill: bool,
    remove_answers: bool,
}

#[derive(Default)]
pub(crate) struct Fake {
    state: Mutex<State>,
}

pub(crate) const SIZE: u64 = 4096;

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        let fake = Self::default();
        fake.state.lock().unwrap().remove_answers = true;
        Arc::new(fake)
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.lock().unwrap().calls.clone()
    }

    /// The calls so far, which are forgotten.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    pub(crate) fn the_request(&self) -> CreateExecutionRequest {
        let created: Vec<_> = self
            .calls()
            .into_iter()
            .filter_map(|call| match call {
                Call::CreateAndStart(_, request) => Some(request),
                Call::Create(..) | Call::Start(..) => panic!("create or start apart"),
                _ => None,
            })
            .collect();
        assert_eq!(created.len(), 1, "one creation");
        serde_json::from_value(created[0].clone()).unwrap()
    }

    /// Every call fails from now on, until it is told otherwise.
    pub(crate) fn fail(&self, error: fn(&ExecutionId) -> ExecutionManagerError) {
        self.state.lock().unwrap().error = Some(error);
    }

    pub(crate) fn answer(&self, output: ExecOutput) {
        self.state.lock().unwrap().exec_output = Some(output);
    }

    pub(crate) fn answer_file(&self, response: FileResponse) {
        self.state.lock().unwrap().file_response = Some(response);
    }

    pub(crate) fn answer_filesystem(&self, response: FilesystemResponse) {
        self.state.lock().unwrap().filesystem_response = Some(response);
    }

    pub(crate) fn answer_events(&self, batches: Vec<ExecutionEventBatch>) {
        self.state.lock().unwrap().batches = batches;
    }

    pub(crate) fn put_file(&self, path: &str, data: &[u8]) {
        self.state
            .lock()
            .unwrap()
            .files
            .insert(path.into(), data.to_vec());
    }

    /// As a manager does with `auto_remove`.
    pub(crate) fn remove_on_kill(&self) {
        self.state.lock().unwrap().remove_on_kill = true;
    }

    pub(crate) fn answer_remove_with(&self, removed: bool) {
        self.state.lock().unwrap().remove_answers = removed;
    }

    /// Behind the handle's back.
    pub(crate) fn set_state(&self, state: ExecutionState, generation: u64) {
        let mut fake = self.state.lock().unwrap();
        let execution = fake.execution.as_mut().unwrap();
        execution.state = state;
        execution.generation = ExecutionGeneration::new(generation).unwrap();
    }

    pub(crate) fn set_log(&self, lines: usize) {
        self.state.lock().unwrap().log = (0..lines).map(log_entry).collect();
    }

    /// Records the call, and fails as told; else runs `act` on the state.
    fn call<T>(
        &self,
        call: Call,
        act: impl FnOnce(&mut State) -> ExecutionManagerResult<T>,
    ) -> ExecutionManagerResult<T> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(call);
        if let Some(error) = state.error {
            let unknown = ExecutionId::new("unknown").unwrap();
            let id = state.execution.as_ref().map_or(&unknown, |e| &e.id);
            return Err(error(id));
        }
        act(&mut state)
    }

    /// As `call`, on the current generation only.
    fn fenced<T>(
        &self,
        call: Call,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        act: impl FnOnce(&mut State) -> ExecutionManagerResult<T>,
    ) -> ExecutionManagerResult<T> {
        self.call(call, |state| {
            let execution = state.execution(id)?;
            Fence::new(id, execution.generation).admit(generation)?;
            act(state)
        })
    }
}

pub(crate) fn log_entry(line: usize) -> LogEntry {
    LogEntry {
        log: format!("line {line}\n"),
        stream: if line.is_multiple_of(2) {
            "stdout"
        } else {
            "stderr"
        }
        .into(),
        time: "2026-01-01T00:00:00Z".into(),
    }
}

impl State {
    fn execution(&mut self, id: &ExecutionId) -> ExecutionManagerResult<&mut Execution> {
        self.execution
            .as_mut()
            .filter(|execution| execution.id == *id && !execution.removed)
            .ok_or_else(|| ExecutionManagerError::NotFound(id.clone()))
    }

    fn create(&mut self, request: CreateExecutionRequest, state: ExecutionState) {
        self.created += 1;
        self.execution = Some(Execution {
            id: ExecutionId::new(format!("execution-{}", self.created)).unwrap(),
            generation: ExecutionGeneration::INITIAL,
            state,
            config: request.config,
            removed: false,
        });
    }

    fn lease(&self) -> ExecutionLease {
        let execution = self.execution.as_ref().unwrap();
        ExecutionLease {
            execution_id: execution.id.clone(),
            generation: execution.generation,
            plan: resolve_execution(&execution.config).unwrap(),
            resources: execution.config.resources.clone(),
            started_at: DateTime::UNIX_EPOCH,
        }
    }

    /// The next generation, in `state`.
    fn advance(&mut self, state: ExecutionState) -> ExecutionLease {
        let execution = self.execution.as_mut().unwrap();
        execution.generation = execution.generation.next().unwrap();
        execution.state = state;
        self.lease()
    }
}

#[async_trait]
impl ExecutionManager for Fake {
    async fn create(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionReservation> {
        let seen = serde_json::to_value(&request).unwrap();
        self.call(Call::Create(operation_id.to_string(), seen), |state| {
            state.create(request, ExecutionState::Created);
            let lease = state.lease();
            Ok(ExecutionReservation {
                execution_id: lease.execution_id,
                generation: lease.generation,
                plan: lease.plan,
                resources: lease.resources,
                created_at: lease.started_at,
            })
        })
    }

    async fn start(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::Start(id.to_string(), generation.get());
        self.fenced(call, id, generation, |state| {
            state.execution(id)?.state = ExecutionState::Running;
            Ok(state.lease())
        })
    }

    async fn create_and_start(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let seen = serde_json::to_value(&request).unwrap();
        self.call(
            Call::CreateAndStart(operation_id.to_string(), seen),
            |state| {
                state.create(request, ExecutionState::Running);
                Ok(state.lease())
            },
        )
    }

    async fn inspect(&self, id: &ExecutionId) -> ExecutionManagerResult<ExecutionStatus> {
        self.call(Call::Inspect, |state| {
            let execution = state.execution(id)?;
            Ok(ExecutionStatus {
                execution_id: id.clone(),
                generation: execution.generation,
                state: execution.state,
                plan: resolve_execution(&execution.config).unwrap(),
            })
        })
    }

    async fn read_logs(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<Vec<LogEntry>> {
        self.fenced(Call::ReadLogs(generation.get()), id, generation, |state| {
            Ok(state.log.clone())
        })
    }

    async fn list_processes(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        self.fenced(
            Call::ListProcesses(generation.get()),
            id,
            generation,
            |_| {
                Ok(ExecutionProcessInventory {
                    execution_id: id.clone(),
                    generation,
                    processes: vec![],
                })
            },
        )
    }

    async fn stats(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionStats> {
        self.fenced(Call::Stats(generation.get()), id, generation, |_| {
            Ok(ExecutionStats {
                execution_id: id.clone(),
                generation,
                timestamp_unix_ns: 1,
                cpu: ExecutionCpuStats::default(),
                memory: ExecutionMemoryStats::default(),
                process_count: 1,
                metrics: BTreeMap::new(),
            })
        })
    }

    async fn events(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        let call = Call::Events(generation.get(), request);
        self.fenced(call, id, generation, |state| {
            if state.batches.is_empty() {
                return Err(ExecutionManagerError::Unavailable("no more batches".into()));
            }
            Ok(state.batches.remove(0))
        })
    }

    async fn update_resources(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::UpdateResources(generation.get(), operation_id.to_string(), update);
        self.fenced(call, id, generation, |state| Ok(state.lease()))
    }

    async fn create_filesystem_snapshot(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<ExecutionSnapshot> {
        let call = Call::Snapshot(generation.get(), snapshot_id.to_string());
        self.fenced(call, id, generation, |state| {
            state.snapshots.insert(snapshot_id.to_string(), SIZE);
            let restored = state.execution(id)?.state;
            Ok(ExecutionSnapshot {
                snapshot_id: snapshot_id.clone(),
                size_bytes: SIZE,
                state: restored,
                lease: state.advance(restored),
            })
        })
    }

    async fn filesystem_snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        self.call(Call::SnapshotSize(snapshot_id.to_string()), |state| {
            Ok(state.snapshots.get(snapshot_id.as_str()).copied())
        })
    }

    async fn delete_filesystem_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<bool> {
        self.call(Call::DeleteSnapshot(snapshot_id.to_string()), |state| {
            Ok(state.snapshots.remove(snapshot_id.as_str()).is_some())
        })
    }

    async fn pause(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        keep_memory: bool,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::Pause(generation.get(), keep_memory);
        self.fenced(call, id, generation, |state| {
            Ok(state.advance(ExecutionState::Paused))
        })
    }

    async fn resume(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.fenced(Call::Resume(generation.get()), id, generation, |state| {
            Ok(state.advance(ExecutionState::Running))
        })
    }

    async fn restart_with_options(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::Restart(generation.get(), operation_id.to_string(), options);
        self.call(call, |state| {
            let current = state.execution(id)?.generation;
            if let Some(led_to) = state.restarts.get(operation_id.as_str()) {
                let generation = *led_to;
                return Ok(ExecutionLease {
                    generation,
                    ..state.lease()
                });
            }
            Fence::new(id, current).admit(generation)?;
            let lease = state.advance(ExecutionState::Running);
            state
                .restarts
                .insert(operation_id.to_string(), lease.generation);
            Ok(lease)
        })
    }

    async fn kill(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.fenced(Call::Kill(generation.get()), id, generation, |state| {
            let remove = state.remove_on_kill;
            let execution = state.execution(id)?;
            execution.removed = remove;
            if execution.state == ExecutionState::Stopped {
                return Ok(KillOutcome::AlreadyStopped);
            }
            execution.state = ExecutionState::Stopped;
            Ok(KillOutcome::Killed)
        })
    }

    async fn remove(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<bool> {
        self.fenced(Call::Remove(generation.get()), id, generation, |state| {
            let answer = state.remove_answers;
            state.execution(id)?.removed = true;
            Ok(answer)
        })
    }

    async fn reconcile(
        &self,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ReconcileOutcome> {
        self.call(Call::Reconcile(operation_id.to_string()), |_| {
            Ok(ReconcileOutcome::Absent)
        })
    }
}

#[async_trait]
impl ExecutionSessionManager for Fake {
    async fn execute(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        let call = Call::Execute(generation.get(), request);
        self.fenced(call, id, generation, |state| {
            Ok(state.exec_output.clone().unwrap_or(ExecOutput {
                stdout: b"out\n".to_vec(),
                stderr: vec![],
                exit_code: 0,
                truncated: false,
            }))
        })
    }

    async fn start_process(
        &self,
        _: &ExecutionId,
        _: ExecutionGeneration,
        _: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        Err(ExecutionManagerError::Unavailable("not faked".into()))
    }

    async fn start_pty(
        &self,
        _: &ExecutionId,
        _: ExecutionGeneration,
        _: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        Err(ExecutionManagerError::Unavailable("not faked".into()))
    }

    async fn transfer_file(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse> {
        let call = Call::Transfer(generation.get(), request.clone());
        self.fenced(call, id, generation, |state| {
            if let Some(response) = &state.file_response {
                return Ok(response.clone());
            }
            let done = |data: Option<String>, size: usize| FileResponse {
                success: true,
                data,
                size: size as u64,
                error: None,
            };
            Ok(match request.op {
                FileOp::Upload => {
                    let data = STANDARD.decode(request.data.unwrap()).unwrap();
                    let size = data.len();
                    state.files.insert(request.guest_path, data);
                    done(None, size)
                }
                FileOp::Download => match state.files.get(&request.guest_path) {
                    Some(data) => done(Some(STANDARD.encode(data)), data.len()),
                    None => FileResponse {
                        success: false,
                        data: None,
                        size: 0,
                        error: Some("File not found".into()),
                    },
                },
            })
        })
    }

    async fn filesystem(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        let call = Call::Filesystem(generation.get(), request.clone());
        self.fenced(call, id, generation, |state| {
            if let Some(response) = &state.filesystem_response {
                return Ok(response.clone());
            }
            let entry = state
                .files
                .get(&request.path)
                .map(|data| entry(&request.path, FilesystemEntryKind::File, data.len()));
            let success = request.op != FilesystemOp::Stat || entry.is_some();
            Ok(FilesystemResponse {
                success,
                entries: entry.clone().into_iter().collect(),
                entry,
                error: (!success).then(|| "Path Not Found".into()),
            })
        })
    }
}

pub(crate) fn entry(path: &str, kind: FilesystemEntryKind, size: usize) -> FilesystemEntry {
    FilesystemEntry {
        name: path.rsplit('/').next().unwrap().into(),
        kind,
        path: path.into(),
        size: i64::try_from(size).unwrap(),
        mode: 0o644,
        permissions: "-rw-r--r--".into(),
        owner: "root".into(),
        group: "root".into(),
        modified_seconds: 0,
        modified_nanos: 0,
        symlink_target: None,
        metadata: BTreeMap::new(),
    }
}

/// A client on a fresh folder, with everything faked.
pub(crate) struct World {
    pub(crate) fake: Arc<Fake>,
    pub(crate) client: A3sBoxClient,
    pub(crate) home: tempfile::TempDir,
}

pub(crate) fn world() -> World {
    let fake = Fake::new();
    let home = tempfile::tempdir().unwrap();
    let client = A3sBoxClient::with_execution_services(
        A3sBoxPaths::from_home(home.path()),
        fake.clone(),
        fake.clone(),
    );
    World { fake, client, home }
}

impl World {
    /// A running sandbox, whose creation is not among the calls.
    pub(crate) async fn sandbox(&self) -> a3sbox_sdk::Sandbox {
        let options = a3sbox_sdk::SandboxCreateOptions::new("alpine:3.20")
            .isolation(ExecutionIsolation::Sandbox)
            .auto_remove(false);
        let sandbox = a3sbox_sdk::Sandbox::create_with_client(self.client.clone(), options)
            .await
            .unwrap();
        self.fake.take();
        sandbox
    }

    /// Names in the home folder.
    pub(crate) fn home_entries(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.home.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// The text of a `Validation`, or a panic.
pub(crate) fn refused<T>(result: a3sbox_sdk::Result<T>) -> String {
    match result {
        Err(a3sbox_sdk::ClientError::Validation(text)) => text,
        Err(other) => panic!("expected Validation, got {other:?}"),
        Ok(_) => panic!("expected Validation, got success"),
    }
}

/// The text of a `Guest`, or a panic.
pub(crate) fn guest<T>(result: a3sbox_sdk::Result<T>) -> String {
    match result {
        Err(a3sbox_sdk::ClientError::Guest(text)) => text,
        Err(other) => panic!("expected Guest, got {other:?}"),
        Ok(_) => panic!("expected Guest, got success"),
    }
}
