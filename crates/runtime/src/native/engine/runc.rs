//! The verbs of the OCI runtime command line, with runc's options; crun and youki take the same ones.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_oci::oci_spec::runtime::{LinuxResources, Process};
use a3sbox_oci::{CheckpointRequest, EngineOptions};
use serde::Deserialize;

use super::{Call, Engine, EngineError, memory_file};
use crate::native::hooks::HookGuard;
use crate::native::reaper::SpawnHold;

/// Hooks may take their time: a network plugin pulls a lease, a device plugin loads a module.
const CREATE_DEADLINE: Duration = Duration::from_secs(600);
const START_DEADLINE: Duration = Duration::from_secs(600);
const DELETE_DEADLINE: Duration = Duration::from_secs(600);
/// The engine's part of an exec ends when the program runs.
const EXEC_DEADLINE: Duration = Duration::from_secs(120);
const UPDATE_DEADLINE: Duration = Duration::from_secs(60);
const PAUSE_DEADLINE: Duration = Duration::from_secs(60);
const STATE_DEADLINE: Duration = Duration::from_secs(30);
const FEATURES_DEADLINE: Duration = Duration::from_secs(30);
/// A checkpoint writes the memory of the container.
const CHECKPOINT_DEADLINE: Duration = Duration::from_secs(1800);
/// Longest content of a pid file.
const MAX_PID_FILE_BYTES: u64 = 32;

/// The standard streams that a process inherits; `None` is the null device for stdin, and the engine's
/// own output for the others.
#[derive(Debug, Default)]
pub(crate) struct ProcessFds {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// What a create and a restore need.
#[derive(Debug)]
pub(crate) struct CreateCall<'a> {
    pub(crate) id: &'a str,
    pub(crate) bundle: &'a Path,
    pub(crate) options: &'a EngineOptions,
    pub(crate) console_socket: Option<&'a Path>,
    pub(crate) fds: ProcessFds,
    pub(crate) hooks: Option<HookGuard>,
}

/// What `state` prints, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct EngineState {
    /// `created`, `running`, `paused` or `stopped`.
    pub(crate) status: String,
}

#[derive(Debug)]
pub(crate) struct ExecCall<'a> {
    pub(crate) id: &'a str,
    pub(crate) process: &'a Process,
    pub(crate) pid_file: &'a Path,
    pub(crate) console_socket: Option<&'a Path>,
    pub(crate) fds: ProcessFds,
}

impl Engine {
    /// Creates the container; its init waits for `start`. Returns init's pid.
    pub(crate) async fn create(
        &self,
        folder: &Path,
        create: CreateCall<'_>,
        hold: &SpawnHold,
    ) -> Result<u32, EngineError> {
        let pid_file = folder.join("init.pid");
        let mut call = Call::new("create", CREATE_DEADLINE)
            .option("--bundle", create.bundle)
            .option("--pid-file", &pid_file)
            .arg_if(create.options.no_pivot_root, "--no-pivot")
            .arg_if(create.options.no_new_keyring, "--no-new-keyring");
        if let Some(socket) = create.console_socket {
            call = call.option("--console-socket", socket);
        }
        call = call.arg(create.id);
        call.fds = create.fds;
        call.hooks = create.hooks;
        self.run(folder, call, hold).await?;
        read_pid("create", &pid_file)
    }

    /// Restores a container from a checkpoint; it runs when this returns. Returns init's pid.
    pub(crate) async fn restore(
        &self,
        folder: &Path,
        create: CreateCall<'_>,
        image: &Path,
        work: &Path,
        hold: &SpawnHold,
    ) -> Result<u32, EngineError> {
        let pid_file = folder.join("init.pid");
        let mut call = Call::new("restore", CHECKPOINT_DEADLINE)
            .option("--bundle", create.bundle)
            .option("--pid-file", &pid_file)
            .option("--image-path", image)
            .option("--work-path", work)
            .arg("--detach")
            .arg("--no-subreaper")
            .arg_if(create.options.no_pivot_root, "--no-pivot");
        if let Some(socket) = create.console_socket {
            call = call.option("--console-socket", socket);
        }
        call = call.arg(create.id);
        call.fds = create.fds;
        call.hooks = create.hooks;
        self.run(folder, call, hold).await?;
        read_pid("restore", &pid_file)
    }

    /// Lets a created container run its program.
    pub(crate) async fn start(
        &self,
        folder: &Path,
        id: &str,
        hooks: Option<HookGuard>,
        hold: &SpawnHold,
    ) -> Result<(), EngineError> {
        let mut call = Call::new("start", START_DEADLINE).arg(id);
        call.hooks = hooks;
        self.run(folder, call, hold).await.map(drop)
    }

