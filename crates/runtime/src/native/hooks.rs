//! OCI hooks where the engine does less than the runtime spec asks for.
//!
//! The engine runs the hooks, with two exceptions that runc 1.1 gets wrong:
//!
//! - A hook with a timeout. runc kills the hook when its time is up, and then reads the hook's output to
//!   its end, which a surviving grandchild holds open. [`HookGuard`] ends such a survivor, so that the
//!   engine goes on and reports the timeout in its own words.
//! - Several poststop hooks. runc stops at the first that fails, the spec says to warn and go on. The
//!   driver takes them out of the engine's config and runs them itself ([`run_poststop`]).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use a3sbox_oci::oci_spec::runtime::{Hook, Hooks, Spec};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::native::identity::{ProcessIdentity, ProcessStat, raw_pid};
use crate::native::reaper::{SpawnHold, Watched};
use crate::sys::Ended;

/// How often a guard looks for survivors once a hook's time can be up.
const GUARD_PERIOD: Duration = Duration::from_millis(100);
/// A poststop hook without a timeout of its own ends here: the container's delete waits for it.
const POSTSTOP_DEADLINE: Duration = Duration::from_secs(300);
/// A killed hook's group is gone within this.
const KILLED_HOOK_DEADLINE: Duration = Duration::from_secs(5);
/// At most this much of a failed hook's output is logged.
const MAX_HOOK_OUTPUT_BYTES: u64 = 4096;

/// Hooks that the driver runs instead of the engine.
pub(crate) fn driver_poststop(spec: &Spec) -> &[Hook] {
    let hooks = spec
        .hooks()
        .as_ref()
        .and_then(|hooks| hooks.poststop().as_deref())
        .unwrap_or_default();
    if hooks.len() > 1 || hooks.iter().any(|hook| hook.timeout().is_some()) {
        hooks
    } else {
        &[]
    }
}

/// Watches the hooks of one engine call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HookGuard {
    shortest_timeout: Duration,
}

impl HookGuard {
    /// For the hooks that `create` runs.
    pub(crate) fn for_create(hooks: Option<&Hooks>) -> Option<Self> {
        let hooks = hooks?;
        Self::for_lists(&[
            hooks.prestart(),
            hooks.create_runtime(),
            hooks.create_container(),
            // A create that fails is followed by these at once.
            hooks.poststop(),
        ])
    }

    /// For the hooks that `start` runs.
    pub(crate) fn for_start(hooks: Option<&Hooks>) -> Option<Self> {
        Self::for_lists(&[hooks?.poststart()])
    }

    fn for_lists(lists: &[&Option<Vec<Hook>>]) -> Option<Self> {
        lists
            .iter()
            .flat_map(|list| list.as_deref().unwrap_or_default())
            .filter_map(Hook::timeout)
            .filter_map(|seconds| u64::try_from(seconds).ok())
            .min()
            .map(Self::with_shortest_timeout_s)
    }

    /// The guard of hooks whose shortest timeout was recorded.
    pub(crate) fn with_shortest_timeout_s(seconds: u64) -> Self {
        Self {
            shortest_timeout: Duration::from_secs(seconds),
        }
    }

    pub(crate) fn shortest_timeout_s(self) -> u64 {
        self.shortest_timeout.as_secs()
    }

    /// Guards the engine with this pid, the leader of its own process group, until the result is dropped.
    pub(crate) fn watch(self, engine: u32) -> RunningGuard {
        let task = tokio::spawn(async move {
            tokio::time::sleep(self.shortest_timeout).await;
            loop {
                tokio::time::sleep(GUARD_PERIOD).await;
                end_survivors(engine);
            }
        });
        RunningGuard(task)
    }
}

