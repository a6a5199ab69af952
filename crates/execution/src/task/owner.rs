//! The one task that owns an execution.
//!
//! It takes reports (exits, ends of effects) before requests, decides by the machine, journals, and
//! spawns every effect that may be slow as a task of its own that reports back. So a slow create, exec or
//! pause stands before neither a kill nor another process, and an effect that began is finished and
//! recorded when its caller hung up. Nothing is awaited here but the queues.

mod exec;
mod fenced;
mod init;
mod settle;
mod settle_exec;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use a3sbox_oci::ProcessId;
use chrono::Utc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{Instrument, error, info, warn};

use self::exec::Exec;
pub(crate) use self::exec::no_such_process;
pub(crate) use self::fenced::manager_error;
pub(crate) use self::settle::exit_of;
use super::hub::TaskHub;
use super::ledger::{Ledger, Operation, Verb};
use super::limits::{EVENT_BACKLOG, MAX_PARKED, REPORT_QUEUE, REQUEST_QUEUE};
use super::machine::InitState;
use super::record::TaskRecord;
use super::request::{Reply, Report, Request, answer};
use super::types::{TaskDeleted, TaskEvent, TaskEventKind, TaskKey};
use super::view::{ExecDirectory, ProcessView, init_status};
use super::watcher::Engine;
use super::{TaskError, TaskResult};
use crate::store::OwnerLock;
use crate::{BoxRecord, ManagedExecutionOperation};

/// How callers reach an owner and what it publishes.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) init: watch::Receiver<ProcessView>,
    pub(crate) execs: ExecDirectory,
    /// The record as of the create: binding and bundle stay for the container's life.
    pub(crate) record: Arc<BoxRecord>,
    pub(crate) engine: Engine,
    pub(crate) bundle: std::path::PathBuf,
}

pub(crate) struct Owner {
    key: TaskKey,
    hub: Weak<TaskHub>,
    lock: Option<OwnerLock>,
    ledger: Ledger,
    engine: Engine,
    task: TaskRecord,
    init_view: watch::Sender<ProcessView>,
    execs: HashMap<String, Exec>,
    directory: ExecDirectory,
    requests: mpsc::Receiver<Request>,
    reports: mpsc::Receiver<Report>,
    reporter: mpsc::Sender<Report>,
    watchers: JoinSet<()>,
    /// Effects that have not reported.
    in_flight: usize,
    parked: VecDeque<Request>,
    /// Callers of the container's delete that is under way.
    deleting: Vec<Reply<TaskDeleted>>,
    /// Set when what the capture under way copies is no moment of the container any more.
    capture_is_void: Option<Arc<AtomicBool>>,
    drain_until: Option<Instant>,
    last_oom: u64,
    events: mpsc::Sender<TaskEvent>,
    /// Events that found no room; in order.
    outbox: VecDeque<TaskEvent>,
}

/// What an owner begins with.
pub(crate) struct Seed {
    pub(crate) key: TaskKey,
    pub(crate) hub: Weak<TaskHub>,
    pub(crate) lock: OwnerLock,
    pub(crate) ledger: Ledger,
    pub(crate) engine: Engine,
    /// State `Created`.
    pub(crate) task: TaskRecord,
    pub(crate) events: mpsc::Sender<TaskEvent>,
}

