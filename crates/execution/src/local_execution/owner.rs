//! Who may write an execution's record: this manager by a transaction, or the owner of a containerd task.
//!
//! A task has one owner, the process that holds the lock of its folder. Where the owner lives in this
//! manager the contract's verbs go through it; where it does not, nobody else writes, and the caller is
//! told whom to ask.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};

use super::manager::LocalExecutionManager;
use super::observe::was_rebooted;
use crate::ManagedExecutionState;
use crate::store::{BoxRecord, Ownership};
use crate::task::{TaskObservation, TaskOwner, manager_error, reconcile};

impl LocalExecutionManager {
    /// The owner that a verb on this record goes through; `None` for a record that no task has.
    ///
    /// # Errors
    /// `Unavailable` for a task whose owner does not live here, naming the process that owns it.
    pub(super) fn owner_of(
        &self,
        record: &BoxRecord,
        verb: &str,
    ) -> ExecutionManagerResult<Option<TaskOwner>> {
        let Some(task) = &record.metadata()?.task else {
            return Ok(None);
        };
        if let Some(owner) = self.tasks.owner_of(&task.key, &record.id) {
            return Ok(Some(owner));
        }
        let id = &record.id;
        let reason = match self.store.ownership(&task.key) {
            Ownership::Owned { pid } if pid == std::process::id() => {
                format!("execution {id} is being created or taken away; {verb} it afterwards")
            }
            Ownership::Owned { pid } => {
                format!("execution {id} is owned by process {pid}: {verb} it there")
            }
            Ownership::Free => format!(
                "execution {id} has lost its owner: only its container's delete may act on it now"
            ),
        };
        Err(ExecutionManagerError::Unavailable(reason))
    }

    /// The state that a task is in. Its living owner keeps the record true; where it has none, the runtime
    /// is asked, and nothing is written: the end of a lost owner's container is for its delete to record.
    /// `None` for a record that no task has.
    ///
    /// # Errors
    /// What the look says when the runtime does not answer, or has something else under that name.
    pub(super) async fn task_truth(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<Option<ManagedExecutionState>> {
        let recorded = record.state()?;
        let Some(task) = &record.metadata()?.task else {
            return Ok(None);
        };
        let has_owner = self.tasks.owner_of(&task.key, &record.id).is_some()
            || self.store.ownership(&task.key) != Ownership::Free;
        if has_owner || recorded.is_terminal() {
            return Ok(Some(recorded));
        }
        let observed = if was_rebooted(record) {
            TaskObservation::Absent
        } else {
            self.tasks.observe(record).await.map_err(manager_error)?
        };
        let state = reconcile(task.init.state, &observed);
        Ok(Some(state.durable(recorded)))
    }
}

/// A verb that would take containerd's own decision out of its hands.
pub(super) fn not_ours(record: &BoxRecord, verb: &str) -> ExecutionManagerError {
    ExecutionManagerError::Unavailable(format!(
        "execution {} is a containerd task: containerd owns its lifecycle, {verb} it through its task",
        record.id
    ))
}
