//! Verbs on execs: the table of what Task Exec declared, and its processes.

use std::sync::Arc;

use a3sbox_oci::oci_spec::runtime::Process;
use a3sbox_oci::{ProcessId, StdioUris, TerminalSize};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::Owner;
use super::init::{SIGNAL_OF_A_PROBE, no_terminal};
use crate::BoxRecord;
use crate::task::backend::TaskExec;
use crate::task::ledger::{Operation, Verb};
use crate::task::limits::{MAX_EXECS, MAX_NAME_BYTES};
use crate::task::machine::{Effect, ExecEvent, ExecState, InitState, Refusal, Verdict, next_exec};
use crate::task::record::ExecSlot;
use crate::task::request::{Reply, Report, Request, answer};
use crate::task::types::{TaskDeleted, TaskEventKind};
use crate::task::view::{ProcessView, exec_status};
use crate::task::watcher::Engine;
use crate::task::{TaskError, TaskResult};

/// The part of an exec that dies with this process: what to run, and who waits.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) view: watch::Sender<ProcessView>,
    process: Process,
    /// Set before the start, for its terminal.
    size: Option<TerminalSize>,
    /// The input was ended before the start.
    pub(super) close_stdin: bool,
    pub(super) deleting: Vec<Reply<TaskDeleted>>,
}

impl Owner {
    pub(super) fn on_exec_request(&mut self, request: Request) {
        let request = match request {
            Request::ExecAdd {
                exec_id,
                process,
                stdio,
                reply,
            } => {
                return answer(reply, self.add_exec(&exec_id, *process, stdio));
            }
            other => other,
        };
        let Some((exec_id, event)) = request.exec_event() else {
            return request.refuse(TaskError::Internal("a verb names no process".to_owned()));
        };
        if self.task.init.state == InitState::Gone {
            return request.refuse(Refusal::NotCreated.into_error(&self.key.container_id));
        }
        let Some(slot) = self.task.execs.get(exec_id) else {
            let error = no_such_process(exec_id);
            return request.refuse(error);
        };
        match next_exec(slot.state, event) {
            Verdict::Go(next, effects) => {
                let exec_id = exec_id.to_owned();
                self.begin_exec(&exec_id, next, effects, event, request);
            }
            Verdict::Refuse(refusal) => {
                request.refuse(refusal.into_error(&self.key.container_id));
            }
            Verdict::Defer => self.park(request),
            Verdict::Join => {
                let exec_id = exec_id.to_owned();
                if let (Some(exec), Request::Delete { reply, .. }) =
                    (self.execs.get_mut(&exec_id), request)
                {
                    exec.deleting.push(reply);
                }
            }
            Verdict::Done => request.succeed(),
            Verdict::Ignore => request.refuse(TaskError::Internal("a verb was ignored".to_owned())),
        }
    }

    fn add_exec(&mut self, exec_id: &str, process: Process, stdio: StdioUris) -> TaskResult<()> {
        if exec_id.is_empty() || exec_id.len() > MAX_NAME_BYTES {
            return Err(TaskError::InvalidArgument(format!(
                "exec id must have 1 to {MAX_NAME_BYTES} bytes: invalid argument"
            )));
        }
        if self.task.execs.contains_key(exec_id) {
            return Err(TaskError::AlreadyExists(format!(
                "id {exec_id}: already exists"
            )));
        }
        if self.task.execs.len() >= MAX_EXECS || self.is_backlogged() {
            return Err(TaskError::ResourceExhausted(format!(
                "container {} holds too many execs",
                self.key.container_id
            )));
        }
        self.task.execs.insert(
            exec_id.to_owned(),
            ExecSlot {
                state: ExecState::Declared,
                stdio: stdio.clone(),
                process_id: None,
                pid: None,
                exit: None,
            },
        );
        if let Err(error) = self.commit(None) {
            self.task.execs.remove(exec_id);
            return Err(error);
        }
        let (view, reader) = watch::channel(ProcessView::declared(stdio));
        self.execs.insert(
            exec_id.to_owned(),
            Exec {
                view,
                process,
                size: None,
                close_stdin: false,
                deleting: Vec::new(),
            },
        );
        self.directory.insert(exec_id, reader);
        self.emit(TaskEventKind::ExecAdded {
            exec_id: exec_id.to_owned(),
        });
        Ok(())
    }

