//! The contract's verbs inside the owner.
//!
//! A caller names the generation that it decided on. The manager checked it against the record; here it is
//! checked once more, since the first check can go stale in the queue. Then the machine decides, exactly
//! as for containerd's verbs, and a verb that does not fit is a conflict: it never waits, and it touched
//! nothing.

mod effect;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::effect::{Freeze, Kill, capture, deliver};
use super::Owner;
use super::init::{SIGKILL, pause_claim, resume_claim};
use super::settle::ended;
use crate::local_execution::{SnapshotSource, kill_signal};
use crate::store::merge_resource_update;
use crate::task::ledger::{Operation, Verb};
use crate::task::machine::{Effect, InitEvent, InitState, Verdict, next_init};
use crate::task::request::{Caller, FencedAnswer, FencedCall, FencedReply, FencedVerb, Report};
use crate::task::watcher::Engine;
use crate::task::{TaskError, TaskResult};
use crate::{BoxRecord, ManagedExecutionOperation as Claim, ManagedExecutionState};
use a3sbox_core::{
    ExecutionManagerError, ExecutionManagerResult, ExecutionResourceUpdate, ExecutionSnapshotId,
    Fence, KillExecutionOptions,
};

impl Owner {
    pub(super) fn on_fenced(&mut self, call: FencedCall) {
        let id = self.ledger.execution_id().clone();
        let fence = Fence::new(&id, self.ledger.generation());
        if let Err(stale) = fence.admit(call.generation) {
            return refuse(call.reply, stale);
        }
        if let FencedVerb::Update(update) = &call.verb
            && let Some(known) = self.known_update(&call, update)
        {
            let _ = call.reply.send(known);
            return;
        }
        match next_init(self.task.init.state, call.verb.event()) {
            Verdict::Go(next, effects) => self.begin_fenced(next, effects, call),
            Verdict::Done => self.tell(call.reply, true),
            Verdict::Refuse(_) | Verdict::Defer | Verdict::Join | Verdict::Ignore => {
                let conflict = self.does_not_fit(call.verb.name());
                refuse(call.reply, conflict);
            }
        }
    }

    /// A resource update that was done before, or whose id was used for another one.
    fn known_update(
        &self,
        call: &FencedCall,
        update: &ExecutionResourceUpdate,
    ) -> Option<ExecutionManagerResult<FencedAnswer>> {
        let record = self.ledger.record();
        let managed = record.managed_execution.as_ref()?;
        let done = managed.completed_update(&call.operation_id);
        let pending = match &managed.pending_operation {
            Some(Claim::UpdateResources {
                operation_id,
                update,
            }) => Some((operation_id, update)),
            _ => None,
        };
        let known = done.map(|done| (&done.operation_id, &done.update));
        let (_, content) = [known, pending]
            .into_iter()
            .flatten()
            .find(|(id, _)| **id == call.operation_id)?;
        if content != update {
            return Some(Err(
                self.conflict("the operation id was used for another resource update")
            ));
        }
        // The one that is under way is refused by its state.
        known.filter(|(id, _)| **id == call.operation_id)?;
        Some(Ok(FencedAnswer {
            record: Arc::clone(&record),
            is_already: true,
        }))
    }

