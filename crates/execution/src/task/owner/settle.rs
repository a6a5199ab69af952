//! Reports of effects and watchers, and the order in which their consequences are told.

use chrono::Utc;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Owner;
use crate::task::backend::{TaskEnd, TaskInit, TaskRuntimeEvents};
use crate::task::ledger::Operation;
use crate::task::machine::{Effect, InitEvent, InitState, Verdict, next_init};
use crate::task::request::{Caller, Reply, Report, answer};
use crate::task::types::{TaskDeleted, TaskEventKind, TaskExit};
use crate::task::watcher::SIGKILLED;
use crate::task::{TaskError, TaskResult};

impl Owner {
    pub(super) fn on_report(&mut self, report: Report) {
        if !matches!(report, Report::Exited { .. } | Report::RuntimeEvents(_)) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        match report {
            Report::Started {
                operation,
                reply,
                result,
            } => self.on_started(&operation, reply, result),
            Report::ExecStarted {
                operation,
                exec_id,
                process_id,
                reply,
                result,
            } => {
                debug_assert!(!process_id.is_init());
                self.on_exec_started(&operation, &exec_id, reply, result);
            }
            Report::Paused {
                operation,
                caller,
                result,
            } => {
                let event = settled(&result, InitEvent::PauseDone, InitEvent::PauseFailed);
                self.on_frozen(&operation, caller, result, event, "pause");
            }
            Report::Resumed {
                operation,
                caller,
                result,
            } => {
                let event = settled(&result, InitEvent::ResumeDone, InitEvent::ResumeFailed);
                self.on_frozen(&operation, caller, result, event, "resume");
            }
            Report::Updated {
                operation,
                update,
                reply,
                result,
            } => self.on_updated(&operation, update, reply, result),
            Report::Captured {
                operation,
                reply,
                is_frozen,
                result,
            } => self.on_captured(&operation, reply, is_frozen, result),
            Report::Killed {
                operation,
                reply,
                result,
            } => self.on_killed(&operation, reply, result),
            Report::Deleted { operation, result } => self.on_deleted(&operation, result),
            Report::ExecDeleted {
                operation,
                exec_id,
                result,
            } => {
                self.on_exec_deleted(&operation, &exec_id, result);
            }
            Report::Settled {
                operation,
                checkpoint,
                reply,
                result,
            } => {
                self.conclude(&operation, result.as_ref().err());
                if let (Some(checkpoint), Ok(())) = (checkpoint, &result) {
                    self.emit(TaskEventKind::Checkpointed { checkpoint });
                }
                match (reply, result) {
                    (Some(reply), result) => answer(reply, result),
                    (None, Err(cause)) => info!(
                        container_id = %self.key.container_id, operation_id = %operation.id,
                        %cause, "nothing was left to settle"
                    ),
                    (None, Ok(())) => {}
                }
            }
            Report::Exited {
                exec_id,
                process_id,
                end,
                events,
            } => {
                self.on_runtime_events(&events);
                match exec_id {
                    None => self.on_init_exited(end),
                    Some(exec_id) => {
                        // The exec id may name another process by now.
                        let is_current = self
                            .task
                            .execs
                            .get(&exec_id)
                            .is_some_and(|slot| slot.process_id.as_ref() == Some(&process_id));
                        if is_current {
                            self.on_exec_exited(&exec_id, end);
                        }
                    }
                }
            }
            Report::RuntimeEvents(events) => self.on_runtime_events(&events),
        }
        if !self.parked.is_empty() {
            self.unpark();
        }
    }

    fn on_started(
        &mut self,
        operation: &Operation,
        reply: Reply<u32>,
        result: TaskResult<TaskInit>,
    ) {
        let event = settled(&result, InitEvent::StartDone, InitEvent::StartFailed);
        let Verdict::Go(next, effects) = next_init(self.task.init.state, event) else {
            return answer(reply, Err(ended("start")));
        };
        let mut outcome = result.map(|process| {
            self.task.init.was_started = true;
            if process.pid.is_some() {
                self.task.init.pid = process.pid;
                self.task.init.pid_start_time = process.pid_start_time;
            }
            self.task.init.pid.unwrap_or(0)
        });
        self.conclude(operation, outcome.as_ref().err());
        self.task.init.state = next;
        if let Err(error) = self.commit(None) {
            outcome = outcome.and(Err(error));
        }
        self.show_init();
        if effects.contains(&Effect::PublishStarted) {
            self.emit(TaskEventKind::Started {
                pid: self.task.init.pid.unwrap_or(0),
            });
        }
        answer(reply, outcome);
        if effects.contains(&Effect::KillLeftovers) {
            self.kill_leftovers();
        }
        self.check_drain();
    }

    fn on_frozen(
        &mut self,
        operation: &Operation,
        caller: Caller,
        mut result: TaskResult<()>,
        event: InitEvent,
        verb: &str,
    ) {
        self.conclude(operation, result.as_ref().err());
        let Verdict::Go(next, effects) = next_init(self.task.init.state, event) else {
            return self.answer_caller(caller, Err(ended(verb)));
        };
        let changes = next != self.task.init.state;
        self.task.init.state = next;
        if changes && let Err(error) = self.commit(None) {
            result = result.and(Err(error));
        }
        self.show_init();
        for effect in effects {
            match effect {
                Effect::PublishPaused => self.emit(TaskEventKind::Paused),
                Effect::PublishResumed => self.emit(TaskEventKind::Resumed),
                Effect::Thaw => self.thaw(),
                Effect::AnswerEnded => result = Err(ended(verb)),
                _ => {}
            }
        }
        self.answer_caller(caller, result);
        self.check_drain();
    }

