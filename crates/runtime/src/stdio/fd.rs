//! Descriptors that tokio watches, read and written by plain calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::pipe::SpliceFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Most bytes that one stream holds on their way through us.
pub(super) const PUMP_BUFFER_BYTES: usize = 64 * 1024;

/// How often a full terminal is tried whose slave side was closed: see [`Wake::Stale`].
const STALE_POLL: Duration = Duration::from_millis(20);

/// Why a wait for bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Bytes, or the end, can be read.
    Readable,
    /// A hang-up that tokio holds as final, but which was taken back: the slave side of a terminal can be
    /// opened again. The descriptor has to be watched anew.
    Stale,
}

/// A descriptor that is watched for readiness.
///
/// The plain call always comes first: the readiness that tokio remembers is what its last poll saw, and
/// a close request must not overtake bytes that came after it.
#[derive(Debug)]
pub(super) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    pub(super) fn readable(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE)
    }

    pub(super) fn writable(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::WRITABLE)
    }

    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        set_nonblocking(fd.as_fd())?;
        Ok(Self(crate::sys::watch(fd, interest)?))
    }

    /// The descriptor again, no longer watched.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.0.into_inner()
    }

    /// Reads what is there; `WouldBlock` when nothing is.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| rustix::io::read(self.0.get_ref(), &mut *buffer))
    }

    /// Waits for something to read. Cancel safe: nothing is read when the future is dropped.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut guard = self.0.readable().await?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                other => return other,
            }
        }
    }

    /// Waits until there is something to read, without reading it. Cancel safe.
    pub(super) async fn wait_readable(&self) -> io::Result<Wake> {
        loop {
            let mut guard = self.0.readable().await?;
            if self.has_input()? {
                return Ok(Wake::Readable);
            }
            if guard.ready().is_read_closed() {
                return Ok(Wake::Stale);
            }
            guard.clear_ready();
        }
    }

    /// Writes some of `bytes`, waiting for room. Cancel safe: what was written is what was returned.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            let mut guard = self.0.writable().await?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            let closed = guard.ready().is_write_closed();
            guard.clear_ready();
            drop(guard);
            if closed {
                tokio::time::sleep(STALE_POLL).await;
            }
        }
    }

    /// Moves what is there into another pipe, without copying it; `WouldBlock` when nothing is there or
    /// there is no room.
    pub(super) fn try_splice(&self, to: &Self) -> io::Result<usize> {
        retry(|| {
            rustix::pipe::splice(
                self.0.get_ref(),
                None,
                to.0.get_ref(),
                None,
                PUMP_BUFFER_BYTES,
                SpliceFlags::NONBLOCK | SpliceFlags::MOVE,
            )
        })
    }

    /// Whether a read would return at once.
    pub(super) fn has_input(&self) -> io::Result<bool> {
        is_ready(self.as_fd(), PollFlags::IN)
    }

    /// Waits until there is room to write, or nobody who would read it. Cancel safe.
    pub(super) async fn wait_writable(&self) -> io::Result<()> {
        loop {
            let mut guard = self.0.writable().await?;
            if is_ready(self.as_fd(), PollFlags::OUT)? {
                return Ok(());
            }
            guard.clear_ready();
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        retry(|| rustix::io::write(self.0.get_ref(), bytes))
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}

/// Asks the kernel, not tokio's memory, whether a call would return at once.
fn is_ready(fd: BorrowedFd<'_>, what: PollFlags) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match rustix::event::poll(&mut fds, Some(&at_once)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    if !flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    }
    Ok(())
}

/// A pipe whose two ends are not inherited: (reading end, writing end).
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// The null device, for a stream that nobody asked for.
pub(super) fn null_device() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into())
}

/// Gives a stream to the user that the container's root is on the host; the number 0 changes nothing.
pub(super) fn chown(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    if uid == 0 && gid == 0 {
        return Ok(());
    }
    Ok(rustix::fs::fchown(
        fd,
        Some(rustix::fs::Uid::from_raw(uid)),
        Some(rustix::fs::Gid::from_raw(gid)),
    )?)
}
