//! OCI hooks where the engine does less than the runtime spec asks for.
//!
//! The engine runs the hooks, with two exceptions that runc 1.1 gets wrong:
//!
//! - A hook with a timeout. runc kills the hook when its time is up, and then reads the hook's output to
//!   its end, which a surviving grandchild holds open. [`HookGuard`] ends such a survivor, so that the
//!   engine goes on and reports the timeout in its own words.
//! - Several poststop hooks. runc stops at the first that fails, the spec says to warn and go on. The
//!   driver takes them out of the engine's config and runs them itself ([`run_poststop`]).

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use a3sbox_oci::oci_spec::runtime::{Hook, Hooks, Spec};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::native::identity::{ProcessIdentity, ProcessStat, raw_pid};
use crate::native::reaper::{SpawnHold, Watched};
use crate::sys::Ended;

/// How often a guard looks at the hooks of an engine call.
const GUARD_PERIOD: Duration = Duration::from_millis(100);
/// How long after its time a hook may still be there, since the engine is the one that ends it.
const HOOK_GRACE: Duration = Duration::from_secs(1);
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
    /// No hook of the call runs for longer, unless it has no timeout.
    longest_timeout: Duration,
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
            .max()
            .map(Self::with_longest_timeout_s)
    }

    /// The guard of hooks whose longest timeout was recorded.
    pub(crate) fn with_longest_timeout_s(seconds: u64) -> Self {
        Self {
            longest_timeout: Duration::from_secs(seconds),
        }
    }

    pub(crate) fn longest_timeout_s(self) -> u64 {
        self.longest_timeout.as_secs()
    }

    /// Guards the engine with this pid, the leader of its own process group, until the result is dropped.
    pub(crate) fn watch(self, engine: u32) -> RunningGuard {
        let task = tokio::spawn(async move {
            let mut family = Family {
                engine,
                longest_timeout: self.longest_timeout,
                members: HashMap::new(),
            };
            loop {
                tokio::time::sleep(GUARD_PERIOD).await;
                family.end_survivors();
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

/// The processes in the engine's group: its hooks, and what they have started. The container's init is not
/// among them, it has a session of its own.
struct Family {
    engine: u32,
    longest_timeout: Duration,
    members: HashMap<ProcessIdentity, Member>,
}

#[derive(Clone, Copy)]
struct Member {
    first_seen: Instant,
    first_parent: u32,
}

impl Family {
    /// Kills what a killed hook has left, if the engine waits for it: runc is a subreaper and so becomes the
    /// parent of its hook's children, others leave that to us.
    fn end_survivors(&mut self) {
        let present = self.look();
        let is_survivor = |identity: &ProcessIdentity, parent: u32| {
            let Some(member) = self.members.get(identity) else {
                return false;
            };
            let lost_its_parent = parent != member.first_parent;
            lost_its_parent || member.first_seen.elapsed() > self.longest_timeout + HOOK_GRACE
        };
        let pids: HashSet<u32> = present.iter().map(|(identity, _)| identity.pid).collect();
        let (survivors, others): (Vec<&(ProcessIdentity, u32)>, Vec<_>) = present
            .iter()
            .filter(|(_, parent)| !pids.contains(parent))
            .partition(|(identity, parent)| is_survivor(identity, *parent));
        // While a hook runs, the engine waits for that one.
        if survivors.is_empty() || !others.is_empty() {
            return;
        }
        let read_by_engine = pipes_of(self.engine);
        for (identity, _) in present {
            if pipes_of(identity.pid).is_disjoint(&read_by_engine) {
                continue;
            }
            if let Some(fd) = identity.open() {
                tracing::warn!(
                    pid = identity.pid,
                    "ended what a hook that ran out of time left behind"
                );
                let _ = rustix::process::pidfd_send_signal(fd, rustix::process::Signal::KILL);
            }
        }
    }

    /// The living members with their parents, now.
    fn look(&mut self) -> Vec<(ProcessIdentity, u32)> {
        let present: Vec<_> = pids()
            .filter(|pid| *pid != self.engine)
            .filter_map(|pid| Some((pid, ProcessStat::read(pid)?)))
            .filter(|(_, stat)| stat.group == self.engine && stat.state != b'Z')
            .map(|(pid, stat)| {
                let identity = ProcessIdentity {
                    pid,
                    start_ticks: stat.start_ticks,
                };
                (identity, stat.parent)
            })
            .collect();
        self.members
            .retain(|known, _| present.iter().any(|(identity, _)| identity == known));
        for (identity, parent) in &present {
            self.members.entry(*identity).or_insert(Member {
                first_seen: Instant::now(),
                first_parent: *parent,
            });
        }
        present
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