impl Owner {
    /// Makes the owner of a container that was just created, and its handle.
    pub(crate) fn new(seed: Seed) -> (Self, Handle) {
        let (request_tx, requests) = mpsc::channel(REQUEST_QUEUE);
        let (reporter, reports) = mpsc::channel(REPORT_QUEUE);
        let mut view = ProcessView::declared(seed.task.stdio.clone());
        view.pid = seed.task.init.pid.unwrap_or(0);
        let (init_view, init) = watch::channel(view);
        let directory = ExecDirectory::default();
        let handle = Handle {
            requests: request_tx,
            init,
            execs: directory.clone(),
            record: seed.ledger.record(),
            engine: seed.engine.clone(),
            bundle: seed.task.bundle.clone(),
        };
        let owner = Self {
            key: seed.key,
            hub: seed.hub,
            lock: Some(seed.lock),
            ledger: seed.ledger,
            engine: seed.engine,
            task: seed.task,
            init_view,
            execs: HashMap::new(),
            directory,
            requests,
            reports,
            reporter,
            watchers: JoinSet::new(),
            in_flight: 0,
            parked: VecDeque::new(),
            deleting: Vec::new(),
            capture_is_void: None,
            drain_until: None,
            last_oom: 0,
            events: seed.events,
            outbox: VecDeque::new(),
        };
        (owner, handle)
    }

