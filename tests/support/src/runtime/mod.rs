//! The recording stand-in for a runtime service.
//!
//! All state is in memory and nothing ever blocks: a wait answers at once, with `DeadlineExceeded` while
//! there is nothing to report. Every request is recorded before it is acted on.

mod container;
mod files;
mod journal;
mod observe;
mod process;
mod report;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use a3sbox_oci::{
    CloseStdinRequest, ContainerId, ContainerOperationRequest, ContainerRecord, ContainerTarget,
    CreateRequest, DeleteMode, Error, ErrorCode, EventsRequest, ExecRequest, ExitStatus,
    FileRequest, FilesystemRequest, Generation, ProcessId, ProcessesRequest, ReadOutputRequest,
    ResizeRequest, Result, RuntimeOperation, SignalProcessRequest, StartRequest, StatsRequest,
    UpdateRequest, WaitProcessRequest, WriteStdinRequest,
};

pub use self::report::RuntimeReport;

use self::container::Container;
use self::journal::Journal;
use self::process::FakeProcess;

/// The generation of every container.
pub const GENERATION: Generation = Generation(41);
/// Digests of containers that a test plants.
pub const CONFIG_DIGEST: &str =
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
pub const ATTACHMENTS_DIGEST: &str =
    "sha256:abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789";

/// Everything that the runtime was asked, in order, by verb.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    pub creates: Vec<CreateRequest>,
    pub starts: Vec<StartRequest>,
    pub pauses: Vec<ContainerOperationRequest>,
    pub resumes: Vec<ContainerOperationRequest>,
    pub updates: Vec<UpdateRequest>,
    pub processes: Vec<ProcessesRequest>,
    pub stats: Vec<StatsRequest>,
    pub events: Vec<EventsRequest>,
    pub files: Vec<FileRequest>,
    pub filesystems: Vec<FilesystemRequest>,
    pub execs: Vec<ExecRequest>,
    pub output_reads: Vec<ReadOutputRequest>,
    pub stdin_writes: Vec<WriteStdinRequest>,
    pub stdin_closes: Vec<CloseStdinRequest>,
    pub resizes: Vec<ResizeRequest>,
    pub process_signals: Vec<SignalProcessRequest>,
    pub process_waits: Vec<WaitProcessRequest>,
    /// Signals of kill.
    pub kills: Vec<i32>,
    pub deletes: Vec<DeleteMode>,
}

/// What a test tells the runtime to do wrong.
#[derive(Debug, Default)]
struct Switches {
    /// How many answers of a verb get lost after the effect.
    lost_answers: BTreeMap<RuntimeOperation, u32>,
    pause_fails_before_effect: u32,
    config_digest: Option<String>,
    attachments_digest: Option<String>,
    holds_processes: bool,
    /// Bytes of standard output that a process writes before the usual ones.
    output_before: usize,
    only_signal_nine: bool,
    drifts: bool,
    misorders_events: bool,
}