    fn begin_fenced(&mut self, next: InitState, effects: &'static [Effect], call: FencedCall) {
        let verb = match &call.verb {
            FencedVerb::Pause => Verb::Pause,
            FencedVerb::Resume => Verb::Resume,
            FencedVerb::Update(_) => Verb::Update,
            FencedVerb::Snapshot { .. } => Verb::Snapshot,
            FencedVerb::Kill(_) => Verb::Kill,
        };
        let operation = match Operation::named(call.operation_id, verb) {
            Ok(operation) => operation,
            Err(error) => return self.refuse_fenced(call.reply, error),
        };
        let begun = match call.verb {
            FencedVerb::Pause => self
                .claim_as(next, &operation, pause_claim(&operation))
                .map(|()| Begun::Pause),
            FencedVerb::Resume => self
                .claim_as(next, &operation, resume_claim(&operation))
                .map(|()| Begun::Resume),
            FencedVerb::Update(update) => {
                let claim = Claim::UpdateResources {
                    operation_id: operation.id.clone(),
                    update: update.clone(),
                };
                self.claim_as(next, &operation, claim)
                    .map(|()| Begun::Update(update))
            }
            FencedVerb::Snapshot { snapshot_id, home } => {
                let is_paused = self.task.init.state == InitState::Paused;
                self.claim_snapshot(next, &operation, &snapshot_id, is_paused)
                    .map(|freeze| {
                        let source = SnapshotSource::new(
                            Arc::clone(&self.engine.backend),
                            home,
                            snapshot_id,
                        );
                        Begun::Snapshot(source, freeze)
                    })
            }
            FencedVerb::Kill(options) => self
                .claim_kill(next, &operation, options)
                .map(|signal| Begun::Kill(signal, options)),
        };
        match begun {
            Ok(Begun::Pause) => self.spawn_pause(operation, Caller::Fenced(call.reply)),
            Ok(Begun::Resume) => self.spawn_resume(operation, Caller::Fenced(call.reply)),
            Ok(Begun::Update(update)) => self.spawn_update(operation, update, call.reply),
            Ok(Begun::Snapshot(source, freeze)) => {
                self.spawn_capture(operation, source, freeze, call.reply);
            }
            Ok(Begun::Kill(signal, options)) => {
                if effects.contains(&Effect::CancelCapture) {
                    self.void_capture();
                }
                let is_frozen = effects.contains(&Effect::Thaw);
                self.spawn_kill(operation, signal, options, is_frozen, call.reply);
            }
            Err(error) => self.refuse_fenced(call.reply, error),
        }
    }

    fn claim_snapshot(
        &mut self,
        next: InitState,
        operation: &Operation,
        snapshot_id: &ExecutionSnapshotId,
        is_paused: bool,
    ) -> TaskResult<Freeze> {
        let freeze = Freeze {
            freeze: operation.part("freeze")?,
            thaw: operation.part("thaw")?,
            is_paused,
        };
        let claim = Claim::Snapshot {
            snapshot_id: snapshot_id.clone(),
            source_state: if is_paused {
                ManagedExecutionState::Paused
            } else {
                ManagedExecutionState::Running
            },
            operation_id: operation.id.clone(),
            freezer_applied: false,
        };
        self.claim_as(next, operation, claim)?;
        Ok(freeze)
    }

    /// The signal of a kill. Only an owner that changes its state has something to claim.
    fn claim_kill(
        &mut self,
        next: InitState,
        operation: &Operation,
        options: KillExecutionOptions,
    ) -> TaskResult<i32> {
        // A process that was never started ignores every signal that can be ignored.
        let signal = if self.task.init.was_started {
            kill_signal(&self.ledger.record(), options.signal)?
        } else {
            SIGKILL
        };
        if next == InitState::Killing {
            let was_killed = std::mem::replace(&mut self.task.is_killed, true);
            let claim = Claim::Kill {
                signal: options.signal,
                timeout_secs: options.timeout_secs,
            };
            self.claim_as(next, operation, claim)
                .inspect_err(|_| self.task.is_killed = was_killed)?;
        } else {
            self.ledger.intend_as(operation)?;
        }
        Ok(signal)
    }