    /// Runs until the container is deleted, or until nobody can ask any more.
    pub(crate) async fn run(mut self) {
        self.publish_created();
        self.watch_exit(None, ProcessId::init());
        self.watch_events();
        let mut is_open = true;
        loop {
            let is_gone = self.task.init.state == InitState::Gone;
            let is_quiet = self.in_flight == 0 && self.outbox.is_empty();
            if is_quiet && (!is_open || (is_gone && self.requests.is_empty())) {
                return;
            }
            let drain_until = self.drain_until;
            let events = self.events.clone();
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.on_report(report),
                Some(_) = self.watchers.join_next() => {}
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    },
                    // The only reader is gone; nobody is left to tell.
                    Err(_) => self.outbox.clear(),
                },
                () = until(drain_until), if drain_until.is_some() => self.end_drain(),
                request = self.requests.recv(), if is_open => match request {
                    Some(request) => self.on_request(request),
                    None => is_open = false,
                },
            }
        }
    }

    fn on_request(&mut self, request: Request) {
        if let Request::Fenced(call) = request {
            self.on_fenced(*call);
        } else if let Some(event) = request.init_event() {
            self.on_init_request(event, request);
        } else {
            self.on_exec_request(request);
        }
    }

    /// Sets a request aside until the transition under way has settled.
    fn park(&mut self, request: Request) {
        if self.parked.len() >= MAX_PARKED {
            request.refuse(TaskError::ResourceExhausted(format!(
                "container {} has {MAX_PARKED} calls waiting",
                self.key.container_id
            )));
        } else {
            self.parked.push_back(request);
        }
    }

    /// Asks the machine again about what was set aside.
    fn unpark(&mut self) {
        for request in std::mem::take(&mut self.parked) {
            self.on_request(request);
        }
    }

    /// Spawns an effect with its deadline. The report is sent whether or not anybody waits for it.
    fn spawn<T, F, R>(
        &mut self,
        operation: &Operation,
        limit: Duration,
        what: &'static str,
        effect: F,
        report: R,
    ) where
        T: Send + 'static,
        F: AsyncEffect<T>,
        R: FnOnce(TaskResult<T>) -> Report + Send + 'static,
    {
        self.in_flight += 1;
        let engine = self.engine.clone();
        let record = self.ledger.record();
        let reporter = self.reporter.clone();
        let span = operation.span(&self.key, self.ledger.generation());
        let effect = async move {
            let result = match timeout(limit, effect.run(engine, record)).await {
                Ok(result) => result,
                Err(_) => Err(TaskError::DeadlineExceeded(format!(
                    "{what} did not settle within {} s",
                    limit.as_secs()
                ))),
            };
            // The owner outlives its effects; only a dropped manager is deaf.
            let _ = reporter.send(report(result)).await;
        };
        tokio::spawn(effect.instrument(span));
    }

    fn watch_exit(&mut self, exec_id: Option<String>, process_id: ProcessId) {
        let engine = self.engine.clone();
        let record = self.ledger.record();
        let reporter = self.reporter.clone();
        self.watchers.spawn(async move {
            let (end, events) = engine.end_of(&record, &process_id).await;
            let _ = reporter
                .send(Report::Exited {
                    exec_id,
                    process_id,
                    end,
                    events,
                })
                .await;
        });
    }

    fn watch_events(&mut self) {
        let engine = self.engine.clone();
        self.watchers
            .spawn(engine.watch_events(self.ledger.record(), self.reporter.clone()));
    }

    /// Writes the record. The owner's state is already ahead; a failure is told to the caller.
    fn commit(&mut self, claim: Option<ManagedExecutionOperation>) -> TaskResult<()> {
        let before = self.ledger.state();
        let written = self.ledger.commit(&self.task, claim).inspect_err(|cause| {
            error!(
                namespace = %self.key.namespace, container_id = %self.key.container_id,
                %cause, "the record cannot be written"
            );
        });
        let after = self.ledger.state();
        if before != after {
            info!(
                namespace = %self.key.namespace, container_id = %self.key.container_id,
                generation = self.ledger.generation().get(), from = %before, to = %after,
                "container changed state"
            );
        }
        written
    }

    /// Journals an outcome; a journal that cannot be written makes the intent's end unknown, no more.
    fn conclude(&mut self, operation: &Operation, failure: Option<&TaskError>) {
        if let Err(cause) = self.ledger.conclude(operation, failure) {
            warn!(
                namespace = %self.key.namespace, container_id = %self.key.container_id,
                operation_id = %operation.id, %cause, "the outcome cannot be journalled"
            );
        }
    }

    fn intend(&mut self, verb: Verb, subject: Option<&str>) -> TaskResult<Operation> {
        self.ledger.intend(verb, subject)
    }

    fn emit(&mut self, kind: TaskEventKind) {
        let event = TaskEvent {
            key: self.key.clone(),
            at: Utc::now(),
            kind,
        };
        if !self.outbox.is_empty() {
            self.outbox.push_back(event);
            return;
        }
        match self.events.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(event)) => self.outbox.push_back(event),
        }
    }

    fn is_backlogged(&self) -> bool {
        self.outbox.len() >= EVENT_BACKLOG
    }

    fn publish_created(&mut self) {
        self.emit(TaskEventKind::Created {
            pid: self.task.init.pid.unwrap_or(0),
            bundle: self.task.bundle.clone(),
            rootfs: self.task.rootfs.clone(),
            stdio: self.task.stdio.clone(),
            checkpoint: self.task.engine.restore_from.clone(),
        });
    }

    /// Shows readers the init process as it is recorded.
    fn show_init(&self) {
        let slot = &self.task.init;
        self.init_view.send_modify(|view| {
            view.status = init_status(slot.state);
            view.pid = slot.pid.unwrap_or(0);
            view.exit = slot.exit.clone().filter(|_| slot.state.has_ended());
        });
    }

    /// The container is gone: let go of everything before anybody is told.
    fn let_go(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.forget(&self.key);
        }
        self.lock = None;
        self.requests.close();
        self.watchers.abort_all();
    }

    fn answer_deletes(&mut self, result: &TaskResult<TaskDeleted>) {
        for reply in self.deleting.drain(..) {
            answer(reply, result.clone());
        }
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner")
            .field("key", &self.key)
            .field("task", &self.task)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

async fn until(instant: Option<Instant>) {
    if let Some(instant) = instant {
        sleep_until(instant).await;
    }
}

/// An effect as a closure over the engine and the record that was current when it was decided.
trait AsyncEffect<T>: Send + 'static {
    fn run(
        self,
        engine: Engine,
        record: Arc<BoxRecord>,
    ) -> impl Future<Output = TaskResult<T>> + Send;
}

impl<T, F, Fut> AsyncEffect<T> for F
where
    F: FnOnce(Engine, Arc<BoxRecord>) -> Fut + Send + 'static,
    Fut: Future<Output = TaskResult<T>> + Send,
{
    fn run(
        self,
        engine: Engine,
        record: Arc<BoxRecord>,
    ) -> impl Future<Output = TaskResult<T>> + Send {
        self(engine, record)
    }
}
