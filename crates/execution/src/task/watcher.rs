//! Waiting for exits and for out-of-memory events: one pending call each, no polling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use a3sbox_oci::ProcessId;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::backend::{TaskBackend, TaskEnd, TaskRuntimeEvents};
use super::limits::{Deadlines, EVENT_BATCH};
use super::request::Report;
use super::{TaskError, TaskResult};
use crate::{BoxRecord, LocalExecutionBackend};

/// A poll that ends sooner than this with nothing at all did not wait; it is not repeated at once.
const SHORTEST_POLL: Duration = Duration::from_millis(50);

/// The backend of one execution, as effects and watchers share it.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn LocalExecutionBackend>,
    pub(crate) deadlines: Deadlines,
    /// Sequence of the last runtime event that was read.
    pub(crate) cursor: Arc<AtomicU64>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn LocalExecutionBackend>, deadlines: Deadlines) -> Self {
        Self {
            backend,
            deadlines,
            cursor: Arc::new(AtomicU64::new(0)),
        }
    }

    pub(crate) fn task(&self) -> TaskResult<&dyn TaskBackend> {
        self.backend.task_backend().ok_or_else(|| {
            TaskError::Unsupported("this execution backend has no task verbs".to_owned())
        })
    }

    /// Reads what is there after the cursor, within the named deadline.
    async fn events(&self, record: &BoxRecord, wait: Duration) -> TaskResult<TaskRuntimeEvents> {
        let after = self.cursor.load(Ordering::Acquire);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let limit = wait + self.deadlines.oom_flush;
        let events = timeout(
            limit,
            self.task()?.events(record, after, EVENT_BATCH, wait_ms),
        )
        .await
        .map_err(|_| TaskError::DeadlineExceeded("runtime events".to_owned()))??;
        Ok(events)
    }

    /// Waits for the end of a process and for the runtime events that belong before it.
    pub(crate) async fn end_of(
        &self,
        record: &BoxRecord,
        process: &ProcessId,
    ) -> (TaskEnd, TaskRuntimeEvents) {
        let end = self.await_end(record, process).await;
        let may_be_oom = process.is_init()
            || matches!(
                end,
                TaskEnd::Seen {
                    status: SIGKILLED,
                    ..
                } | TaskEnd::Unknown { .. }
            );
        let events = if may_be_oom {
            self.events(record, Duration::ZERO)
                .await
                .unwrap_or_default()
        } else {
            TaskRuntimeEvents::default()
        };
        (end, events)
    }

    async fn await_end(&self, record: &BoxRecord, process: &ProcessId) -> TaskEnd {
        let mut lost_since: Option<Instant> = None;
        loop {
            let waited = match self.task() {
                Ok(task) => task.wait(record, process).await,
                Err(error) => Err(error),
            };
            let error = match waited {
                Ok(end) => return end,
                Err(error) => error,
            };
            match error {
                // A wait budget of the service ended; the process has not.
                TaskError::DeadlineExceeded(_) => lost_since = None,
                TaskError::Unavailable(_) => {
                    let since = *lost_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.deadlines.wait_lost {
                        return TaskEnd::Unknown {
                            reason: format!("the runtime service was lost: {error}"),
                        };
                    }
                }
                other => {
                    return TaskEnd::Unknown {
                        reason: other.to_string(),
                    };
                }
            }
            sleep(self.deadlines.retry_pause).await;
        }
    }

    /// Reports out-of-memory events until the runtime has none to give any more.
    pub(crate) async fn watch_events(self, record: Arc<BoxRecord>, reports: mpsc::Sender<Report>) {
        loop {
            let began = Instant::now();
            let is_idle = match self.events(&record, self.deadlines.event_poll).await {
                Ok(events) => {
                    let next = events.next;
                    if !events.out_of_memory.is_empty()
                        && reports.send(Report::RuntimeEvents(events)).await.is_err()
                    {
                        return;
                    }
                    // Only now: a flush before an exit may read an event twice, never miss one.
                    let before = self.cursor.fetch_max(next, Ordering::AcqRel);
                    next <= before && began.elapsed() < SHORTEST_POLL
                }
                Err(
                    TaskError::Unsupported(_)
                    | TaskError::NotFound(_)
                    | TaskError::FailedPrecondition(_),
                ) => return,
                Err(_) => true,
            };
            if is_idle {
                sleep(self.deadlines.retry_pause).await;
            }
        }
    }
}

/// 128 + SIGKILL.
pub(crate) const SIGKILLED: u32 = 137;
