//! Logging binaries (`binary://path?arguments`): a process that takes the output of a container.
//!
//! The protocol is containerd's: descriptor 3 is stdout, 4 is stderr, closing 5 says "ready"; the environment
//! is `CONTAINER_ID` and `CONTAINER_NAMESPACE` alone; 0, 1 and 2 are the null device.
//!
//! ```text
//! start ──► wait until ready (deadline) ──► runs ──► the container's writing ends close, it flushes and ends
//!                                            │            └─ still there after its grace: SIGTERM, later SIGKILL
//!                                            └─ it dies early: what the container writes is thrown away
//! ```
//!
//! The process is a child of ours that some reaper may take first, so its end is seen by its pidfd alone.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use tokio::sync::watch;

use super::error::StdioError;
use super::fd::{Watched, pipe};
use super::pump::{self, Phase, PhaseWatch, Sink, Source};
use super::uri::BinaryUri;

/// How long a logging binary may take until it says that it is ready.
const LOGGER_READY_DEADLINE: Duration = Duration::from_secs(10);
/// How long it may go on after the last writer has gone, before it is asked to end.
const LOGGER_FLUSH_GRACE: Duration = Duration::from_secs(2);
/// How long it may take after it was asked; containerd's own shim gives as much.
const LOGGER_TERM_GRACE: Duration = Duration::from_secs(12);
/// First descriptor above those that the protocol uses.
const FREE_FD: i32 = 10;

/// Logging binaries that were asked to end and have not yet.
static ENDING: std::sync::LazyLock<watch::Sender<usize>> =
    std::sync::LazyLock::new(|| watch::Sender::new(0));

/// Who a logging binary logs for.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogSubject<'a> {
    pub(super) id: &'a str,
    pub(super) namespace: &'a str,
}

/// The ends of the two streams that the binary reads.
#[derive(Debug)]
pub(super) struct LoggerInput {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// A running logging binary. Dropped without [`Logger::finish`] it is killed.
#[derive(Debug)]
pub(super) struct Logger {
    path: PathBuf,
    child: Child,
}

/// The process, by a descriptor that no other process can ever stand for.
#[derive(Debug)]
struct Child {
    pidfd: OwnedFd,
    /// Also the number of its process group.
    pid: Pid,
    armed: bool,
}

impl Logger {
    /// Starts the binary and waits until it is ready.
    pub(super) async fn start(
        uri: &BinaryUri,
        subject: LogSubject<'_>,
        input: LoggerInput,
    ) -> Result<Self, StdioError> {
        let (ready, told) = pipe().map_err(StdioError::prepare("a pipe"))?;
        let child =
            spawn(uri, subject, &input, &told).map_err(|source| StdioError::LoggerStart {
                path: uri.path.clone(),
                source,
            })?;
        drop((input, told));
        let logger = Self {
            path: uri.path.clone(),
            child,
        };
        let ready = Watched::readable(ready).map_err(StdioError::prepare("a pipe"))?;
        let mut byte = [0_u8; 1];
        match tokio::time::timeout(LOGGER_READY_DEADLINE, ready.read(&mut byte)).await {
            Ok(Ok(_)) if logger.child.has_ended() => Err(StdioError::LoggerEnded {
                path: logger.path.clone(),
            }),
            Ok(Ok(_)) => Ok(logger),
            Ok(Err(source)) => Err(StdioError::Prepare {
                what: "the logging binary",
                source,
            }),
            Err(_) => Err(StdioError::LoggerNotReady {
                path: logger.path.clone(),
                seconds: LOGGER_READY_DEADLINE.as_secs(),
            }),
        }
    }

    /// Takes over from the binary when it dies before the streams are given up: without a reader the
    /// container would get a SIGPIPE, with one that does not read it would hang.
    pub(super) fn stand_in(&self, ends: Vec<OwnedFd>, mut phase: PhaseWatch) -> io::Result<()> {
        let ended = Watched::readable(self.child.pidfd.try_clone()?)?;
        let path = self.path.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = ended.wait_readable() => {}
                () = phase.reached(Phase::Closed) => return,
            }
            if phase.current() == Phase::Running {
                tracing::warn!(
                    ?path,
                    "the logging binary ended, output is discarded from now on"
                );
            }
            for end in ends {
                match Watched::readable(end) {
                    Ok(end) => {
                        tokio::spawn(pump::run(Source::Pipe(end), Sink::Discard, phase.clone()));
                    }
                    Err(error) => tracing::warn!(%error, "cannot discard output"),
                }
            }
        });
        Ok(())
    }

    /// Lets the binary end: first by itself, then asked, at last by force. Returns within
    /// [`LOGGER_FLUSH_GRACE`]; the rest goes on behind.
    pub(super) async fn finish(mut self) {
        if self.child.wait(LOGGER_FLUSH_GRACE).await {
            return;
        }
        tracing::warn!(path = ?self.path, "the logging binary did not end by itself, asking it to");
        self.child.signal(rustix::process::Signal::TERM);
        ENDING.send_modify(|ending| *ending += 1);
        tokio::spawn(async move {
            let _count = EndingGuard;
            if !self.child.wait(LOGGER_TERM_GRACE).await {
                tracing::warn!(path = ?self.path, "the logging binary did not end, killing it");
            }
            drop(self);
        });
    }
}

