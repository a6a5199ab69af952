//! One process of a container: how to signal it, its streams, and how it ended.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use a3sbox_oci::{Error, ErrorCode, ExitStatus};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::streamed::Streamed;
use crate::journal::{Exit, Operation};
use crate::native::identity::ProcessIdentity;
use crate::native::reaper::Watched;
use crate::stdio::Streams;

/// A process that the service was asked to run.
#[derive(Debug)]
pub(crate) struct ProcessSlot {
    pub(crate) terminal: bool,
    pub(crate) pid: u32,
    /// Absent when it had ended before this service looked for it.
    pub(crate) watched: Option<Arc<Watched>>,
    /// Absent for a process that was adopted without any.
    streams: OnceLock<Streams>,
    /// Verbs on its streams, one after the other, and those that were carried out.
    stream_turns: Semaphore,
    streamed: Mutex<Streamed>,
    exit: watch::Sender<Option<Exit>>,
    used: Mutex<Used>,
}

/// When a process was last asked for, and whether its exit was told.
#[derive(Debug)]
struct Used {
    at: Instant,
    told: bool,
}

impl ProcessSlot {
    pub(crate) fn running(watched: Arc<Watched>, terminal: bool) -> Self {
        Self::new(watched.pid(), terminal, Some(watched), None)
    }

    pub(crate) fn ended(pid: u32, terminal: bool, exit: Exit) -> Self {
        Self::new(pid, terminal, None, Some(exit))
    }

    fn new(pid: u32, terminal: bool, watched: Option<Arc<Watched>>, exit: Option<Exit>) -> Self {
        Self {
            terminal,
            pid,
            watched,
            streams: OnceLock::new(),
            stream_turns: Semaphore::new(1),
            streamed: Mutex::default(),
            exit: watch::Sender::new(exit),
            used: Mutex::new(Used {
                at: Instant::now(),
                told: false,
            }),
        }
    }

    /// Pid and start time, of a process that is watched.
    pub(crate) fn identity(&self) -> Option<ProcessIdentity> {
        self.watched.as_ref().map(|watched| watched.identity())
    }

    /// Its exit is recorded: tell those who wait. Later calls change nothing.
    pub(crate) fn publish_exit(&self, exit: Exit) {
        self.touch();
        self.exit.send_if_modified(|current| {
            let is_first = current.is_none();
            if is_first {
                *current = Some(exit);
            }
            is_first
        });
    }

    /// Somebody asks for it.
    pub(crate) fn touch(&self) {
        self.used().at = Instant::now();
    }

    /// How long nobody has asked for it.
    pub(crate) fn idle_for(&self) -> Duration {
        self.used().at.elapsed()
    }

    /// Whether somebody was told how it ended.
    pub(crate) fn was_told(&self) -> bool {
        self.used().told
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Waits for the recorded exit; `None` when the time is up.
    pub(crate) async fn wait_exit(&self, timeout: Option<Duration>) -> Option<Exit> {
        let mut exit = self.exit.subscribe();
        let ended = exit.wait_for(Option::is_some);
        let seen = match timeout {
            // The sender lives in `self`, so the wait cannot fail.
            None => ended.await.ok(),
            Some(timeout) => tokio::time::timeout(timeout, ended).await.ok()?.ok(),
        };
        seen.and_then(|exit| exit.clone())
    }

    /// The answer to a wait: a status that somebody saw, or why there is none.
    pub(crate) async fn wait(&self, timeout_ms: Option<u64>) -> Result<ExitStatus, Error> {
        let exit = self.wait_exit(timeout_ms.map(Duration::from_millis)).await;
        if exit.is_some() {
            *self.used() = Used {
                at: Instant::now(),
                told: true,
            };
        }
        match exit {
            Some(Exit::Known(status)) => Ok(status),
            Some(Exit::Unknown { because }) => {
                Err(Error::new(ErrorCode::FailedPrecondition, because))
            }
            None => Err(
                Error::new(ErrorCode::DeadlineExceeded, "the process is still running")
                    .retryable(true),
            ),
        }
    }

    pub(crate) fn streams(&self) -> Option<&Streams> {
        self.streams.get()
    }

    pub(crate) fn set_streams(&self, streams: Streams) {
        // Set once, before the slot is shared.
        let _ = self.streams.set(streams);
    }

    pub(crate) async fn stream_turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.stream_turns
            .acquire()
            .await
            .map_err(|_| Error::new(ErrorCode::NotFound, "the process was deleted"))
    }

    /// Whether this operation on the streams was carried out before.
    pub(crate) fn has_streamed(&self, operation: &Operation) -> Result<bool, Error> {
        self.streamed().has(operation)
    }

    pub(crate) fn remember_streamed(&self, operation: Operation) {
        self.streamed().remember(operation);
    }

    pub(crate) fn remember_written(&self, operation: Operation) {
        self.streamed().remember_written(operation);
    }

    fn streamed(&self) -> MutexGuard<'_, Streamed> {
        self.streamed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
