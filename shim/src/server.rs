//! The long-running server of one pod.
//!
//! It inherits its socket, bound and listening, as standard input and the readiness pipe as standard
//! output, and gives both places to /dev/null. One thread runs everything; what blocks has threads of its
//! own. It ends by Shutdown, by a signal while it has no task, or by idleness, always through the same
//! door: stop listening, remove the socket, let answers out, give the last events to containerd.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_execution::task::TaskManager;
use rustix::fs::{Mode, OFlags};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use ttrpc::r#async::Server;
use ttrpc::r#async::transport::Listener;

use crate::args::Args;
use crate::assembly::{self, Assembled, AssemblyError, Paths};
use crate::bootstrap::{ClosedDoor, Door, READY};
use crate::events::Outbox;
use crate::lifecycle::Lifecycle;
use crate::logging::{self, chain};
use crate::task::{self, TaskService};
use crate::{cgroup, sys};

/// Longest wait for the answers of calls that are in flight when the end is decided.
const CALLS_DEADLINE: Duration = Duration::from_secs(1);
/// Time for the last answer to leave the connection's writer.
const ANSWER_GRACE: Duration = Duration::from_millis(10);
/// Longest wait for containerd to take the last events.
const EVENTS_DEADLINE: Duration = Duration::from_secs(5);
/// Longest wait for connections to close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);
/// Longest wait for a process that still has the state of this pod's runtime service.
const OWNER_DEADLINE: Duration = Duration::from_secs(5);
/// Longest wait for logging programs that a container's streams lead to.
const LOGGERS_DEADLINE: Duration = Duration::from_secs(3);
/// Blocking threads at a time: stdio, mounts and files of the containers of one pod.
const BLOCKING_THREADS: usize = 256;
/// An idle blocking thread goes after this time; the memory of an idle shim is what counts.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_millis(500);
/// How often the allocator gives back what calls have left, while nothing happens.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// Environment variable by which `start` hands the state root on.
pub(crate) const STATE_ROOT_ENV: &str = "A3SBOX_STATE_ROOT";

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("the server inherited no socket: only start runs it")]
    NoSocket(#[source] io::Error),
    #[error("cannot join cgroup {path}")]
    Cgroup { path: String, source: io::Error },
    #[error("cannot enable core scheduling")]
    CoreScheduling(#[source] io::Error),
    #[error("cannot become a subreaper")]
    Subreaper(#[source] io::Error),
    #[error("cannot start the event loop")]
    Loop(#[source] io::Error),
    #[error("cannot listen")]
    Listen(#[source] ttrpc::Error),
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
}

/// Runs the server to its end. The reason of an early failure goes to `start` through the pipe.
pub(crate) fn serve(args: &Args) -> Result<(), ServeError> {
    let Inherited {
        listener,
        mut ready,
    } = Inherited::take().map_err(ServeError::NoSocket)?;
    match prepare(args, listener) {
        Ok(prepared) => {
            // `start` may have been killed while it waited; the server is then as good as without it.
            let _ = ready.write_all(READY);
            drop(ready);
            run(args, prepared);
            Ok(())
        }
        Err(error) => {
            // When `start` has gone there is nobody to tell.
            let _ = ready.write_all(chain(&error).as_bytes());
            Err(error)
        }
    }
}

/// What `start` left in the places of the standard streams.
struct Inherited {
    listener: UnixListener,
    ready: File,
}

impl Inherited {
    fn take() -> io::Result<Self> {
        const ABOVE_STREAMS: i32 = 3;
        let own = |fd: std::os::fd::BorrowedFd<'_>| -> io::Result<OwnedFd> {
            Ok(rustix::io::fcntl_dupfd_cloexec(fd, ABOVE_STREAMS)?)
        };
        let listener = own(io::stdin().as_fd())?;
        let is_listening = rustix::net::sockopt::socket_acceptconn(&listener)?;
        if !is_listening {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let ready = own(io::stdout().as_fd())?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        Ok(Self {
            listener: UnixListener::from(listener),
            ready: File::from(ready),
        })
    }
}

/// A server whose process is as it should be and whose layers stand.
struct Prepared {
    runtime: tokio::runtime::Runtime,
    server: Server,
    assembled: Assembled,
    lifecycle: Lifecycle,
    paths: Paths,
}

fn prepare(args: &Args, listener: UnixListener) -> Result<Prepared, ServeError> {
    sys::tune_allocator();
    // A session of its own: what happens to containerd's group or terminal is not its business.
    let session = rustix::process::setsid();
    if std::env::var_os("SCHED_CORE").is_some_and(|value| !value.is_empty()) {
        sys::own_core_scheduling().map_err(ServeError::CoreScheduling)?;
    }
    if let Some(path) = &args.shim_cgroup {
        cgroup::join(path).map_err(|source| ServeError::Cgroup {
            path: path.clone(),
            source,
        })?;
    }
    open_log(Path::new("log"), args.debug);
    if let Err(errno) = session {
        warn!(%errno, "cannot start a session");
    }
    if let Some(score) = args.oom_score_adj
        && let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string())
    {
        // Lowering it takes a capability that not every host gives; the shim works without.
        warn!(%error, score, "cannot adjust the OOM score");
    }
    a3sbox_runtime::become_subreaper().map_err(ServeError::Subreaper)?;
    // The bundle may go while the shim of its pod stays.
    if let Err(errno) = rustix::process::chdir("/") {
        warn!(%errno, "cannot leave the bundle");
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .thread_name("a3sbox-blocking")
        .build()
        .map_err(ServeError::Loop)?;
    let socket = args.socket.clone().unwrap_or_default();
    let state_root = std::env::var_os(STATE_ROOT_ENV).map_or_else(
        || PathBuf::from(crate::policy::DEFAULT_STATE_ROOT),
        PathBuf::from,
    );
    let paths = Paths::new(&state_root, &args.address, &args.namespace, &socket);
    let lifecycle = Lifecycle::new(Door::new(&socket));
    let entered = runtime.enter();
    let assembled = runtime.block_on(assembly::open(&paths, OWNER_DEADLINE))?;
    let service = TaskService {
        manager: assembled.manager.clone(),
        lifecycle: lifecycle.clone(),
        namespace: args.namespace.clone(),
        state_root,
        engine_root: paths.engine_root.clone(),
    };
    let mut server = Server::new()
        .add_listener(adopt(listener).map_err(ServeError::NoSocket)?)
        .register_service(task::services(service));
    runtime
        .block_on(server.start())
        .map_err(ServeError::Listen)?;
    drop(entered);
    Ok(Prepared {
        runtime,
        server,
        assembled,
        lifecycle,
        paths,
    })
}

fn adopt(listener: UnixListener) -> io::Result<Listener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener).map(Listener::from)
}

fn run(args: &Args, mut prepared: Prepared) {
    info!(
        namespace = args.namespace.as_str(),
        id = args.id.as_str(),
        pid = std::process::id(),
        version = env!("CARGO_PKG_VERSION"),
        "shim started"
    );
    let outbox = Outbox::new();
    let address = std::env::var("TTRPC_ADDRESS").unwrap_or_default();
    prepared.runtime.block_on(async {
        if let Some(events) = prepared.assembled.manager.take_events() {
            tokio::spawn(outbox.clone().collect(events));
        }
        tokio::spawn(outbox.clone().forward(address));
        let manager = prepared.assembled.manager.clone();
        tokio::spawn(
            prepared
                .lifecycle
                .clone()
                .end_when_idle(move || manager.live() > 0),
        );
        tokio::spawn(trim_when_idle(prepared.lifecycle.clone()));
        wait_for_end(&prepared.lifecycle, || prepared.assembled.manager.live()).await;
        end(&mut prepared.server, &prepared.lifecycle, &outbox).await;
        let service = &prepared.assembled.service;
        if tokio::time::timeout(LOGGERS_DEADLINE, service.settled())
            .await
            .is_err()
        {
            warn!("a logging program did not end");
        }
    });
    // What still runs on a blocking thread is abandoned: the containers are gone, and so is their I/O.
    prepared.runtime.shutdown_background();
    assembly::remove_empty(&prepared.paths, prepared.assembled.lock);
    info!("shim ended");
}

async fn wait_for_end(lifecycle: &Lifecycle, live: impl Fn() -> usize) {
    let signals = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    let Ok((mut terminate, mut interrupt)) = signals else {
        warn!("cannot watch signals");
        return lifecycle.ended().await;
    };
    loop {
        tokio::select! {
            () = lifecycle.ended() => return,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        match live() {
            0 => {
                if !lifecycle.try_end_by_signal() {
                    info!("a signal asks the shim to end while a task is on the way: it stays");
                }
            }
            tasks => warn!(
                tasks,
                "a signal asks the shim to end while it has tasks: it stays"
            ),
        }
    }
}

async fn end(server: &mut Server, lifecycle: &Lifecycle, outbox: &Outbox) {
    server.stop_listen().await;
    // A start that waited finds nobody from here on and makes a server of its own.
    let removed = lifecycle
        .take_closed_door()
        .map_or(Ok(()), ClosedDoor::remove_socket);
    if let Err(error) = removed {
        warn!(%error, "cannot remove the socket");
    }
    let _ = tokio::time::timeout(CALLS_DEADLINE, lifecycle.quiet()).await;
    tokio::time::sleep(ANSWER_GRACE).await;
    if tokio::time::timeout(EVENTS_DEADLINE, outbox.drained())
        .await
        .is_err()
    {
        warn!("containerd did not take the last events");
    }
    let _ = tokio::time::timeout(CLOSE_DEADLINE, server.shutdown()).await;
}

/// An idle shim should cost little: what calls have left on the heap goes back.
async fn trim_when_idle(lifecycle: Lifecycle) {
    let mut seen = 0;
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        let total = lifecycle.total();
        if total != seen {
            seen = total;
            sys::trim_allocator();
        }
    }
}

/// Opens containerd's fifo for our lines, and for what a panic prints.
///
/// It is opened for both directions: the open needs no reader, lines written while containerd restarts
/// wait in the fifo, and no write ends in SIGPIPE. Without a fifo there is no log.
fn open_log(path: &Path, debug: bool) {
    use std::os::unix::fs::FileTypeExt;
    let is_fifo = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    if !is_fifo {
        return;
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(log) = rustix::fs::open(path, flags, Mode::empty()) {
        // Standard error is /dev/null otherwise, and stays so.
        let _ = rustix::stdio::dup2_stderr(&log);
        logging::install(File::from(log), debug);
    }
}
