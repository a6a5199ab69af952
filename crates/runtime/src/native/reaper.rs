//! Every exit is seen exactly once.
//!
//! A process that matters is [`Watched`]: its descriptor becomes readable when it ends, and only the owner
//! of the watch reaps it. The other children of this process are orphans of containers, hooks and engines,
//! which a subreaper inherits; they are swept.
//!
//! The sweep must not take the exit of a process that is about to be watched: a container's init becomes
//! our child in the moment in which the engine ends, before its pid is known here. So whoever starts a
//! process whose descendants he wants takes a [`SpawnHold`] first and drops it after the registration, and
//! no sweep runs while one is held. A sweep that was due is made up for when the last hold goes.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use crate::native::identity::{ProcessIdentity, raw_pid};
use crate::sys::{self, Ended, Which};

struct Reaper {
    holds: usize,
    watched: Option<HashSet<u32>>,
    sweeps: bool,
}

/// One per process, as being a subreaper is.
static REAPER: Mutex<Reaper> = Mutex::new(Reaper {
    holds: 0,
    watched: None,
    sweeps: false,
});

fn reaper() -> MutexGuard<'static, Reaper> {
    // The state is a set and a counter that no panic leaves half changed.
    REAPER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reaper {
    fn watched(&mut self) -> &mut HashSet<u32> {
        self.watched.get_or_insert_default()
    }

    /// Reaps the children that nobody watches. Runs under the lock and never blocks.
    fn sweep(&mut self) {
        if !self.sweeps || self.holds > 0 {
            return;
        }
        while let Ok(Some(pid)) = sys::peek_zombie() {
            // A watched one at the front hides those behind it until its watch reaps it and sweeps again.
            if self.watched().contains(&pid) || !matches!(sys::reap(Which::Pid(pid)), Ok(Some(_))) {
                return;
            }
            tracing::debug!(pid, "reaped an orphan");
        }
    }
}

/// While one is held, no orphan is swept.
///
/// Take it before a child process is started with anything else than this crate, and keep it until that
/// child was waited for: in a subreaper the sweep would take its exit status otherwise.
#[derive(Debug)]
pub struct SpawnHold(());

impl SpawnHold {
    #[must_use]
    pub fn take() -> Self {
        reaper().holds += 1;
        Self(())
    }
}

impl Drop for SpawnHold {
    fn drop(&mut self) {
        let mut reaper = reaper();
        reaper.holds -= 1;
        reaper.sweep();
    }
}

/// Sweeps orphans from now on, each time a child ends. Needs the tokio runtime it is called in.
pub(crate) fn start_sweeping() -> io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    reaper().sweeps = true;
    tokio::spawn(async move {
        while children.recv().await.is_some() {
            reaper().sweep();
        }
    });
    reaper().sweep();
    Ok(())
}

/// How a watched process ended, and when that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenExit {
    /// `None`: it was not our child, so its status went to somebody else.
    pub(crate) ended: Option<Ended>,
    pub(crate) at_unix_ns: u64,
}

/// A process that is watched until it ends.
#[derive(Debug)]
pub(crate) struct Watched {
    identity: ProcessIdentity,
    fd: AsyncFd<OwnedFd>,
}

impl Watched {
    /// Starts a process and watches it.
    ///
    /// The standard library spawns without copying this process's memory map as long as the command needs
    /// nothing between fork and exec; callers keep to that.
    pub(crate) fn spawn(command: &mut Command, hold: &SpawnHold) -> io::Result<Self> {
        let child = command.spawn()?;
        Self::child(child.id(), hold)
    }

    /// Watches a child of this process, which may have ended already. The hold was taken before the
    /// process could become our child, so nobody has reaped it.
    pub(crate) fn child(pid: u32, _hold: &SpawnHold) -> io::Result<Self> {
        let raw = raw_pid(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let fd = pidfd_open(raw, PidfdFlags::empty())?;
        let identity =
            ProcessIdentity::of(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Self::new(identity, fd)
    }

    /// Watches a process that another one started; `None` when it is gone.
    pub(crate) fn adopt(identity: ProcessIdentity) -> io::Result<Option<Self>> {
        identity
            .open()
            .map(|fd| Self::new(identity, fd))
            .transpose()
    }

    fn new(identity: ProcessIdentity, fd: OwnedFd) -> io::Result<Self> {
        let fd = sys::watch(fd, Interest::READABLE)?;
        reaper().watched().insert(identity.pid);
        Ok(Self { identity, fd })
    }

    pub(crate) fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    pub(crate) fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Waits for the end and reaps. One caller only: the second one would be told that nobody saw it.
    pub(crate) async fn ended(&self) -> SeenExit {
        loop {
            let readable = self.fd.readable().await;
            let at_unix_ns = now_unix_ns();
            let ended = match sys::reap(Which::Fd(self.fd.as_fd())) {
                Ok(Some(ended)) => Some(ended),
                Ok(None) => {
                    // Not over yet: a traced process reports here as well.
                    if let Ok(mut guard) = readable {
                        guard.clear_ready();
                    }
                    continue;
                }
                Err(_) => None,
            };
            let mut reaper = reaper();
            reaper.watched().remove(&self.identity.pid);
            reaper.sweep();
            return SeenExit { ended, at_unix_ns };
        }
    }

    /// Sends a signal to exactly this process; `ESRCH` when it has ended.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        sys::send_signal(self.fd.as_fd(), signal)
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut reaper = reaper();
        if reaper.watched().remove(&self.identity.pid) {
            reaper.sweep();
        }
    }
}

pub(crate) fn now_unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|elapsed| u64::try_from(elapsed.as_nanos()).ok())
        .unwrap_or(0)
}
