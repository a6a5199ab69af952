//! `start` itself: find the group's server, or become the one that starts it.
//!
//! One lock per group makes two starts at once give one server. Under it: dial the socket; a server that
//! answers is the answer; a socket nobody listens on is replaced. The new server inherits the socket,
//! already bound and listening, as its standard input and a pipe as its standard output; it says
//! [`READY`] on that pipe or the reason why it cannot serve. Whatever fails leaves neither process, socket
//! nor address file.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use a3sbox_durable::{DurableError, FileLock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;

use super::{StartCall, door};
use crate::grouping::{self, GroupingError};
use crate::options::{self, RuntimeOptions};
use crate::policy::{self, Policy};

/// What the server writes once it serves; anything else is the reason of its failure.
pub(crate) const READY: &[u8] = b"ready\n";
/// Longest wait for another start of the same group.
const LOCK_DEADLINE: Duration = Duration::from_secs(20);
/// Longest time that a new server may take until it serves.
const READY_DEADLINE: Duration = Duration::from_secs(10);
/// Longest reason that is read from a server that failed.
const REASON_MAX_BYTES: u64 = 16 << 10;

/// Why `start` has no server to offer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error(transparent)]
    Grouping(#[from] GroupingError),
    #[error("cannot make the socket folder {path}")]
    SocketFolder { path: PathBuf, source: io::Error },
    #[error("cannot lock the pod's group")]
    Lock(#[source] DurableError),
    #[error("another start of the same pod holds {path} for more than {}s", LOCK_DEADLINE.as_secs())]
    LockDeadline { path: PathBuf },
    #[error("cannot dial the shim socket {path}")]
    Dial { path: PathBuf, source: io::Error },
    #[error("cannot create the shim socket {path}")]
    Bind { path: PathBuf, source: io::Error },
    #[error("cannot write the shim's address into the bundle")]
    AddressFile(#[source] DurableError),
    #[error("cannot start the shim server")]
    Spawn(#[source] io::Error),
    #[error("cannot read from the shim server")]
    ReadyPipe(#[source] io::Error),
    #[error("shim server did not start: {0}")]
    ServerFailed(String),
    #[error("shim server ended before it was ready: {0}")]
    ServerDied(ExitStatus),
    #[error("shim server was not ready within {}s", READY_DEADLINE.as_secs())]
    ReadyDeadline,
}

/// Finds or starts the server of this container's group and returns its address.
pub(crate) fn launch(call: &StartCall) -> Result<String, LaunchError> {
    let annotations = grouping::read_annotations(&call.bundle)?;
    let group = grouping::group_of(&annotations, &call.id);
    let socket = grouping::socket_path(
        call.socket_dir.as_deref(),
        &call.address,
        &call.namespace,
        group,
    )?;
    make_socket_folder(&socket)?;
    let address = format!("unix://{}", socket.display());
    // Older containerds find the server of a bundle by this file when they come back.
    let address_file = call.bundle.join("address");

    let _lock = GroupLock::take(&socket)?;
    if is_served(&socket)? {
        door::note_found(&socket);
        a3sbox_durable::record::replace(&address_file, address.as_bytes())
            .map_err(LaunchError::AddressFile)?;
        return Ok(address);
    }
    remove_file(&socket).map_err(|source| LaunchError::Bind {
        path: socket.clone(),
        source,
    })?;
    let served = bind(&socket).and_then(|listener| {
        a3sbox_durable::record::replace(&address_file, address.as_bytes())
            .map_err(LaunchError::AddressFile)?;
        serve(call, &socket, listener)
    });
    match served {
        Ok(()) => Ok(address),
        Err(error) => {
            // Best effort: the first error is the one to tell.
            let _ = remove_file(&socket);
            let _ = remove_file(&address_file);
            Err(error)
        }
    }
}

/// Takes a socket file away unless a server listens on it. For `delete` and the end of a server.
pub(crate) fn remove_stale_socket(socket: &Path) -> Result<(), LaunchError> {
    let _lock = GroupLock::take(socket)?;
    if !is_served(socket)? {
        remove_file(socket).map_err(|source| LaunchError::Bind {
            path: socket.to_owned(),
            source,
        })?;
    }
    Ok(())
}

fn make_socket_folder(socket: &Path) -> Result<(), LaunchError> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| LaunchError::SocketFolder {
            path: folder.to_owned(),
            source,
        })
}

pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether something accepts connections there. Never blocks: a full backlog is a server too.
pub(crate) fn is_served(socket: &Path) -> Result<bool, LaunchError> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let attempt = SocketAddrUnix::new(socket).and_then(|address| {
        let dialled = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&dialled, &address)
    });
    use rustix::io::Errno;
    match attempt {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(LaunchError::Dial {
            path: socket.to_owned(),
            source: errno.into(),
        }),
    }
}

fn bind(socket: &Path) -> Result<UnixListener, LaunchError> {
    // The file must never be open to others, not even between two calls; this process has one thread.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(socket);
    rustix::process::umask(before);
    listener.map_err(|source| LaunchError::Bind {
        path: socket.to_owned(),
        source,
    })
}