    fn begin_exec(
        &mut self,
        exec_id: &str,
        next: ExecState,
        effects: &'static [Effect],
        event: ExecEvent,
        request: Request,
    ) {
        let Some(slot) = self.task.execs.get(exec_id) else {
            return request.refuse(no_such_process(exec_id));
        };
        let is_terminal = slot.stdio.terminal;
        let running = slot.process_id.clone();
        match (effects.first(), request) {
            (Some(Effect::Start), Request::ExecStart { reply, .. }) => {
                self.start_exec(exec_id, next, reply);
            }
            (Some(Effect::Delete), Request::Delete { reply, .. }) => {
                self.delete_exec(exec_id, next, reply);
            }
            (Some(Effect::Remember), request) => self.remember(exec_id, event, request),
            (_, Request::Resize { reply, .. }) if !is_terminal => answer(reply, Err(no_terminal())),
            (_, request) => match running {
                Some(process_id) => self.begin_on_process(exec_id, process_id, request),
                None => request.refuse(Refusal::ProcessNotCreated.into_error("")),
            },
        }
    }

    fn begin_on_process(&mut self, exec_id: &str, process_id: ProcessId, request: Request) {
        match request {
            Request::Signal {
                signal: SIGNAL_OF_A_PROBE,
                reply,
                ..
            } => answer(reply, Ok(())),
            Request::Signal { signal, reply, .. } => {
                let Some((operation, reply)) = self.intend_for(Verb::Signal, Some(exec_id), reply)
                else {
                    return;
                };
                let context = operation.context.clone();
                let limit = self.engine.deadlines.signal;
                self.spawn(
                    &operation.clone(),
                    limit,
                    "the signal",
                    move |engine: Engine, record: Arc<BoxRecord>| async move {
                        engine
                            .task()?
                            .signal(&record, &context, &process_id, signal, false)
                            .await
                    },
                    move |result| Report::Settled {
                        operation,
                        checkpoint: None,
                        reply: Some(reply),
                        result,
                    },
                );
            }
            Request::Resize { size, reply, .. } => {
                if let Some((operation, reply)) =
                    self.intend_for(Verb::Resize, Some(exec_id), reply)
                {
                    self.spawn_resize(operation, process_id, size, reply);
                }
            }
            Request::CloseStdin { reply, .. } => {
                if let Some((operation, reply)) =
                    self.intend_for(Verb::CloseStdin, Some(exec_id), reply)
                {
                    self.spawn_close_stdin(operation, process_id, Some(reply));
                }
            }
            other => other.refuse(TaskError::Internal("a verb has no effect".to_owned())),
        }
    }

    /// Keeps what a declared exec is to begin with.
    fn remember(&mut self, exec_id: &str, event: ExecEvent, request: Request) {
        let is_terminal = self
            .task
            .execs
            .get(exec_id)
            .is_some_and(|slot| slot.stdio.terminal);
        if let (Request::Resize { size, .. }, Some(exec)) = (&request, self.execs.get_mut(exec_id))
        {
            if !is_terminal {
                return request.refuse(no_terminal());
            }
            exec.size = Some(*size);
        }
        if matches!(event, ExecEvent::CloseStdin)
            && let Some(exec) = self.execs.get_mut(exec_id)
        {
            exec.close_stdin = true;
        }
        request.succeed();
    }

