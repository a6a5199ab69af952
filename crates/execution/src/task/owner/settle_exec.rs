//! Reports about execs.

use super::Owner;
use super::exec::no_such_process;
use super::settle::{exit_of, settled};
use crate::task::TaskResult;
use crate::task::backend::TaskEnd;
use crate::task::ledger::{Operation, Verb};
use crate::task::machine::{ExecEvent, ExecState, Verdict, next_exec};
use crate::task::request::{Reply, answer};
use crate::task::types::{TaskDeleted, TaskEventKind};

impl Owner {
    pub(super) fn on_exec_started(
        &mut self,
        operation: &Operation,
        exec_id: &str,
        reply: Reply<u32>,
        result: TaskResult<u32>,
    ) {
        let event = settled(&result, ExecEvent::StartDone, ExecEvent::StartFailed);
        self.conclude(operation, result.as_ref().err());
        let Some(slot) = self.task.execs.get_mut(exec_id) else {
            return answer(reply, Err(no_such_process(exec_id)));
        };
        let Verdict::Go(next, _) = next_exec(slot.state, event) else {
            return answer(reply, Err(no_such_process(exec_id)));
        };
        slot.state = next;
        slot.pid = result.as_ref().ok().copied();
        let process_id = slot.process_id.clone();
        let committed = self.commit(None);
        self.show_exec(exec_id, result.is_err());
        if let (Ok(pid), Some(process_id)) = (&result, process_id) {
            self.emit(TaskEventKind::ExecStarted {
                exec_id: exec_id.to_owned(),
                pid: *pid,
            });
            self.watch_exit(Some(exec_id.to_owned()), process_id.clone());
            if self.execs.get(exec_id).is_some_and(|exec| exec.close_stdin)
                && let Ok(operation) = self.intend(Verb::CloseStdin, Some(exec_id))
            {
                self.spawn_close_stdin(operation, process_id, None);
            }
        }
        answer(reply, result.and_then(|pid| committed.map(|()| pid)));
        self.check_drain();
    }

    pub(super) fn on_exec_exited(&mut self, exec_id: &str, end: TaskEnd) {
        self.note_oom(&end);
        let Some(slot) = self.task.execs.get_mut(exec_id) else {
            return;
        };
        let Verdict::Go(next, _) = next_exec(slot.state, ExecEvent::Exited) else {
            return;
        };
        let exit = exit_of(end);
        let pid = slot.pid.unwrap_or(0);
        slot.state = next;
        slot.exit = Some(exit.clone());
        // An exit that cannot be written is told all the same: nobody may hang on a full disk.
        let _ = self.commit(None);
        self.show_exec(exec_id, false);
        self.emit(TaskEventKind::Exited {
            exec_id: Some(exec_id.to_owned()),
            pid,
            exit,
        });
        self.check_drain();
    }

    pub(super) fn has_live_exec(&self) -> bool {
        self.task.execs.values().any(|slot| slot.state.is_live())
    }

    pub(super) fn on_exec_deleted(
        &mut self,
        operation: &Operation,
        exec_id: &str,
        result: TaskResult<()>,
    ) {
        let event = settled(&result, ExecEvent::DeleteDone, ExecEvent::DeleteFailed);
        let Some(slot) = self.task.execs.get_mut(exec_id) else {
            return;
        };
        let Verdict::Go(next, _) = next_exec(slot.state, event) else {
            return;
        };
        slot.state = next;
        let deleted = TaskDeleted {
            pid: slot.pid.unwrap_or(0),
            exit: slot.exit.clone(),
        };
        let mut result = result.map(|()| deleted);
        if matches!(next, ExecState::Gone) {
            self.task.execs.remove(exec_id);
        }
        // The outcome may compact the journal, so the record forgets the exec first.
        if let Err(error) = self.commit(None) {
            result = result.and(Err(error));
        }
        self.conclude(operation, result.as_ref().err());
        let waiting = if matches!(next, ExecState::Gone) {
            self.directory.remove(exec_id);
            self.execs.remove(exec_id).map(|exec| exec.deleting)
        } else {
            self.execs
                .get_mut(exec_id)
                .map(|exec| std::mem::take(&mut exec.deleting))
        };
        for reply in waiting.unwrap_or_default() {
            answer(reply, result.clone());
        }
    }
}
