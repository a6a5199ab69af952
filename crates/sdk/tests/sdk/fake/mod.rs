//! A manager in memory that writes down what it is asked, and can be told to answer otherwise.

mod manager;
mod session;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use a3sbox_core::log::LogEntry;
use a3sbox_core::*;
use a3sbox_sdk::{A3sBoxClient, A3sBoxPaths};
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
