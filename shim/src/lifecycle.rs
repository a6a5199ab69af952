//! When the shim ends.
//!
//! It ends when containerd says Shutdown or a signal comes while it has no task, and by itself when it
//! stays without a task and without a call for [`IDLE_WITHOUT_TASKS`]: a containerd that died between
//! `start` and Create leaves no shim behind. A `start` that has just found this shim keeps it: its Create is
//! on the way; see [`Door`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::bootstrap::{ClosedDoor, Door};

/// How long a shim without tasks waits for a call before it ends.
pub(crate) const IDLE_WITHOUT_TASKS: Duration = Duration::from_secs(30);

/// Counts calls in flight and carries the decision to end.
#[derive(Clone)]
pub(crate) struct Lifecycle {
    shared: Arc<Shared>,
}

struct Shared {
    calls: AtomicUsize,
    /// Creates among the calls: the only ones that bring a task.
    creates: AtomicUsize,
    /// Calls since the beginning.
    total: AtomicUsize,
    quiet: Notify,
    last_call: watch::Sender<Instant>,
    ending: watch::Sender<bool>,
    door: Door,
    entrance: Mutex<Entrance>,
}

/// Who may still come in.
#[derive(Default)]
struct Entrance {
    /// When the last Create came.
    created: Option<SystemTime>,
    /// There once the end was decided, until the server listens no more.
    closed: Option<ClosedDoor>,
}

/// A call in flight; it ends when this is dropped.
pub(crate) struct Call {
    shared: Arc<Shared>,
    is_create: bool,
}

impl Lifecycle {
    pub(crate) fn new(door: Door) -> Self {
        Self {
            shared: Arc::new(Shared {
                calls: AtomicUsize::new(0),
                creates: AtomicUsize::new(0),
                total: AtomicUsize::new(0),
                quiet: Notify::new(),
                last_call: watch::Sender::new(Instant::now()),
                ending: watch::Sender::new(false),
                door,
                entrance: Mutex::default(),
            }),
        }
    }

    /// Marks a call in flight. `None` once the end was decided: nothing new may begin.
    pub(crate) fn enter(&self, is_create: bool) -> Option<Call> {
        if *self.shared.ending.borrow() {
            return None;
        }
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        self.shared.total.fetch_add(1, Ordering::Relaxed);
        if is_create {
            self.shared.creates.fetch_add(1, Ordering::Relaxed);
            self.entrance().created = Some(SystemTime::now());
        }
        Some(Call {
            shared: Arc::clone(&self.shared),
            is_create,
        })
    }

    /// Calls in flight.
    fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Whether a Create is in flight, whose task is not counted yet.
    pub(crate) fn is_creating(&self) -> bool {
        self.shared.creates.load(Ordering::Relaxed) > 0
    }

    /// Calls since the beginning.
    pub(crate) fn total(&self) -> usize {
        self.shared.total.load(Ordering::Relaxed)
    }

    /// Decides the end, which is never taken back, unless a `start` is about to bring a task. The caller
    /// has made sure that there is no task.
    pub(crate) fn try_end(&self) -> bool {
        self.try_end_for(IDLE_WITHOUT_TASKS)
    }

    /// The same for a signal, whose sender knows what is to come; only a `start` under way is waited for.
    pub(crate) fn try_end_by_signal(&self) -> bool {
        self.try_end_for(Duration::ZERO)
    }

    fn try_end_for(&self, patience: Duration) -> bool {
        let mut entrance = self.entrance();
        if entrance.closed.is_none() && !*self.shared.ending.borrow() {
            let closed = self.shared.door.close(entrance.created, patience);
            if closed.is_none() {
                return false;
            }
            entrance.closed = closed;
        }
        self.shared.ending.send_replace(true);
        true
    }

    /// What holds the way in closed since the end was decided; it is given once.
    pub(crate) fn take_closed_door(&self) -> Option<ClosedDoor> {
        self.entrance().closed.take()
    }

    fn entrance(&self) -> std::sync::MutexGuard<'_, Entrance> {
        self.shared
            .entrance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once the end was decided.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self
            .shared
            .ending
            .subscribe()
            .wait_for(|ending| *ending)
            .await;
    }

    /// Returns when no call is in flight.
    pub(crate) async fn quiet(&self) {
        loop {
            let quiet = self.shared.quiet.notified();
            if self.calls() == 0 {
                return;
            }
            quiet.await;
        }
    }

    /// Ends the shim after it had no task and no call for the whole of [`IDLE_WITHOUT_TASKS`].
    pub(crate) async fn end_when_idle(self, has_tasks: impl Fn() -> bool) {
        loop {
            let since = *self.shared.last_call.borrow();
            let until = since + IDLE_WITHOUT_TASKS;
            if Instant::now() < until {
                tokio::time::sleep_until(until).await;
                continue;
            }
            if self.calls() == 0 && !has_tasks() && self.try_end() {
                return;
            }
            // Looked at again when the next full time without a call may have passed.
            tokio::time::sleep(IDLE_WITHOUT_TASKS).await;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.shared.last_call.send_replace(Instant::now());
        if self.is_create {
            self.shared.creates.fetch_sub(1, Ordering::Relaxed);
        }
        if self.shared.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.quiet.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifecycle() -> Lifecycle {
        Lifecycle::new(Door::new(std::path::Path::new("/no/such/folder/s")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_shim_without_tasks_and_calls_ends_after_the_named_time() {
        let lifecycle = lifecycle();
        let begin = Instant::now();
        tokio::spawn(lifecycle.clone().end_when_idle(|| false));
        lifecycle.ended().await;
        assert_eq!(begin.elapsed(), IDLE_WITHOUT_TASKS);
        assert!(lifecycle.enter(false).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_or_a_call_keeps_it() {
        let lifecycle = lifecycle();
        let call = lifecycle.enter(false).unwrap();
        tokio::spawn(lifecycle.clone().end_when_idle(|| false));
        tokio::time::sleep(IDLE_WITHOUT_TASKS * 10).await;
        assert!(lifecycle.enter(false).is_some());
        drop(call);
        lifecycle.quiet().await;
        let begin = Instant::now();
        lifecycle.ended().await;
        assert!(begin.elapsed() <= IDLE_WITHOUT_TASKS * 2);
    }
}
