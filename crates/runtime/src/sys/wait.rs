//! `waitid` with the pid of what it found.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signaled(i32),
}

/// Which child is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'fd> {
    Fd(BorrowedFd<'fd>),
    Pid(u32),
}

/// Reaps the child if it has ended. `Ok(None)` while it runs; `ECHILD` when it is not our child.
pub(crate) fn reap(which: Which<'_>) -> io::Result<Option<Ended>> {
    let (kind, id) = match which {
        Which::Fd(fd) => (libc::P_PIDFD, fd.as_raw_fd().cast_unsigned()),
        Which::Pid(pid) => (libc::P_PID, pid),
    };
    Ok(waitid(kind, id, 0)?.map(|(_, ended)| ended))
}

/// The pid of some child that has ended and is not reaped yet; it stays a zombie.
pub(crate) fn peek_zombie() -> io::Result<Option<u32>> {
    match waitid(libc::P_ALL, 0, libc::WNOWAIT) {
        Ok(found) => Ok(found.map(|(pid, _)| pid)),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

fn waitid(kind: libc::idtype_t, id: u32, flags: i32) -> io::Result<Option<(u32, Ended)>> {
    // SAFETY: an all-zero siginfo is a valid value of that plain C struct; with WNOHANG it stays as it is
    // when no child has ended, which is how that case is told.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `info` is a valid, exclusive pointer for the length of the call. `rustix::process::waitid`
        // does not give the pid, and `nix` refuses children that a real-time signal killed.
        let result = unsafe {
            libc::waitid(
                kind,
                id,
                &raw mut info,
                libc::WEXITED | libc::WNOHANG | flags,
            )
        };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: waitid filled the fields of SIGCHLD, or left them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let ended = if info.si_code == libc::CLD_EXITED {
        Ended::Exited(status & 0xff)
    } else {
        Ended::Signaled(status)
    };
    Ok(Some((pid.cast_unsigned(), ended)))
}
