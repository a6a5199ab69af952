//! Waits for processes of a container to be killed for lack of memory.
//!
//! The kernel counts such kills; [`Cgroup::oom_kills`] is the truth, and what is told here are its growths. A
//! counter grows before the process that it counts is gone, so who asks the cgroup when an exit is seen has
//! every kill that led to it; this watch is for kills that the container survives.
//!
//! Version 2 wakes pollers of `memory.events`, which needs no inotify instance (a node has few of them).
//! Version 1 has an eventfd, which is also signalled when an ancestor runs out of memory or the cgroup is
//! removed: only the counter tells. Where neither can be watched, the counter is looked at now and then.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::{Cgroup, CgroupError, Version};

/// Time between looks where nothing wakes us.
const COUNTER_POLL: Duration = Duration::from_secs(1);
/// Version 1 signals before it chooses whom to kill: looks that follow a signal, and the time between them.
const SETTLE_LOOKS: u32 = 20;
const SETTLE_PAUSE: Duration = Duration::from_millis(10);

/// A watch on the kills of one cgroup.
#[derive(Debug)]
pub(crate) struct OomWatch {
    cgroup: Cgroup,
    folder: PathBuf,
    waker: Waker,
    told: u64,
}

#[derive(Debug)]
enum Waker {
    /// `memory.events` itself.
    Notified(Notified),
    /// An eventfd that the memory controller signals.
    Signalled(AsyncFd<OwnedFd>),
    Timer,
}

impl OomWatch {
    /// Begins to watch. Kills so far are not told. `None` when nothing counts them, as in a cgroup without
    /// the memory controller.
    pub(crate) fn open(cgroup: &Cgroup) -> Result<Option<Self>, CgroupError> {
        let Some(folder) = cgroup.memory_folder().map(Path::to_owned) else {
            return Ok(None);
        };
        let waker = match cgroup.version() {
            Version::V1 => signalled(&folder)?.map(Waker::Signalled),
            Version::V2 => Notified::open(&folder.join("memory.events"))?.map(Waker::Notified),
        };
        if waker.is_none() && !folder.is_dir() {
            return Ok(None);
        }
        Ok(Some(Self {
            told: cgroup.oom_kills(),
            cgroup: cgroup.clone(),
            folder,
            waker: waker.unwrap_or(Waker::Timer),
        }))
    }

    /// Waits for kills that have not been told; gives the whole number so far. `None` when the cgroup has
    /// gone. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<u64> {
        let mut looks = 0;
        loop {
            let kills = self.cgroup.oom_kills();
            if kills > self.told {
                self.told = kills;
                return Some(kills);
            }
            if !self.folder.is_dir() {
                return None;
            }
            if looks > 0 {
                looks -= 1;
                tokio::time::sleep(SETTLE_PAUSE).await;
                continue;
            }
            match &self.waker {
                Waker::Timer => tokio::time::sleep(COUNTER_POLL).await,
                Waker::Notified(file) => file.changed().await.ok()?,
                Waker::Signalled(event) => {
                    let mut guard = event.readable().await.ok()?;
                    let mut count = [0_u8; 8];
                    // An eventfd that is not signalled any more has been read by nobody else.
                    let _ = rustix::io::read(event.get_ref(), &mut count);
                    guard.clear_ready();
                    looks = SETTLE_LOOKS;
                }
            }
        }
    }
}

/// A file of a cgroup whose change wakes pollers.
#[derive(Debug)]
struct Notified(AsyncFd<OwnedFd>);

impl Notified {
    /// `None` when the file is not there or cannot be polled.
    fn open(path: &Path) -> Result<Option<Self>, CgroupError> {
        let file = match rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => return Ok(None),
            Err(error) => {
                return Err(CgroupError::Watch {
                    path: path.to_owned(),
                    source: error.into(),
                });
            }
        };
        arm(&file);
        Ok(crate::sys::watch(file, Interest::PRIORITY).ok().map(Self))
    }

    /// Waits for the next change. Cancel safe.
    async fn changed(&self) -> std::io::Result<()> {
        let mut guard = self.0.ready(Interest::PRIORITY).await?;
        guard.clear_ready();
        arm(self.0.get_ref());
        Ok(())
    }
}

/// Reads the file from its start: the kernel takes that as "seen up to here".
fn arm(file: &OwnedFd) {
    let mut piece = [0_u8; 512];
    // A cgroup that has gone is found by whoever reads the counter.
    let _ = rustix::io::pread(file, &mut piece, 0);
}

/// An eventfd that the memory controller of version 1 signals; `None` when it refuses.
fn signalled(folder: &Path) -> Result<Option<AsyncFd<OwnedFd>>, CgroupError> {
    let path = folder.join("memory.oom_control");
    let failed = |source| CgroupError::Watch {
        path: path.clone(),
        source,
    };
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| failed(error.into()))?;
    let Ok(control) = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    else {
        return Ok(None);
    };
    let order = format!("{} {}", event.as_fd().as_raw_fd(), control.as_raw_fd());
    // The kernel holds what it needs of both from then on.
    if let Err(error) = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.join("cgroup.event_control"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, order.as_bytes()))
    {
        tracing::debug!(%error, "no events of the memory controller, looking at its counter");
        return Ok(None);
    }
    crate::sys::watch(event, Interest::READABLE)
        .map(Some)
        .map_err(failed)
}

#[cfg(test)]
mod tests;
