//! Which process a pid means: the pid together with the time at which the kernel started it.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// A process that is told from any later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    /// Clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub(crate) start_ticks: u64,
}

/// The fields of `/proc/<pid>/stat` that this crate needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    pub(crate) start_ticks: u64,
}

impl ProcessStat {
    /// Reads the fields of a process; `None` when there is none, zombies included.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may hold anything, parentheses too: the last one ends it.
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // Field 6 was the session; field 22 is the start time, fifteen fields further.
        let start_ticks = fields.nth(15)?.parse().ok()?;
        Some(Self {
            state,
            parent,
            group,
            session,
            start_ticks,
        })
    }
}

impl ProcessIdentity {
    /// The process that has this pid now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start_ticks: ProcessStat::read(pid)?.start_ticks,
        })
    }

    /// A descriptor of exactly this process; `None` when it is gone, even if the pid is in use again. A
    /// zombie is gone, unless it is our own child, whose exit we can still learn.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let fd = pidfd_open(raw_pid(self.pid)?, PidfdFlags::empty()).ok()?;
        // Looked up after the descriptor was opened: if it still matches, the descriptor is of the same
        // process, since the pid was in use the whole time.
        let stat = ProcessStat::read(self.pid)?;
        let is_over = matches!(stat.state, b'Z' | b'X') && stat.parent != std::process::id();
        (stat.start_ticks == self.start_ticks && !is_over).then_some(fd)
    }
}

/// The pid as the system calls take it; zero and values beyond the kernel's range are none.
pub(crate) fn raw_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "42 (a) b (c)) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 2 3";
        let stat = ProcessStat::parse(text).unwrap();
        assert_eq!(
            stat,
            ProcessStat {
                state: b'S',
                parent: 7,
                group: 8,
                session: 9,
                start_ticks: 4711
            }
        );
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        assert!(own.open().is_some());
        let later = ProcessIdentity {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(later.open().is_none());
    }
}
