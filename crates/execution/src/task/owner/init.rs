//! Verbs on the init process and the container.

use std::sync::Arc;

use a3sbox_oci::ProcessId;

use super::Owner;
use crate::task::backend::{TaskInit, TaskObservation};
use crate::task::ledger::{Operation, Verb};
use crate::task::machine::{Effect, InitEvent, InitState, Verdict, next_init};
use crate::task::request::{Caller, Report, Request, answer};
use crate::task::watcher::Engine;
use crate::task::{TaskError, TaskResult};
use crate::{BoxRecord, ManagedExecutionOperation as Claim};

impl Owner {
    pub(super) fn on_init_request(&mut self, event: InitEvent, request: Request) {
        match next_init(self.task.init.state, event) {
            Verdict::Go(next, effects) => self.begin(next, effects, request),
            Verdict::Refuse(refusal) => {
                request.refuse(refusal.into_error(&self.key.container_id));
            }
            Verdict::Defer => self.park(request),
            Verdict::Join => self.join_delete(request),
            Verdict::Done => request.succeed(),
            Verdict::Ignore => request.refuse(TaskError::Internal("a verb was ignored".to_owned())),
        }
    }

    fn join_delete(&mut self, request: Request) {
        if let Request::Delete { reply, .. } = request {
            self.deleting.push(reply);
        }
    }

    /// Begins what the machine decided. The first effect of a verb is the one that calls the runtime.
    fn begin(&mut self, next: InitState, effects: &'static [Effect], request: Request) {
        let effect = effects.first().copied();
        let limits = self.engine.deadlines;
        match (effect, request) {
            (Some(Effect::Proceed), request) => self.on_exec_request(request),
            (Some(Effect::Start), Request::Start { reply }) => {
                let operation = match self.claim(next, Verb::Start, |_| Claim::Start) {
                    Ok(operation) => operation,
                    Err(error) => return answer(reply, Err(error)),
                };
                let context = operation.context.clone();
                self.spawn(
                    &operation.clone(),
                    limits.start,
                    "the start",
                    move |engine: Engine, record: Arc<BoxRecord>| async move {
                        let started = engine.task()?.start(&record, &context).await;
                        settle_start(&engine, &record, started).await
                    },
                    move |result| Report::Started {
                        operation,
                        reply,
                        result,
                    },
                );
            }
            (Some(Effect::Pause), Request::Pause { reply }) => {
                let operation = match self.claim(next, Verb::Pause, pause_claim) {
                    Ok(operation) => operation,
                    Err(error) => return answer(reply, Err(error)),
                };
                self.spawn_pause(operation, Caller::Task(reply));
            }
            (Some(Effect::Resume), Request::Resume { reply }) => {
                let operation = match self.claim(next, Verb::Resume, resume_claim) {
                    Ok(operation) => operation,
                    Err(error) => return answer(reply, Err(error)),
                };
                self.spawn_resume(operation, Caller::Task(reply));
            }
            (Some(effect @ (Effect::Delete | Effect::Discard)), Request::Delete { reply, .. }) => {
                let operation = match self.claim(next, Verb::Delete, |_| Claim::Remove) {
                    Ok(operation) => operation,
                    Err(error) => return answer(reply, Err(error)),
                };
                self.deleting.push(reply);
                let context = operation.context.clone();
                let force = matches!(effect, Effect::Discard);
                self.spawn(
                    &operation.clone(),
                    limits.delete,
                    "the delete",
                    move |engine: Engine, record: Arc<BoxRecord>| async move {
                        engine.task()?.delete(&record, &context, force).await
                    },
                    move |result| Report::Deleted { operation, result },
                );
            }
            (_, request) => self.begin_stateless(request),
        }
    }

