//! Descriptors that tokio's reactor watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Gives a descriptor to the reactor of the current runtime.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped and always answers the same descriptor, and the
    // `AsyncFd` owns it until it is dropped or gives it back. The safe constructors are deprecated because
    // they take any `AsRawFd`.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(|error| error.into_parts().1)
}