    fn spawn_update(
        &mut self,
        operation: Operation,
        update: ExecutionResourceUpdate,
        reply: FencedReply,
    ) {
        let id = operation.id.clone();
        let wanted = update.clone();
        self.spawn(
            &operation.clone(),
            self.engine.deadlines.update,
            "the update",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                Ok(engine.backend.update_resources(&record, &id, &wanted).await)
            },
            move |result| Report::Updated {
                operation,
                update,
                reply,
                result: flatten(result),
            },
        );
    }

    fn spawn_capture(
        &mut self,
        operation: Operation,
        source: SnapshotSource,
        freeze: Freeze,
        reply: FencedReply,
    ) {
        let is_void = Arc::new(AtomicBool::new(false));
        self.capture_is_void = Some(Arc::clone(&is_void));
        self.spawn(
            &operation.clone(),
            // A capture copies a whole filesystem.
            self.engine.deadlines.checkpoint,
            "the snapshot",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                Ok(capture(&engine, &record, &source, &freeze, &is_void).await)
            },
            move |result| {
                let (is_frozen, result) = match result {
                    Ok(captured) => captured,
                    Err(error) => (false, Err(manager_error(error))),
                };
                Report::Captured {
                    operation,
                    reply,
                    is_frozen,
                    result,
                }
            },
        );
    }

    fn spawn_kill(
        &mut self,
        operation: Operation,
        signal: i32,
        options: KillExecutionOptions,
        is_frozen: bool,
        reply: FencedReply,
    ) {
        let patience = options.timeout_secs.map(Duration::from_secs);
        let limit = self.engine.deadlines.signal * 3;
        let view = self.init_view.subscribe();
        let kill = Kill {
            signal,
            patience: patience.filter(|_| signal != SIGKILL),
            is_frozen: is_frozen && signal != SIGKILL,
        };
        let named = operation.clone();
        self.spawn(
            &operation.clone(),
            limit.saturating_add(patience.unwrap_or_default()),
            "the kill",
            move |engine: Engine, record: Arc<BoxRecord>| async move {
                deliver(&engine, &record, &named, kill, view).await
            },
            move |result| Report::Killed {
                operation,
                reply,
                result,
            },
        );
    }

    pub(super) fn void_capture(&mut self) {
        if let Some(is_void) = self.capture_is_void.take() {
            is_void.store(true, Ordering::Release);
        }
    }

    pub(super) fn on_updated(
        &mut self,
        operation: &Operation,
        update: ExecutionResourceUpdate,
        reply: FencedReply,
        result: ExecutionManagerResult<()>,
    ) {
        let failure = result.as_ref().err().map(journalled);
        self.conclude(operation, failure.as_ref());
        let event = if result.is_ok() {
            InitEvent::FencedUpdateDone
        } else {
            InitEvent::FencedUpdateFailed
        };
        let Some(next) = self.settles(event) else {
            let error = self.overtaken("update");
            return refuse(reply, error);
        };
        self.task.init.state = next;
        let is_done = result.is_ok();
        let id = operation.id.clone();
        let written = self.ledger.commit_with(&self.task, |record| {
            if is_done {
                merge_resource_update(record, id, update);
            }
        });
        self.show_init();
        match (result, written) {
            (Ok(()), Ok(())) => self.tell(reply, false),
            (Err(error), _) => refuse(reply, error),
            (Ok(()), Err(error)) => self.refuse_fenced(reply, error),
        }
    }

    pub(super) fn on_captured(
        &mut self,
        operation: &Operation,
        reply: FencedReply,
        is_frozen: bool,
        result: ExecutionManagerResult<()>,
    ) {
        self.capture_is_void = None;
        let failure = result.as_ref().err().map(journalled);
        self.conclude(operation, failure.as_ref());
        let event = match (is_frozen, &result) {
            (true, _) => InitEvent::FencedSnapshotFrozen,
            (false, Ok(())) => InitEvent::FencedSnapshotDone,
            (false, Err(_)) => InitEvent::FencedSnapshotFailed,
        };
        let Verdict::Go(next, effects) = next_init(self.task.init.state, event) else {
            let error = self.overtaken("snapshot");
            return refuse(reply, error);
        };
        if effects.contains(&Effect::AnswerEnded) {
            if effects.contains(&Effect::Thaw) {
                self.thaw();
            }
            let error = self.overtaken("snapshot");
            return refuse(reply, error);
        }
        self.task.init.state = next;
        let written = self.commit(None);
        self.show_init();
        if effects.contains(&Effect::PublishPaused) {
            self.emit(crate::task::TaskEventKind::Paused);
        }
        match (result, written) {
            (Ok(()), Ok(())) => self.tell(reply, false),
            (Err(error), _) => refuse(reply, error),
            (Ok(()), Err(error)) => self.refuse_fenced(reply, error),
        }
    }

    pub(super) fn on_killed(
        &mut self,
        operation: &Operation,
        reply: FencedReply,
        result: TaskResult<bool>,
    ) {
        self.conclude(operation, result.as_ref().err());
        match result {
            Ok(is_already) => self.tell(reply, is_already),
            Err(error) => self.refuse_fenced(reply, error),
        }
    }

    /// The state behind a report, unless the end or a kill overtook what it reports.
    fn settles(&self, event: InitEvent) -> Option<InitState> {
        match next_init(self.task.init.state, event) {
            Verdict::Go(next, effects) if !effects.contains(&Effect::AnswerEnded) => Some(next),
            _ => None,
        }
    }

    pub(super) fn answer_caller(&self, caller: Caller, result: TaskResult<()>) {
        match (caller, result) {
            (Caller::Task(reply), result) => crate::task::request::answer(reply, result),
            (Caller::Fenced(reply), Ok(())) => self.tell(reply, false),
            (Caller::Fenced(reply), Err(error)) => self.refuse_fenced(reply, error),
        }
    }

    fn tell(&self, reply: FencedReply, is_already: bool) {
        let _ = reply.send(Ok(FencedAnswer {
            record: self.ledger.record(),
            is_already,
        }));
    }

    fn refuse_fenced(&self, reply: FencedReply, error: TaskError) {
        let refusal = match error {
            TaskError::FailedPrecondition(text) | TaskError::WrongState(text) => {
                self.conflict(&text)
            }
            other => manager_error(other),
        };
        refuse(reply, refusal);
    }

    fn does_not_fit(&self, verb: &str) -> ExecutionManagerError {
        let state = self.ledger.state();
        self.conflict(&format!("cannot {verb} an execution that is {state}"))
    }

    fn overtaken(&self, verb: &str) -> ExecutionManagerError {
        self.conflict(&ended(verb).to_string())
    }

    fn conflict(&self, message: &str) -> ExecutionManagerError {
        ExecutionManagerError::Conflict {
            execution_id: self.ledger.execution_id().clone(),
            message: message.to_owned(),
        }
    }
}