    /// Effects that change no state of the machine.
    fn begin_stateless(&mut self, request: Request) {
        let limits = self.engine.deadlines;
        match request {
            Request::Signal {
                signal: SIGNAL_OF_A_PROBE,
                reply,
                ..
            } => answer(reply, Ok(())),
            Request::Signal {
                process: None,
                signal,
                all,
                reply,
            } => {
                // Nothing may be left of an ended container, and then there is nothing to signal.
                let may_find_none = all && self.task.init.state == InitState::Stopped;
                let Some((operation, reply)) = self.intend_for(Verb::Signal, None, reply) else {
                    return;
                };
                let context = operation.context.clone();
                self.spawn(
                    &operation.clone(),
                    limits.signal,
                    "the signal",
                    move |engine: Engine, record: Arc<BoxRecord>| async move {
                        let init = ProcessId::init();
                        let signaled = engine
                            .task()?
                            .signal(&record, &context, &init, signal, all)
                            .await;
                        match signaled {
                            Err(TaskError::NotFound(_)) if may_find_none => Ok(()),
                            signaled => signaled,
                        }
                    },
                    move |result| Report::Settled {
                        operation,
                        checkpoint: None,
                        reply: Some(reply),
                        result,
                    },
                );
            }
            Request::Update { resources, reply } => {
                let Some((operation, reply)) = self.intend_for(Verb::Update, None, reply) else {
                    return;
                };
                let context = operation.context.clone();
                self.spawn(
                    &operation.clone(),
                    limits.update,
                    "the update",
                    move |engine: Engine, record: Arc<BoxRecord>| async move {
                        engine.task()?.update(&record, &context, *resources).await
                    },
                    move |result| Report::Settled {
                        operation,
                        checkpoint: None,
                        reply: Some(reply),
                        result,
                    },
                );
            }
            Request::Checkpoint { request, reply } => {
                let Some((operation, reply)) = self.intend_for(Verb::Checkpoint, None, reply)
                else {
                    return;
                };
                let context = operation.context.clone();
                let checkpoint = Some(request.image_path.clone());
                self.spawn(
                    &operation.clone(),
                    limits.checkpoint,
                    "the checkpoint",
                    move |engine: Engine, record: Arc<BoxRecord>| async move {
                        engine.task()?.checkpoint(&record, &context, &request).await
                    },
                    move |result| Report::Settled {
                        operation,
                        checkpoint,
                        reply: Some(reply),
                        result,
                    },
                );
            }
            Request::Resize {
                process: None,
                size,
                reply,
            } => {
                if !self.task.stdio.terminal {
                    return answer(reply, Err(no_terminal()));
                }
                let Some((operation, reply)) = self.intend_for(Verb::Resize, None, reply) else {
                    return;
                };
                self.spawn_resize(operation, ProcessId::init(), size, reply);
            }
            Request::CloseStdin {
                process: None,
                reply,
            } => {
                let Some((operation, reply)) = self.intend_for(Verb::CloseStdin, None, reply)
                else {
                    return;
                };
                self.spawn_close_stdin(operation, ProcessId::init(), Some(reply));
            }
            other => other.refuse(TaskError::Internal("a verb has no effect".to_owned())),
        }
    }