#[derive(Debug)]
pub(crate) struct RunningGuard(tokio::task::JoinHandle<()>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Kills what a killed hook left behind, if the engine waits for it: a member of the engine's group that
/// is not its descendant any more and holds a pipe that the engine reads.
fn end_survivors(engine: u32) {
    let members: Vec<_> = pids()
        .filter_map(|pid| Some((pid, ProcessStat::read(pid)?)))
        .filter(|(pid, stat)| *pid != engine && stat.group == engine)
        .collect();
    let has_living_hook = members
        .iter()
        .any(|(_, stat)| stat.parent == engine && stat.state != b'Z');
    if members.is_empty() || has_living_hook {
        return;
    }
    let read_by_engine = pipes_of(engine);
    for (pid, stat) in members {
        if stat.state == b'Z' || pipes_of(pid).is_disjoint(&read_by_engine) {
            continue;
        }
        let identity = ProcessIdentity {
            pid,
            start_ticks: stat.start_ticks,
        };
        if let Some(fd) = identity.open() {
            tracing::warn!(pid, "ended what a hook that ran out of time left behind");
            let _ = rustix::process::pidfd_send_signal(fd, rustix::process::Signal::KILL);
        }
    }
}

fn pids() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The pipes that a process holds, as the kernel names them.
fn pipes_of(pid: u32) -> HashSet<PathBuf> {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|link| link.to_string_lossy().starts_with("pipe:"))
        .collect()
}

/// Runs poststop hooks in order. One that fails is warned about and the next one runs, as the runtime spec
/// says; so this has no result.
pub(crate) async fn run_poststop(hooks: &[Hook], state_json: &[u8]) {
    for hook in hooks {
        if let Err(error) = run_hook(hook, state_json).await {
            tracing::warn!(
                hook = %hook.path().display(),
                error = %error,
                "poststop hook failed"
            );
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("cannot run it: {0}")]
    Spawn(#[from] io::Error),
    #[error("it ran past its timeout of {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("it ended with {status}: {output}")]
    Failed { status: String, output: String },
}

async fn run_hook(hook: &Hook, state_json: &[u8]) -> Result<(), HookError> {
    let deadline = hook
        .timeout()
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(POSTSTOP_DEADLINE, Duration::from_secs);
    let mut output = memory_file()?;
    let mut command = hook_command(hook);
    let mut state = memory_file()?;
    state.write_all(state_json)?;
    state.rewind()?;
    command
        .stdin(Stdio::from(state))
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(output.try_clone()?))
        .process_group(0);
    let hold = SpawnHold::take();
    let child = Watched::spawn(&mut command, &hold)?;
    drop(hold);
    let Ok(exit) = tokio::time::timeout(deadline, child.ended()).await else {
        if let Some(group) = raw_pid(child.pid()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = tokio::time::timeout(KILLED_HOOK_DEADLINE, child.ended()).await;
        return Err(HookError::Timeout(deadline));
    };
    let status = match exit.ended {
        Some(Ended::Exited(0)) => return Ok(()),
        Some(Ended::Exited(code)) => format!("exit status {code}"),
        Some(Ended::Signaled(signal)) => format!("signal {signal}"),
        None => "an unknown status".to_owned(),
    };
    output.rewind()?;
    let mut text = Vec::new();
    output.take(MAX_HOOK_OUTPUT_BYTES).read_to_end(&mut text)?;
    Err(HookError::Failed {
        status,
        output: String::from_utf8_lossy(&text).trim().to_owned(),
    })
}

fn hook_command(hook: &Hook) -> Command {
    let mut command = Command::new(hook.path());
    if let Some((name, rest)) = hook.args().as_deref().and_then(<[String]>::split_first) {
        command.arg0(name).args(rest);
    }
    // As runc has it: without `env` a hook inherits ours, with it nothing else.
    if let Some(env) = hook.env() {
        command
            .env_clear()
            .envs(env.iter().filter_map(|entry| entry.split_once('=')));
    }
    command
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create(c"hook", MemfdFlags::CLOEXEC)?.into())
}