/// A claimed verb whose effect is about to be spawned.
enum Begun {
    Pause,
    Resume,
    Update(ExecutionResourceUpdate),
    Snapshot(SnapshotSource, Freeze),
    Kill(i32, KillExecutionOptions),
}

/// An outcome's text in the journal.
fn journalled(error: &ExecutionManagerError) -> TaskError {
    TaskError::Internal(error.to_string())
}

fn flatten(result: TaskResult<ExecutionManagerResult<()>>) -> ExecutionManagerResult<()> {
    result.unwrap_or_else(|error| Err(manager_error(error)))
}

fn refuse(reply: FencedReply, error: ExecutionManagerError) {
    let _ = reply.send(Err(error));
}

/// The class of a task's error in the contract's vocabulary.
pub(crate) fn manager_error(error: TaskError) -> ExecutionManagerError {
    match error {
        TaskError::InvalidArgument(text) => ExecutionManagerError::InvalidRequest(text),
        TaskError::NotFound(text)
        | TaskError::AlreadyExists(text)
        | TaskError::FailedPrecondition(text)
        | TaskError::WrongState(text)
        | TaskError::Unsupported(text)
        | TaskError::ResourceExhausted(text)
        | TaskError::DeadlineExceeded(text)
        | TaskError::PermissionDenied(text)
        | TaskError::Unavailable(text) => ExecutionManagerError::Unavailable(text),
        TaskError::Internal(text) => ExecutionManagerError::Internal(text),
    }
}