    fn on_init_exited(&mut self, end: TaskEnd) {
        let Verdict::Go(next, effects) = next_init(self.task.init.state, InitEvent::Exited) else {
            return;
        };
        self.note_oom(&end);
        let end = match end {
            // Its delete killed it; the runtime has forgotten it before it could say so.
            TaskEnd::Unknown { .. } if self.task.init.state == InitState::Discarding => {
                TaskEnd::Seen {
                    status: SIGKILLED,
                    oom_killed: false,
                    exited_at: Utc::now(),
                }
            }
            end => end,
        };
        self.task.init.exit = Some(exit_of(end));
        self.task.init.state = next;
        for effect in effects {
            match effect {
                Effect::Thaw => self.thaw(),
                Effect::KillLeftovers => self.kill_leftovers(),
                Effect::CancelCapture => self.void_capture(),
                Effect::PublishExited => {
                    let _ = self.commit(None);
                    self.show_init();
                    self.emit_init_exit();
                }
                _ => {}
            }
        }
        if matches!(next, InitState::StartingEnded) || self.has_live_exec() {
            // It is told later, and kept from now on; a failure is logged and the next write repeats it.
            let _ = self.commit(None);
        }
        self.check_drain();
    }

    /// Tells the exit of the init process once no exec is left to tell before it.
    pub(super) fn check_drain(&mut self) {
        if self.task.init.state != InitState::Draining {
            return;
        }
        if self.has_live_exec() {
            let limit = self.engine.deadlines.exec_drain;
            self.drain_until
                .get_or_insert_with(|| Instant::now() + limit);
        } else {
            self.end_drain();
        }
    }

    pub(super) fn end_drain(&mut self) {
        self.drain_until = None;
        let Verdict::Go(next, _) = next_init(self.task.init.state, InitEvent::Drained) else {
            return;
        };
        if self.has_live_exec() {
            warn!(
                namespace = %self.key.namespace, container_id = %self.key.container_id,
                "execs outlive the init process; its exit is told before theirs"
            );
        }
        self.task.init.state = next;
        let _ = self.commit(None);
        self.show_init();
        self.emit_init_exit();
        self.unpark();
    }

    fn emit_init_exit(&mut self) {
        let Some(exit) = self.task.init.exit.clone() else {
            return;
        };
        if let (None, Some(reason)) = (exit.status, &exit.unknown_because) {
            warn!(
                namespace = %self.key.namespace, container_id = %self.key.container_id,
                reason, "the exit status is unknown"
            );
        }
        let pid = self.task.init.pid.unwrap_or(0);
        self.emit(TaskEventKind::Exited {
            exec_id: None,
            pid,
            exit,
        });
    }

    fn on_deleted(&mut self, operation: &Operation, result: TaskResult<()>) {
        let event = settled(&result, InitEvent::DeleteDone, InitEvent::DeleteFailed);
        let result = result.and_then(|()| self.ledger.remove());
        let event = if result.is_err() {
            InitEvent::DeleteFailed
        } else {
            event
        };
        let Verdict::Go(next, _) = next_init(self.task.init.state, event) else {
            return self.answer_deletes(&Err(ended("delete")));
        };
        self.task.init.state = next;
        if let Err(error) = result {
            self.conclude(operation, Some(&error));
            let _ = self.commit(None);
            self.show_init();
            return self.answer_deletes(&Err(error));
        }
        let pid = self.task.init.pid.unwrap_or(0);
        let seen = self.task.init.exit.clone();
        // A container that was never started was killed by its delete.
        let exit = seen.clone().unwrap_or_else(|| TaskExit {
            status: Some(SIGKILLED),
            exited_at: Utc::now(),
            unknown_because: None,
        });
        if seen.is_none() {
            self.task.init.exit = Some(exit.clone());
            self.emit_init_exit();
        }
        self.show_init();
        self.let_go();
        self.emit(TaskEventKind::Deleted { pid, exit });
        self.answer_deletes(&Ok(TaskDeleted { pid, exit: seen }));
    }

    fn on_runtime_events(&mut self, events: &TaskRuntimeEvents) {
        let mut new = 0;
        for sequence in &events.out_of_memory {
            if *sequence > self.last_oom {
                self.last_oom = *sequence;
                new += 1;
            }
        }
        self.tell_oom(new);
    }

    /// An exit that says so itself is told as out of memory, when no event said it.
    pub(super) fn note_oom(&mut self, end: &TaskEnd) {
        if matches!(
            end,
            TaskEnd::Seen {
                oom_killed: true,
                ..
            }
        ) && self.task.oom_events == 0
        {
            self.tell_oom(1);
        }
    }

    fn tell_oom(&mut self, count: u64) {
        if count == 0 || self.task.init.state == InitState::Gone {
            return;
        }
        self.task.oom_events = self.task.oom_events.saturating_add(count);
        let _ = self.commit(None);
        for _ in 0..count {
            self.emit(TaskEventKind::OutOfMemory);
        }
    }
}

/// The machine's event for how an effect ended.
pub(super) fn settled<T, E>(result: &TaskResult<T>, done: E, failed: E) -> E {
    if result.is_ok() { done } else { failed }
}

pub(super) fn ended(verb: &str) -> TaskError {
    TaskError::WrongState(format!("cannot {verb} a stopped container"))
}

pub(crate) fn exit_of(end: TaskEnd) -> TaskExit {
    match end {
        TaskEnd::Seen {
            status, exited_at, ..
        } => TaskExit {
            status: Some(status),
            exited_at,
            unknown_because: None,
        },
        TaskEnd::Unknown { reason } => TaskExit {
            status: None,
            exited_at: Utc::now(),
            unknown_because: Some(reason),
        },
    }
}
