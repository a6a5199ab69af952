//! What readers see of an execution without asking its owner.
//!
//! State and Wait subscribe here: they cost the same with one container and with a thousand, and no slow
//! effect stands in front of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use a3sbox_oci::{ProcessId, StdioUris};
use tokio::sync::watch;

use super::machine::{ExecState, InitState};
use super::types::{TaskExit, TaskStatus};

/// The published state of one process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessView {
    pub(crate) status: TaskStatus,
    pub(crate) pid: u32,
    pub(crate) stdio: StdioUris,
    pub(crate) exit: Option<TaskExit>,
    /// The latest start failed: there is no exit to wait for.
    pub(crate) start_failed: bool,
    pub(crate) process_id: Option<ProcessId>,
}

impl ProcessView {
    pub(crate) fn declared(stdio: StdioUris) -> Self {
        Self {
            status: TaskStatus::Created,
            pid: 0,
            stdio,
            exit: None,
            start_failed: false,
            process_id: None,
        }
    }
}

/// The execs of one execution by exec id.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExecDirectory {
    entries: Arc<Mutex<HashMap<String, watch::Receiver<ProcessView>>>>,
}

impl ExecDirectory {
    pub(crate) fn insert(&self, exec_id: &str, view: watch::Receiver<ProcessView>) {
        self.lock().insert(exec_id.to_owned(), view);
    }

    pub(crate) fn remove(&self, exec_id: &str) {
        self.lock().remove(exec_id);
    }

    pub(crate) fn get(&self, exec_id: &str) -> Option<watch::Receiver<ProcessView>> {
        self.lock().get(exec_id).cloned()
    }

    /// Exec ids by the runtime's process id and by pid.
    pub(crate) fn names(&self) -> Vec<(String, u32, Option<ProcessId>)> {
        self.lock()
            .iter()
            .map(|(exec_id, view)| {
                let view = view.borrow();
                (exec_id.clone(), view.pid, view.process_id.clone())
            })
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, watch::Receiver<ProcessView>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How containerd names the state of an init process.
pub(crate) const fn init_status(state: InitState) -> TaskStatus {
    match state {
        InitState::Creating
        | InitState::Created
        | InitState::Starting
        | InitState::StartingEnded
        | InitState::Discarding => TaskStatus::Created,
        // A snapshot's freeze is short and no pause of anybody's.
        InitState::Running
        | InitState::Updating
        | InitState::Snapshotting
        | InitState::Killing
        | InitState::Draining => TaskStatus::Running,
        InitState::Pausing => TaskStatus::Pausing,
        InitState::Paused | InitState::Resuming | InitState::SnapshottingPaused => {
            TaskStatus::Paused
        }
        InitState::Stopped | InitState::Deleting | InitState::Gone => TaskStatus::Stopped,
    }
}

/// How containerd names the state of an exec in a container that is not paused.
pub(crate) const fn exec_status(state: ExecState) -> TaskStatus {
    match state {
        ExecState::Declared | ExecState::Starting | ExecState::Discarding => TaskStatus::Created,
        ExecState::Running => TaskStatus::Running,
        ExecState::Stopped | ExecState::Deleting | ExecState::Gone => TaskStatus::Stopped,
    }
}