#[derive(Debug, Default)]
struct State {
    recorded: Recorded,
    switches: Switches,
    containers: BTreeMap<ContainerId, Container>,
    processes: BTreeMap<ProcessId, FakeProcess>,
    updates: Journal<UpdateRequest>,
    files: Journal<FileRequest>,
    filesystems: Journal<FilesystemRequest>,
    stdin: Journal<WriteStdinRequest>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct RecordingRuntime {
    report: Mutex<RuntimeReport>,
    state: Mutex<State>,
}

impl RecordingRuntime {
    #[must_use]
    pub fn new(report: RuntimeReport) -> Arc<Self> {
        Arc::new(Self {
            report: Mutex::new(report),
            state: Mutex::default(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> MutexGuard<'_, RuntimeReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn recorded(&self) -> Recorded {
        self.locked().recorded.clone()
    }

    /// The next answer of `operation` is lost after its effect.
    pub fn lose_answer(&self, operation: RuntimeOperation) {
        *self
            .locked()
            .switches
            .lost_answers
            .entry(operation)
            .or_default() += 1;
    }

    /// The next pause is refused before its effect, and may not be retried.
    pub fn refuse_pause(&self) {
        self.locked().switches.pause_fails_before_effect += 1;
    }

    /// Create answers with these digests instead of the submitted ones.
    pub fn answer_digests(&self, config: Option<&str>, attachments: Option<&str>) {
        let mut state = self.locked();
        state.switches.config_digest = config.map(str::to_owned);
        state.switches.attachments_digest = attachments.map(str::to_owned);
    }

    /// Processes run until they are signalled.
    pub fn hold_processes(&self) {
        self.locked().switches.holds_processes = true;
    }

    /// Processes write this many bytes of standard output before the usual ones.
    pub fn write_before_output(&self, bytes: usize) {
        self.locked().switches.output_before = bytes;
    }

    /// Kill has an effect with signal 9 only.
    pub fn ignore_other_signals(&self) {
        self.locked().switches.only_signal_nine = true;
    }

    /// Answers name other containers than the requests.
    pub fn drift(&self) {
        self.locked().switches.drifts = true;
    }

    pub fn misorder_events(&self) {
        self.locked().switches.misorders_events = true;
    }

    #[must_use]
    pub fn container_count(&self) -> usize {
        self.locked().containers.len()
    }

    #[must_use]
    pub fn process_count(&self) -> usize {
        self.locked().processes.len()
    }

    #[must_use]
    pub fn container(&self, id: &ContainerId) -> Option<ContainerRecord> {
        self.locked().containers.get(id).map(Container::record)
    }

    /// A container that exists although nobody asked for it.
    pub fn plant(&self, record: &ContainerRecord) {
        let container = Container::planted(record);
        self.locked()
            .containers
            .insert(container.id().clone(), container);
    }

    /// The container stops by itself; `None` leaves no evidence of how.
    pub fn stop(&self, id: &ContainerId, status: Option<ExitStatus>) {
        if let Some(container) = self.locked().containers.get_mut(id) {
            container.stop(status);
        }
    }

    #[must_use]
    pub fn update_effects(&self) -> Vec<UpdateRequest> {
        self.locked().updates.effects().to_vec()
    }

    #[must_use]
    pub fn file_effects(&self) -> Vec<FileRequest> {
        self.locked().files.effects().to_vec()
    }

    #[must_use]
    pub fn filesystem_effects(&self) -> Vec<FilesystemRequest> {
        self.locked().filesystems.effects().to_vec()
    }

    #[must_use]
    pub fn stdin_effects(&self) -> Vec<WriteStdinRequest> {
        self.locked().stdin.effects().to_vec()
    }
}

impl State {
    fn container(&mut self, target: &ContainerTarget) -> Result<&mut Container> {
        let container = self.containers.get_mut(&target.id).ok_or_else(|| {
            Error::new(ErrorCode::NotFound, format!("no container {}", target.id))
        })?;
        match target.generation {
            Some(generation) if generation != container.generation() => Err(Error::new(
                ErrorCode::FailedPrecondition,
                format!("container {} is not of generation {generation}", target.id),
            )),
            _ => Ok(container),
        }
    }

    /// The answer, unless it gets lost.
    fn answer<T>(&mut self, operation: RuntimeOperation, answer: T) -> Result<T> {
        match self.switches.lost_answers.get_mut(&operation) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Error::new(
                    ErrorCode::Unavailable,
                    format!("the answer of {operation} was lost"),
                )
                .for_operation(operation.label())
                .retryable(true))
            }
            _ => Ok(answer),
        }
    }

    /// The target of an answer; another one when the runtime drifts.
    fn answered(&self, target: &ContainerTarget, drifted: &str) -> Result<ContainerTarget> {
        if self.switches.drifts {
            return Ok(ContainerTarget::exact(
                ContainerId::new(drifted)?,
                Generation(99),
            ));
        }
        Ok(target.clone())
    }

    /// The ids of a container's execs, in a stable order.
    fn processes_of(&self, target: &ContainerTarget) -> BTreeSet<&ProcessId> {
        self.processes
            .iter()
            .filter(|(_, process)| process.container_id() == &target.id)
            .map(|(id, _)| id)
            .collect()
    }
}
