//! Every bound of the task face: deadlines of effects, lengths of queues, lengths of names.

use std::time::Duration;

/// Requests that may wait in front of one owner; a caller beyond it waits for room.
pub(crate) const REQUEST_QUEUE: usize = 128;
/// Reports of effects and exits that may wait in front of one owner.
pub(crate) const REPORT_QUEUE: usize = 256;
/// Requests that one owner sets aside until a start, pause or resume has settled.
pub(crate) const MAX_PARKED: usize = 128;
/// Events of all owners that may wait for the one reader.
pub(crate) const EVENT_QUEUE: usize = 1024;
/// Events of one owner that may wait for room in [`EVENT_QUEUE`]; beyond it no exec is added.
pub(crate) const EVENT_BACKLOG: usize = 4096;
/// Execs that one container may hold at a time.
pub(crate) const MAX_EXECS: usize = 4096;
/// Longest container id, namespace or exec id in bytes. containerd itself allows 76.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// Journal entries above which a settled exec's are dropped.
pub(crate) const JOURNAL_KEPT_ENTRIES: usize = 64;
/// Runtime events asked for at a time.
pub(crate) const EVENT_BATCH: u32 = 64;

/// How long an effect may take before its caller is told that it did not settle.
///
/// They are generous: a hook or an image on a slow disk may hold an engine call for minutes, and an
/// effect that is given up on is not undone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) create: Duration,
    pub(crate) start: Duration,
    pub(crate) exec: Duration,
    pub(crate) signal: Duration,
    pub(crate) pause: Duration,
    pub(crate) update: Duration,
    pub(crate) delete: Duration,
    pub(crate) checkpoint: Duration,
    pub(crate) resize: Duration,
    pub(crate) close_stdin: Duration,
    pub(crate) pids: Duration,
    pub(crate) stats: Duration,
    pub(crate) inspect: Duration,
    /// The exit of the init process waits so long for the exits of its execs.
    pub(crate) exec_drain: Duration,
    /// An exit waits so long for an OOM event that belongs before it.
    pub(crate) oom_flush: Duration,
    /// One long poll for runtime events.
    pub(crate) event_poll: Duration,
    /// Pause after a poll that ended at once with nothing, or with an error that may pass.
    pub(crate) retry_pause: Duration,
    /// A wait whose runtime does not answer is unknown after so long.
    pub(crate) wait_lost: Duration,
    /// A recovery waits so long for the end of a process that it killed.
    pub(crate) recovery_kill: Duration,
}

impl Deadlines {
    pub(crate) const DEFAULT: Self = Self {
        create: Duration::from_secs(600),
        start: Duration::from_secs(300),
        exec: Duration::from_secs(300),
        signal: Duration::from_secs(60),
        pause: Duration::from_secs(120),
        update: Duration::from_secs(120),
        delete: Duration::from_secs(300),
        checkpoint: Duration::from_secs(3600),
        resize: Duration::from_secs(30),
        close_stdin: Duration::from_secs(60),
        pids: Duration::from_secs(60),
        stats: Duration::from_secs(60),
        inspect: Duration::from_secs(60),
        exec_drain: Duration::from_secs(10),
        oom_flush: Duration::from_secs(2),
        event_poll: Duration::from_secs(60),
        retry_pause: Duration::from_secs(1),
        wait_lost: Duration::from_secs(30),
        recovery_kill: Duration::from_secs(30),
    };
}
