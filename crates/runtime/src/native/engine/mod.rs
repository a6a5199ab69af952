//! The OCI runtime command line: one process per verb, without a shell.
//!
//! An engine leaves the container's init behind, which holds every descriptor that it inherited until its
//! own program runs. So nothing that is read to its end is inherited: errors come from the engine's log
//! file, and its output from a memory file that is read after the engine has ended.

mod error;
mod runc;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

pub(crate) use error::{EngineError, FailureKind, MAX_ENGINE_TEXT_BYTES};
pub(crate) use runc::{CreateCall, ExecCall, ProcessFds};

use crate::native::hooks::HookGuard;
use crate::native::reaper::{SpawnHold, Watched};
use crate::sys::Ended;

/// How long a killed engine may take to be gone.
const ENGINE_KILL_DEADLINE: Duration = Duration::from_secs(10);
/// systemd's readiness socket, which would make runc behave differently.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// How the names of the engine's logs begin, in the folder of their container.
pub(crate) const LOG_PREFIX: &str = "engine-";

static NEXT_CALL: AtomicU64 = AtomicU64::new(0);

/// An engine binary with the options that all its calls share.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(crate) binary: PathBuf,
    /// Folder of the engine's own state.
    pub(crate) root: PathBuf,
    pub(crate) systemd_cgroup: bool,
    /// CRIU for checkpoint and restore, where it is not the one in `PATH`.
    pub(crate) criu: Option<PathBuf>,
}

/// One call of the engine.
struct Call {
    verb: &'static str,
    deadline: Duration,
    args: Vec<OsString>,
    fds: ProcessFds,
    /// Keep stdout for the caller instead of mixing it with stderr.
    wants_stdout: bool,
    hooks: Option<HookGuard>,
}

impl Call {
    fn new(verb: &'static str, deadline: Duration) -> Self {
        Self {
            verb,
            deadline,
            args: vec![verb.into()],
            fds: ProcessFds::default(),
            wants_stdout: false,
            hooks: None,
        }
    }

    fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    fn arg_if(self, condition: bool, arg: &str) -> Self {
        if condition { self.arg(arg) } else { self }
    }

    fn option(self, name: &str, value: impl Into<OsString>) -> Self {
        self.arg(name).arg(value)
    }
}

impl Engine {
    /// Runs the engine to its end. `folder` takes its log; `hold` is the caller's, who registers what the
    /// engine leaves behind before he drops it.
    async fn run(
        &self,
        folder: &Path,
        call: Call,
        hold: &SpawnHold,
    ) -> Result<Vec<u8>, EngineError> {
        let log = folder.join(format!(
            "{LOG_PREFIX}{}-{}.log",
            std::process::id(),
            NEXT_CALL.fetch_add(1, Ordering::Relaxed)
        ));
        let result = self.run_logged(&log, call, hold).await;
        // The log is there when the engine got as far as opening it.
        let _ = std::fs::remove_file(&log);
        result
    }

    async fn run_logged(
        &self,
        log: &Path,
        call: Call,
        hold: &SpawnHold,
    ) -> Result<Vec<u8>, EngineError> {
        let mut output = memory_file()?;
        let mut stdout = call.wants_stdout.then(memory_file).transpose()?;
        let mut command = Command::new(&self.binary);
        command
            .arg("--root")
            .arg(&self.root)
            .arg("--log")
            .arg(log)
            .args(["--log-format", "json"])
            .args(self.systemd_cgroup.then_some("--systemd-cgroup"))
            .args(&call.args)
            .env_remove(NOTIFY_SOCKET)
            // A group of its own: what its hooks leave behind can be told from everything else.
            .process_group(0)
            .stdin(stdio_or_null(call.fds.stdin))
            .stdout(match (call.fds.stdout, &stdout) {
                (Some(fd), _) => Stdio::from(fd),
                (None, Some(file)) => share(file)?,
                (None, None) => share(&output)?,
            })
            .stderr(match call.fds.stderr {
                Some(fd) => Stdio::from(fd),
                None => share(&output)?,
            });
        if let Some(path) = self.criu.as_deref().and_then(path_with) {
            command.env("PATH", path);
        }
        let child = Watched::spawn(&mut command, hold).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                EngineError::Missing {
                    binary: self.binary.clone(),
                }
            } else {
                EngineError::Spawn {
                    binary: self.binary.clone(),
                    source,
                }
            }
        })?;
        // The command holds our copies of the container's streams.
        drop(command);
        let _guard = call.hooks.map(|hooks| hooks.watch(child.pid()));

        let Ok(exit) = tokio::time::timeout(call.deadline, child.ended()).await else {
            kill_engine(&child).await;
            return Err(EngineError::Deadline {
                verb: call.verb,
                after: call.deadline,
            });
        };
        if exit.ended == Some(Ended::Exited(0)) {
            return stdout.as_mut().map_or(Ok(Vec::new()), read_output);
        }
        let status = match exit.ended {
            Some(Ended::Exited(code)) => format!("exit status {code}"),
            Some(Ended::Signaled(signal)) => format!("signal {signal}"),
            None => "exit status unknown".to_owned(),
        };
        let log = File::open(log).map_or_else(|_| Vec::new(), read_bounded);
        let stderr = read_output(&mut output)?;
        Err(error::failure(
            &String::from_utf8_lossy(&log),
            &String::from_utf8_lossy(&stderr),
            &status,
            &self.binary.to_string_lossy(),
        ))
    }
}

/// runc 1.1 ignores its option for CRIU and looks in `PATH`: the folder of the wanted one goes first.
fn path_with(criu: &Path) -> Option<OsString> {
    let folder = criu.parent()?.to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).ok()
}

/// Ends an engine that ran out of time, its group with it, and reaps it.
async fn kill_engine(child: &Watched) {
    if let Some(group) = crate::native::identity::raw_pid(child.pid()) {
        // The leader is not reaped yet, so the group's number is still its own.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    if tokio::time::timeout(ENGINE_KILL_DEADLINE, child.ended())
        .await
        .is_err()
    {
        tracing::error!(pid = child.pid(), "a killed engine does not end");
    }
}

fn stdio_or_null(fd: Option<OwnedFd>) -> Stdio {
    fd.map_or_else(Stdio::null, Stdio::from)
}

/// A file without a name: it takes whatever the engine writes, and nobody waits for its end.
fn memory_file() -> Result<File, EngineError> {
    memfd_create(c"engine-output", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|source| EngineError::Prepare {
            what: "make an output file",
            source: source.into(),
        })
}

fn share(file: &File) -> Result<Stdio, EngineError> {
    file.try_clone()
        .map(Stdio::from)
        .map_err(|source| EngineError::Prepare {
            what: "share an output file",
            source,
        })
}

fn read_output(file: &mut File) -> Result<Vec<u8>, EngineError> {
    file.rewind().map_err(|source| EngineError::Prepare {
        what: "read an output file",
        source,
    })?;
    Ok(read_bounded(file))
}

fn read_bounded(file: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What was read before an error is still worth showing.
    let _ = file.take(MAX_ENGINE_TEXT_BYTES).read_to_end(&mut bytes);
    bytes
}
