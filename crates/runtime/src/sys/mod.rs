//! The system calls that no safe crate covers, and the only unsafe code of this crate.
#![expect(
    unsafe_code,
    reason = "waitid needs the pid of the child it found, and signals above the standard ones have no safe form"
)]

mod pidfd;
mod wait;
mod watch;

pub(crate) use pidfd::send_signal;
pub(crate) use wait::{Ended, Which, peek_zombie, reap};
pub(crate) use watch::watch;

/// Makes this process the parent of every orphan among its descendants.
///
/// The processes of containers are children of an engine that ends after each call; only a subreaper
/// becomes their parent then and learns how they end.
pub fn become_subreaper() -> std::io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(Into::into)
}

/// Whether [`become_subreaper`] was called in this process.
pub fn is_subreaper() -> bool {
    matches!(rustix::process::child_subreaper(), Ok(Some(_)))
}