    pub(super) fn spawn_pause(&mut self, operation: Operation, caller: Caller) {
        let context = operation.context.clone();
        self.spawn(
            &operation.clone(),
            self.engine.deadlines.pause,
            "the pause",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                let paused = engine.task()?.pause(&record, &context).await;
                settle_freeze(&engine, &record, paused, true).await
            },
            move |result| Report::Paused {
                operation,
                caller,
                result,
            },
        );
    }

    pub(super) fn spawn_resume(&mut self, operation: Operation, caller: Caller) {
        let context = operation.context.clone();
        self.spawn(
            &operation.clone(),
            self.engine.deadlines.pause,
            "the resume",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                let resumed = engine.task()?.resume(&record, &context).await;
                settle_freeze(&engine, &record, resumed, false).await
            },
            move |result| Report::Resumed {
                operation,
                caller,
                result,
            },
        );
    }

    /// Journals the intent of a minted operation and records its claim, or leaves everything as it was.
    fn claim(
        &mut self,
        next: InitState,
        verb: Verb,
        claim: impl FnOnce(&Operation) -> Claim,
    ) -> TaskResult<Operation> {
        let operation = Operation::mint(verb)?;
        let claim = claim(&operation);
        self.claim_as(next, &operation, claim)?;
        Ok(operation)
    }

    /// The same for an operation that has its name already.
    pub(super) fn claim_as(
        &mut self,
        next: InitState,
        operation: &Operation,
        claim: Claim,
    ) -> TaskResult<()> {
        self.ledger.intend_as(operation)?;
        let before = self.task.init.state;
        self.task.init.state = next;
        if let Err(error) = self.commit(Some(claim)) {
            self.task.init.state = before;
            self.conclude(operation, Some(&error));
            return Err(error);
        }
        self.show_init();
        Ok(())
    }

    /// Resumes an ended container, so that nothing of it stays frozen. Nobody waits for it.
    pub(super) fn thaw(&mut self) {
        let Ok(operation) = self.intend(Verb::Thaw, None) else {
            return;
        };
        let context = operation.context.clone();
        let limit = self.engine.deadlines.pause;
        self.spawn(
            &operation.clone(),
            limit,
            "the thaw",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                engine.task()?.resume(&record, &context).await
            },
            move |result| Report::Settled {
                operation,
                checkpoint: None,
                reply: None,
                result,
            },
        );
    }

    /// Kills what outlives the init process when the container has no pid namespace of its own.
    pub(super) fn kill_leftovers(&mut self) {
        if !self.task.kill_leftovers {
            return;
        }
        let Ok(operation) = self.intend(Verb::Signal, None) else {
            return;
        };
        let context = operation.context.clone();
        let limit = self.engine.deadlines.signal;
        self.spawn(
            &operation.clone(),
            limit,
            "the kill of leftovers",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                let init = ProcessId::init();
                engine
                    .task()?
                    .signal(&record, &context, &init, SIGKILL, true)
                    .await
            },
            move |result| Report::Settled {
                operation,
                checkpoint: None,
                reply: None,
                result,
            },
        );
    }
}

pub(super) const SIGKILL: i32 = 9;
/// Asks whether the process is there, which the machine has answered by then.
pub(super) const SIGNAL_OF_A_PROBE: i32 = 0;

pub(super) fn pause_claim(operation: &Operation) -> Claim {
    Claim::Pause {
        keep_memory: true,
        operation_id: Some(operation.id.clone()),
    }
}

pub(super) fn resume_claim(operation: &Operation) -> Claim {
    Claim::Resume {
        operation_id: operation.id.clone(),
    }
}

pub(super) fn no_terminal() -> TaskError {
    TaskError::FailedPrecondition("cannot resize a process without a terminal".to_owned())
}

/// A start whose answer was lost is settled by looking: a running container was started.
async fn settle_start(
    engine: &Engine,
    record: &BoxRecord,
    started: TaskResult<TaskInit>,
) -> TaskResult<TaskInit> {
    let Err(TaskError::Unavailable(text)) = started else {
        return started;
    };
    match engine.task()?.inspect(record).await {
        Ok(TaskObservation::Running { process, .. }) => Ok(process),
        _ => Err(TaskError::Unavailable(text)),
    }
}

/// The same for a pause or resume: the observed freezer decides.
pub(super) async fn settle_freeze(
    engine: &Engine,
    record: &BoxRecord,
    settled: TaskResult<()>,
    wanted: bool,
) -> TaskResult<()> {
    let Err(TaskError::Unavailable(text)) = settled else {
        return settled;
    };
    match engine.task()?.inspect(record).await {
        Ok(TaskObservation::Running { paused, .. }) if paused == wanted => Ok(()),
        _ => Err(TaskError::Unavailable(text)),
    }
}
