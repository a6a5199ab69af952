//! Commands with a hard limit: reaching it kills the whole process group and is a failure.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// What a command left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code, or 128 + signal.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Output {
    /// Fails unless the status is zero.
    pub fn ok(self) -> Result<Self> {
        ensure!(
            self.status == 0,
            "exit {}\nstdout: {}\nstderr: {}",
            self.status,
            self.stdout,
            self.stderr
        );
        Ok(self)
    }

    /// Fails unless the status is not zero.
    pub fn refused(self) -> Result<Self> {
        ensure!(self.status != 0, "it succeeded; stdout: {}", self.stdout);
        Ok(self)
    }

    pub fn everything(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs `argv` with the given environment added to ours.
pub fn run(env: &BTreeMap<String, String>, argv: &[&str], limit: Duration) -> Result<Output> {
    run_in(env, argv, None, limit)
}

/// As [`run`], with bytes for the standard input.
pub fn run_in(
    env: &BTreeMap<String, String>,
    argv: &[&str],
    stdin: Option<&[u8]>,
    limit: Duration,
) -> Result<Output> {
    let [program, args @ ..] = argv else {
        bail!("an empty command")
    };
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(env)
        .stdin(if stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let group = Pid::from_raw(i32::try_from(child.id())?);
    if let Some(bytes) = stdin {
        use std::io::Write;
        child.stdin.take().context("no stdin")?.write_all(bytes)?;
    }
    let mut out = child.stdout.take().context("no stdout")?;
    let mut err = child.stderr.take().context("no stderr")?;
    let reader = std::thread::spawn(move || read_all(&mut out));
    let errors = std::thread::spawn(move || read_all(&mut err));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > limit {
            let _ = killpg(group, Signal::SIGKILL);
            child.wait()?;
            let stdout = reader.join().unwrap_or_default();
            let stderr = errors.join().unwrap_or_default();
            bail!("{argv:?} did not end within {limit:?}\nstdout: {stdout}\nstderr: {stderr}");
        }
        std::thread::sleep(super::POLL_INTERVAL / 4);
    };
    let took = began.elapsed();
    use std::os::unix::process::ExitStatusExt;
    let status = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Output {
        status,
        stdout: reader.join().unwrap_or_default(),
        stderr: errors.join().unwrap_or_default(),
        took,
    })
}

fn read_all(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
