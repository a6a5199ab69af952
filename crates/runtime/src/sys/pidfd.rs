//! Signals by descriptor: a pid that was reused is never hit.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends any signal number, real-time ones too.
pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call, the siginfo pointer is null, which the call allows,
    // and no memory is shared with the kernel. `rustix` has the call for named signals alone.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
