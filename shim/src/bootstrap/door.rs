//! The way in, and its end: no `start` may be told of a server that has decided to go.
//!
//! A `start` that finds the server leaves a trace under the group's lock: the time of the socket's file.
//! A server that wants to end takes that lock, looks for a trace whose Create has not come, and keeps the
//! lock until it listens no more. So a `start` either comes first and keeps the server, or finds nobody
//! and makes a new one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::launch::{GroupLock, LaunchError, remove_file};

/// The way in to the server of one socket.
#[derive(Debug)]
pub(crate) struct Door {
    socket: PathBuf,
    /// Time of the socket's file when the server began.
    born: Option<SystemTime>,
}

/// No `start` comes in while this is held. Without a lock there is no folder in which one would look.
#[derive(Debug)]
pub(crate) struct ClosedDoor {
    socket: PathBuf,
    lock: Option<GroupLock>,
}

impl Door {
    pub(crate) fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            born: found_at(socket),
        }
    }

    /// Closes the way in, unless a `start` stands in it: one that is under way, or one that found the
    /// server after `created`, the last Create, and less than `patience` ago.
    pub(crate) fn close(
        &self,
        created: Option<SystemTime>,
        patience: Duration,
    ) -> Option<ClosedDoor> {
        let lock = match GroupLock::try_take(&self.socket) {
            Ok(lock) => Some(lock),
            Err(LaunchError::LockDeadline { .. }) => return None,
            Err(_) => None,
        };
        let found = found_at(&self.socket).filter(|found| Some(*found) != self.born);
        let is_awaited = found.is_some_and(|found| {
            created.is_none_or(|created| found > created)
                && found.elapsed().is_ok_and(|since| since < patience)
        });
        (!is_awaited).then(|| ClosedDoor {
            socket: self.socket.clone(),
            lock,
        })
    }
}

impl ClosedDoor {
    /// Takes the socket's file away. To be called by the server, once it listens no more.
    pub(crate) fn remove_socket(self) -> io::Result<()> {
        let removed = remove_file(&self.socket);
        drop(self.lock);
        removed
    }
}

/// Leaves the trace of a `start` that found the server. The caller holds the group's lock.
pub(super) fn note_found(socket: &Path) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let time = Timespec {
        tv_sec: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(now.subsec_nanos()),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    // Without the trace the server may go too early, and then the Create says so.
    let _ = utimensat(CWD, socket, &times, AtFlags::SYMLINK_NOFOLLOW);
}

fn found_at(socket: &Path) -> Option<SystemTime> {
    std::fs::symlink_metadata(socket).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn socket() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        (folder, socket)
    }

    #[test]
    fn a_start_that_found_the_server_keeps_it_until_its_create_came() {
        let (folder, socket) = socket();
        let door = Door::new(&socket);
        drop(door.close(None, PATIENCE).unwrap());
        note_found(&socket);
        assert!(door.close(None, PATIENCE).is_none());
        assert!(door.close(None, Duration::ZERO).is_some());
        let created = SystemTime::now();
        let closed = door.close(Some(created), PATIENCE).unwrap();
        closed.remove_socket().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_start_that_is_under_way_keeps_it() {
        let (_folder, socket) = socket();
        let door = Door::new(&socket);
        let start = GroupLock::try_take(&socket).unwrap();
        assert!(door.close(None, PATIENCE).is_none());
        drop(start);
        assert!(door.close(None, PATIENCE).is_some());
    }

    #[test]
    fn a_folder_that_is_gone_keeps_nobody() {
        let (folder, socket) = socket();
        let door = Door::new(&socket);
        drop(folder);
        assert!(door.close(None, PATIENCE).is_some());
    }
}