    fn start_exec(&mut self, exec_id: &str, next: ExecState, reply: Reply<u32>) {
        if self.is_backlogged() {
            return answer(
                reply,
                Err(TaskError::ResourceExhausted(
                    "too many events wait to be read".to_owned(),
                )),
            );
        }
        let number = self.task.started_execs.saturating_add(1);
        let process_id = match process_id(exec_id, number) {
            Ok(process_id) => process_id,
            Err(error) => return answer(reply, Err(error)),
        };
        let operation = match self.intend(Verb::Exec, Some(process_id.as_str())) {
            Ok(operation) => operation.of_exec(exec_id),
            Err(error) => return answer(reply, Err(error)),
        };
        let (Some(slot), Some(exec)) = (
            self.task.execs.get_mut(exec_id),
            self.execs.get_mut(exec_id),
        ) else {
            return answer(reply, Err(no_such_process(exec_id)));
        };
        self.task.started_execs = number;
        slot.state = next;
        slot.process_id = Some(process_id.clone());
        slot.exit = None;
        exec.view.send_modify(|view| view.start_failed = false);
        let start = TaskExec {
            process_id: process_id.clone(),
            process: exec.process.clone(),
            stdio: slot.stdio.clone(),
            terminal_size: exec.size,
        };
        let context = operation.context.clone();
        let exec_id = exec_id.to_owned();
        let limit = self.engine.deadlines.exec;
        self.spawn(
            &operation.clone(),
            limit,
            "the exec",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                engine.task()?.exec(&record, &context, start).await
            },
            move |result| Report::ExecStarted {
                operation,
                exec_id,
                process_id,
                reply,
                result,
            },
        );
    }

    fn delete_exec(&mut self, exec_id: &str, next: ExecState, reply: Reply<TaskDeleted>) {
        let process_id = self
            .task
            .execs
            .get(exec_id)
            .and_then(|slot| slot.process_id.clone());
        let operation = match self.intend(Verb::DeleteExec, Some(exec_id)) {
            Ok(operation) => operation,
            Err(error) => return answer(reply, Err(error)),
        };
        if let Some(slot) = self.task.execs.get_mut(exec_id) {
            slot.state = next;
        }
        if let Some(exec) = self.execs.get_mut(exec_id) {
            exec.deleting.push(reply);
        }
        let exec_id = exec_id.to_owned();
        let Some(process_id) = process_id else {
            // Never started: the runtime does not know it.
            return self.on_exec_deleted(&operation, &exec_id, Ok(()));
        };
        let context = operation.context.clone();
        let limit = self.engine.deadlines.delete;
        self.spawn(
            &operation.clone(),
            limit,
            "the delete of the exec",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                engine
                    .task()?
                    .delete_process(&record, &context, &process_id)
                    .await
            },
            move |result| Report::ExecDeleted {
                operation,
                exec_id,
                result,
            },
        );
    }

    /// Mints an operation for a caller, or tells it why not.
    pub(super) fn intend_for<T>(
        &mut self,
        verb: Verb,
        subject: Option<&str>,
        reply: Reply<T>,
    ) -> Option<(Operation, Reply<T>)> {
        match self.intend(verb, subject) {
            Ok(operation) => Some((operation, reply)),
            Err(error) => {
                answer(reply, Err(error));
                None
            }
        }
    }

    pub(super) fn spawn_resize(
        &mut self,
        operation: Operation,
        process_id: ProcessId,
        size: TerminalSize,
        reply: Reply<()>,
    ) {
        let context = operation.context.clone();
        let limit = self.engine.deadlines.resize;
        self.spawn(
            &operation.clone(),
            limit,
            "the resize",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                engine
                    .task()?
                    .resize(&record, &context, &process_id, size)
                    .await
            },
            move |result| Report::Settled {
                operation,
                checkpoint: None,
                reply: Some(reply),
                result,
            },
        );
    }

    pub(super) fn spawn_close_stdin(
        &mut self,
        operation: Operation,
        process_id: ProcessId,
        reply: Option<Reply<()>>,
    ) {
        let context = operation.context.clone();
        let limit = self.engine.deadlines.close_stdin;
        self.spawn(
            &operation.clone(),
            limit,
            "the end of the input",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                engine
                    .task()?
                    .close_stdin(&record, &context, &process_id)
                    .await
            },
            move |result| Report::Settled {
                operation,
                checkpoint: None,
                reply,
                result,
            },
        );
    }

    /// Shows readers an exec as it is recorded.
    pub(super) fn show_exec(&self, exec_id: &str, start_failed: bool) {
        let (Some(slot), Some(exec)) = (self.task.execs.get(exec_id), self.execs.get(exec_id))
        else {
            return;
        };
        exec.view.send_modify(|view| {
            view.status = exec_status(slot.state);
            view.pid = slot.pid.unwrap_or(0);
            view.exit = slot.exit.clone();
            view.start_failed = start_failed;
            view.process_id = slot.process_id.clone();
        });
    }
}

/// Text of containerd's runc shim for an exec id that it does not have.
pub(crate) fn no_such_process(exec_id: &str) -> TaskError {
    TaskError::NotFound(format!("process does not exist {exec_id}: not found"))
}

/// The runtime's name of one start: an exec id may be reused, be `init`, or hold any sign.
fn process_id(exec_id: &str, number: u64) -> TaskResult<ProcessId> {
    use std::fmt::Write as _;
    const DIGEST_BYTES: usize = 16;
    let mut digest = Sha256::new();
    digest.update(exec_id.as_bytes());
    digest.update([0]);
    digest.update(number.to_be_bytes());
    let mut text = String::from("a3sbox-exec-");
    for byte in &digest.finalize()[..DIGEST_BYTES] {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(ProcessId::new(text)?)
}
