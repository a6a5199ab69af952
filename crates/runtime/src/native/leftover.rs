//! Engine calls of a service that has ended: they go on without it, and must not run beside ours.
//!
//! Each call names its log in the container's folder on its command line, by which it is found.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::engine::LOG_PREFIX;
use super::identity::ProcessIdentity;
use super::reaper::Watched;

/// How long a call may go on by itself: it was under way when its service ended, so it is nearly done.
const LEFTOVER_DEADLINE: Duration = Duration::from_secs(10);

/// What to do with a call that is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Its effect counts: it may come to its end first.
    Finish,
    /// Its effect is undone anyway.
    Kill,
}

/// Waits until no engine call of another service works on the container with this folder.
pub(crate) async fn settle(folder: &Path, what: Leftover) {
    for identity in calls(folder) {
        let Ok(Some(call)) = Watched::adopt(identity) else {
            continue;
        };
        let grace = match what {
            Leftover::Finish => LEFTOVER_DEADLINE,
            Leftover::Kill => Duration::ZERO,
        };
        if tokio::time::timeout(grace, call.ended()).await.is_ok() {
            continue;
        }
        tracing::warn!(
            pid = call.pid(),
            "killing an engine call that outlived its service"
        );
        let _ = rustix::process::pidfd_send_signal(call.as_fd(), Signal::KILL);
        if tokio::time::timeout(LEFTOVER_DEADLINE, call.ended())
            .await
            .is_err()
        {
            tracing::error!(pid = call.pid(), "a killed engine call does not end");
        }
    }
    remove_logs(folder);
}

/// The logs of those calls: nobody will read them.
fn remove_logs(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_bytes()
            .starts_with(LOG_PREFIX.as_bytes())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn calls(folder: &Path) -> Vec<ProcessIdentity> {
    let mark = folder.join(LOG_PREFIX);
    let is_call = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0)
                .any(|argument| argument.starts_with(mark.as_os_str().as_bytes()))
        })
    };
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_call)
        .filter_map(ProcessIdentity::of)
        .collect()
}