/// Starts the server with the bound socket and waits until it serves.
fn serve(call: &StartCall, socket: &Path, listener: UnixListener) -> Result<(), LaunchError> {
    // By its name, which is what people see in a list of processes; by the link if the file was replaced.
    let program = std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let mut command = Command::new(program);
    command
        .current_dir(&call.bundle)
        .args(["-namespace", &call.namespace, "-id", &call.id])
        .args(["-address", &call.address])
        .arg("-socket")
        .arg(socket)
        .env("TTRPC_ADDRESS", &call.ttrpc_address)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::piped())
        // containerd reads stdout and stderr of `start` to their end: the server must not keep them.
        .stderr(Stdio::null());
    if call.debug {
        command.arg("-debug");
    }
    if let Some(score) = parent_oom_score() {
        command.args(["-oom-score-adj", &score.to_string()]);
    }
    let policy = policy_of(call);
    if let Some(cgroup) = &policy.runc.shim_cgroup {
        command.args(["-shim-cgroup", cgroup]);
    }
    command.env(crate::server::STATE_ROOT_ENV, &policy.state_root);
    command.arg("serve");
    let mut child = command.spawn().map_err(LaunchError::Spawn)?;
    // The command holds our copy of the socket; only the server may have it from here on.
    drop(command);
    let result = wait_ready(&mut child);
    if result.is_err() {
        // It may be gone already, and then there is only its status to collect.
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

fn wait_ready(child: &mut Child) -> Result<(), LaunchError> {
    let Some(mut pipe) = child.stdout.take() else {
        return Err(LaunchError::ReadyPipe(io::ErrorKind::BrokenPipe.into()));
    };
    let deadline = Instant::now() + READY_DEADLINE;
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LaunchError::ReadyDeadline);
        }
        let timeout = Timespec::try_from(left).ok();
        let mut polled = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(LaunchError::ReadyPipe(errno.into())),
        }
        let mut chunk = [0; 1024];
        let count = pipe.read(&mut chunk).map_err(LaunchError::ReadyPipe)?;
        said.extend_from_slice(&chunk[..count]);
        if said == READY {
            return Ok(());
        }
        if count == 0 || said.len() as u64 > REASON_MAX_BYTES {
            let reason = String::from_utf8_lossy(&said).trim().to_owned();
            if !reason.is_empty() {
                return Err(LaunchError::ServerFailed(reason));
            }
            // The pipe closes with the process, so that this wait is short.
            return Err(child
                .wait()
                .map_or_else(LaunchError::ReadyPipe, LaunchError::ServerDied));
        }
    }
}

/// One above containerd's own score: under memory pressure the daemon goes after its shims.
fn parent_oom_score() -> Option<i32> {
    const OOM_SCORE_MAX: i32 = 1000;
    let parent = rustix::process::getppid()?;
    let path = format!("/proc/{}/oom_score_adj", parent.as_raw_nonzero());
    let score: i32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some((score + 1).min(OOM_SCORE_MAX))
}

/// What the options say about the server itself. What is wrong with them is told by Task Create, where
/// it has a code and a place; until then the node's own configuration holds, or the defaults.
fn policy_of(call: &StartCall) -> Policy {
    let base = policy::base_path();
    let options = call
        .options
        .as_ref()
        .and_then(|any| options::parse(&any.type_url, &any.value).ok())
        .unwrap_or(RuntimeOptions::None);
    Policy::load(&base, &options)
        .or_else(|_| Policy::load(&base, &RuntimeOptions::None))
        .unwrap_or_default()
}

/// The lock of one group, held in a file beside its socket that goes away with the lock.
#[derive(Debug)]
pub(super) struct GroupLock(FileLock);

impl GroupLock {
    fn take(socket: &Path) -> Result<Self, LaunchError> {
        Self::take_within(socket, LOCK_DEADLINE)
    }

    /// Takes it if it is free; the error is [`LaunchError::LockDeadline`] otherwise.
    pub(super) fn try_take(socket: &Path) -> Result<Self, LaunchError> {
        Self::take_within(socket, Duration::ZERO)
    }

    fn take_within(socket: &Path, deadline: Duration) -> Result<Self, LaunchError> {
        match FileLock::lock_within(&socket.with_extension("lock"), deadline) {
            Ok(lock) => Ok(Self(lock)),
            Err(DurableError::Locked { path, .. }) => Err(LaunchError::LockDeadline { path }),
            Err(error) => Err(LaunchError::Lock(error)),
        }
    }
}

impl Drop for GroupLock {
    fn drop(&mut self) {
        // Removed while it is held: whoever waits for it sees that, and locks the file that is there then.
        let _ = std::fs::remove_file(self.0.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_a_listener_is_stale_and_with_one_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        assert!(!is_served(&socket).unwrap());
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(is_served(&socket).unwrap());
        remove_stale_socket(&socket).unwrap();
        assert!(socket.exists());
        drop(listener);
        assert!(!is_served(&socket).unwrap());
        remove_stale_socket(&socket).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_lock_of_a_group_is_exclusive_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let lock = GroupLock::take(&socket).unwrap();
                        let before = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(before, 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
