//! Faults from outside: `strace` on the server, with one system call of one number broken.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use a3sbox_e2e::eventually;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ATTACH_LIMIT: Duration = Duration::from_secs(10);
const DEATH_LIMIT: Duration = Duration::from_secs(10);

/// What is done to the server in the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server dies before the call is carried out.
    Kill,
    /// The call fails with an I/O error.
    Eio,
    /// The call fails for want of space.
    Enospc,
}

impl Fault {
    pub(crate) const ALL: [Self; 3] = [Self::Kill, Self::Eio, Self::Enospc];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Eio => "eio",
            Self::Enospc => "enospc",
        }
    }

    const fn injection(self) -> &'static str {
        match self {
            Self::Kill => "signal=SIGKILL",
            Self::Eio => "error=EIO",
            Self::Enospc => "error=ENOSPC",
        }
    }

    /// The system calls of durable writes, as `a3sbox-durable` makes them.
    pub(crate) const fn calls(self) -> &'static [&'static str] {
        match self {
            // Taking away is durable too, and a death between two of its steps leaves half a folder.
            Self::Kill => &["fsync", "fdatasync", "rename", "unlinkat"],
            Self::Eio | Self::Enospc => &["fsync", "fdatasync", "rename"],
        }
    }

    /// How the error reads in a message.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Kill => "",
            Self::Eio => "Input/output error",
            Self::Enospc => "No space left on device",
        }
    }
}

/// `strace` on one thread; it lets go when it is dropped.
pub(crate) struct Tracer {
    child: Child,
    log: PathBuf,
    call: &'static str,
}

/// The call that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Fired {
    /// The file as `strace` shows it.
    pub(crate) path: PathBuf,
}

impl Tracer {
    /// Attaches to `pid` and returns when `pid` is known to be traced. `poke` makes the server do something.
    pub(crate) fn attach(
        pid: u32,
        folder: &Path,
        fault: Fault,
        call: &'static str,
        number: u32,
        mut poke: impl FnMut(),
    ) -> Result<Self> {
        let log = folder.join("strace.log");
        let _ = std::fs::remove_file(&log);
        let child = Command::new("strace")
            .args(["-qq", "-y", "-p", &pid.to_string(), "-o"])
            .arg(&log)
            // The wait for events is traced to see that the tracing has begun.
            .args(["-e", &format!("trace={call},epoll_wait,epoll_pwait")])
            .args([
                "-e",
                &format!("inject={call}:{}:when={number}", fault.injection()),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run strace")?;
        let tracer = Self { child, log, call };
        eventually("the server is traced", ATTACH_LIMIT, || {
            poke();
            Ok((!tracer.lines().is_empty()).then_some(()))
        })?;
        Ok(tracer)
    }

    fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.log)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Lets go, and tells where the fault fired, if it did. `has_failed`: the verb did, so that a server
    /// that was to be killed is dead or dying, and `strace` ends with it.
    pub(crate) fn finish(mut self, fault: Fault, has_failed: bool) -> Result<Option<Fired>> {
        if fault == Fault::Kill && has_failed {
            eventually("strace has seen the server's end", DEATH_LIMIT, || {
                Ok(self.child.try_wait()?.map(drop))
            })?;
        }
        self.let_go();
        let lines = self.lines();
        let is_this = |line: &&String| line.starts_with(&format!("{}(", self.call));
        let hit = match fault {
            Fault::Kill => lines
                .iter()
                .any(|line| line.contains("+++ killed by SIGKILL"))
                .then(|| lines.iter().rfind(is_this))
                .flatten(),
            Fault::Eio | Fault::Enospc => lines
                .iter()
                .filter(is_this)
                .find(|line| line.contains("(INJECTED)")),
        };
        if fault == Fault::Kill && hit.is_none() {
            ensure!(
                !lines.iter().any(|line| line.contains("+++ killed")),
                "the server died, and not by the fault: {:?}",
                lines.last()
            );
        }
        Ok(hit.map(|line| Fired {
            path: path_in(line),
        }))
    }

    fn let_go(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// `fsync(5</a/b>)`, `rename("/a/.t", "/a/b")`, `unlinkat(5</a>, "b", 0)`: the file that is meant.
fn path_in(line: &str) -> PathBuf {
    let folder = line
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'))
        .map_or_else(PathBuf::new, |(path, _)| PathBuf::from(path));
    match line.rsplit('"').nth(1) {
        Some(name) if line.contains('"') => folder.join(name),
        _ => folder,
    }
}