    /// Runs an additional process and returns its pid.
    pub(crate) async fn exec(
        &self,
        folder: &Path,
        exec: ExecCall<'_>,
        hold: &SpawnHold,
    ) -> Result<u32, EngineError> {
        // Named by our own descriptor: the engine opens it anew, and no file is left behind.
        let (process, path) = json_file(exec.process)?;
        let mut call = Call::new("exec", EXEC_DEADLINE)
            .option("--process", path)
            .arg("--detach")
            .option("--pid-file", exec.pid_file);
        if let Some(socket) = exec.console_socket {
            call = call.option("--console-socket", socket);
        }
        call = call.arg(exec.id);
        call.fds = exec.fds;
        self.run(folder, call, hold).await?;
        drop(process);
        read_pid("exec", exec.pid_file)
    }

    /// Removes a container that has stopped; `force` kills it first.
    pub(crate) async fn delete(
        &self,
        folder: &Path,
        id: &str,
        force: bool,
        hooks: Option<HookGuard>,
        hold: &SpawnHold,
    ) -> Result<(), EngineError> {
        let mut call = Call::new("delete", DELETE_DEADLINE)
            .arg_if(force, "--force")
            .arg(id);
        call.hooks = hooks;
        self.run(folder, call, hold).await.map(drop)
    }

    pub(crate) async fn pause(
        &self,
        folder: &Path,
        id: &str,
        hold: &SpawnHold,
    ) -> Result<(), EngineError> {
        let call = Call::new("pause", PAUSE_DEADLINE).arg(id);
        self.run(folder, call, hold).await.map(drop)
    }

    pub(crate) async fn resume(
        &self,
        folder: &Path,
        id: &str,
        hold: &SpawnHold,
    ) -> Result<(), EngineError> {
        let call = Call::new("resume", PAUSE_DEADLINE).arg(id);
        self.run(folder, call, hold).await.map(drop)
    }

    /// Changes the limits that are set in `resources`.
    pub(crate) async fn update(
        &self,
        folder: &Path,
        id: &str,
        resources: &LinuxResources,
        hold: &SpawnHold,
    ) -> Result<(), EngineError> {
        let (file, path) = json_file(resources)?;
        let call = Call::new("update", UPDATE_DEADLINE)
            .option("--resources", path)
            .arg(id);
        self.run(folder, call, hold).await?;
        drop(file);
        Ok(())
    }

    pub(crate) async fn checkpoint(
        &self,
        folder: &Path,
        id: &str,
        request: &CheckpointRequest,
        work: &Path,
        hold: &SpawnHold,
    ) -> Result<(), EngineError> {
        let mut call = Call::new("checkpoint", CHECKPOINT_DEADLINE)
            .option("--image-path", &request.image_path)
            .option("--work-path", work)
            .arg_if(request.open_tcp, "--tcp-established")
            .arg_if(request.external_unix_sockets, "--ext-unix-sk")
            .arg_if(request.terminal, "--shell-job")
            .arg_if(request.file_locks, "--file-locks")
            .arg_if(!request.exit, "--leave-running");
        if let Some(mode) = &request.cgroups_mode {
            call = call.option("--manage-cgroups-mode", mode);
        }
        for namespace in &request.empty_namespaces {
            call = call.option("--empty-ns", namespace);
        }
        self.run(folder, call.arg(id), hold).await.map(drop)
    }

    /// What the engine makes of the container: for an adoption, never for a state call.
    pub(crate) async fn state(
        &self,
        folder: &Path,
        id: &str,
        hold: &SpawnHold,
    ) -> Result<EngineState, EngineError> {
        let mut call = Call::new("state", STATE_DEADLINE).arg(id);
        call.wants_stdout = true;
        let json = self.run(folder, call, hold).await?;
        serde_json::from_slice(&json).map_err(|error| EngineError::Prepare {
            what: "read the engine's state",
            source: io::Error::other(error),
        })
    }

    /// What the engine says about itself (`runc features`).
    pub(crate) async fn features(
        &self,
        folder: &Path,
        hold: &SpawnHold,
    ) -> Result<Vec<u8>, EngineError> {
        let mut call = Call::new("features", FEATURES_DEADLINE);
        call.wants_stdout = true;
        self.run(folder, call, hold).await
    }
}

/// A value as a JSON file in memory, ready to be read, and a path by which a child process opens it.
fn json_file(value: &impl serde::Serialize) -> Result<(File, PathBuf), EngineError> {
    use std::os::fd::AsRawFd as _;

    let prepare = |what, source| EngineError::Prepare { what, source };
    let mut file = memory_file()?;
    let json = serde_json::to_vec(value)
        .map_err(|error| prepare("encode an argument", io::Error::other(error)))?;
    file.write_all(&json)
        .and_then(|()| file.rewind())
        .map_err(|source| prepare("write an argument", source))?;
    let path = PathBuf::from(format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        file.as_raw_fd()
    ));
    Ok((file, path))
}

fn read_pid(verb: &'static str, path: &Path) -> Result<u32, EngineError> {
    use std::io::Read as _;

    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_PID_FILE_BYTES).read_to_string(&mut text))
        .and_then(|_| {
            text.trim()
                .parse()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        })
        .map_err(|source| EngineError::NoPid { verb, source })
}