struct EndingGuard;

impl Drop for EndingGuard {
    fn drop(&mut self) {
        ENDING.send_modify(|ending| *ending = ending.saturating_sub(1));
    }
}

/// Waits until no logging binary is left that was asked to end. For the end of the process.
pub(crate) async fn loggers_settled() {
    // The sender is a static: it cannot be dropped.
    let _ = ENDING.subscribe().wait_for(|ending| *ending == 0).await;
}

impl Child {
    /// Waits for the end, and takes the zombie where nobody else did. False when time is up.
    async fn wait(&mut self, limit: Duration) -> bool {
        let Ok(watched) = self.pidfd.try_clone().and_then(Watched::readable) else {
            return false;
        };
        let ended = tokio::time::timeout(limit, watched.wait_readable()).await;
        if ended.is_err() {
            return false;
        }
        self.reap();
        true
    }

    fn has_ended(&self) -> bool {
        !matches!(self.look(), Ok(None))
    }

    /// Whether some other reaper of this process has taken it.
    fn is_reaped(&self) -> bool {
        self.look().is_err()
    }

    /// How it ended, leaving the zombie where it is; `ECHILD` after it was reaped.
    fn look(&self) -> rustix::io::Result<Option<rustix::process::WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Err(error) = rustix::process::pidfd_send_signal(&self.pidfd, signal)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(%error, "cannot signal a logging binary");
        }
    }

    fn reap(&mut self) {
        self.armed = false;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // ECHILD: the reaper of the process was first.
        let _ = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.armed {
            if !self.is_reaped() {
                // Until it is reaped its number, and so that of its group, cannot be another's.
                let _ =
                    rustix::process::kill_process_group(self.pid, rustix::process::Signal::KILL);
            }
            let options = WaitIdOptions::EXITED;
            // A killed process ends at once; its zombie must not stay.
            let _ = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        }
    }
}

fn spawn(
    uri: &BinaryUri,
    subject: LogSubject<'_>,
    input: &LoggerInput,
    ready: &OwnedFd,
) -> io::Result<Child> {
    let text = |value: &OsStr| CString::new(value.as_bytes()).map_err(io::Error::other);
    let path = text(uri.path.as_os_str())?;
    let mut arguments = vec![path.clone()];
    for argument in &uri.args {
        arguments.push(text(argument)?);
    }
    let environment = [
        text(OsStr::new(&format!("CONTAINER_ID={}", subject.id)))?,
        text(OsStr::new(&format!(
            "CONTAINER_NAMESPACE={}",
            subject.namespace
        )))?,
    ];

    // Copies above the numbers of the protocol, so that no copy to its place runs over another's source.
    let sources = [
        above(input.stdout.as_fd())?,
        above(input.stderr.as_fd())?,
        above(ready.as_fd())?,
    ];
    let mut actions = PosixSpawnFileActions::init()?;
    for place in 0..=2 {
        actions.add_open(place, "/dev/null", OFlag::O_RDWR, Mode::empty())?;
    }
    for (place, source) in (3..).zip(&sources) {
        actions.add_dup2(source.as_raw_fd(), place)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    let mut defaults = SigSet::empty();
    // The Rust runtime ignores SIGPIPE, which a new program would inherit.
    defaults.add(Signal::SIGPIPE);
    attributes.set_sigdefault(&defaults)?;
    attributes.set_sigmask(&SigSet::empty())?;
    // A group of its own: what it started goes with it when it has to be killed.
    attributes.set_pgroup(nix::unistd::Pid::from_raw(0))?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETPGROUP,
    )?;
    let pid = posix_spawn(
        path.as_c_str(),
        &actions,
        &attributes,
        &arguments,
        &environment,
    )?;
    let pid = Pid::from_raw(pid.as_raw()).ok_or_else(|| io::Error::other("no pid"))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Child {
        pidfd,
        pid,
        armed: true,
    })
}

fn above(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, FREE_FD)?)
}
