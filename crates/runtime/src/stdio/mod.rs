//! Standard streams of the processes that the driver runs.
//!
//! ```text
//! open(spec, owner) ──► (Streams, ChildStdio)
//!                           │         └── Files: 0, 1, 2 of the engine process; with `--detach` they become the container's own
//!                           │             Console: path for `--console-socket`; Streams::attach_console after the engine returned
//!                           └── close_stdin · resize · write_stdin · read_output · exited · drained · close
//!
//! fifo, direct    container ──────────────► fifo ──► client      we hold a reading end, unread, until close
//! fifo, pumped    container ─► pipe ─► pump ─► fifo ──► client   execs; processes that change their security label
//! file            container ─► pipe ─► pump ─► file              a container must not be able to truncate a log
//! binary          container ─► pipe ─────────► logging binary    its death turns into a discard, not into SIGPIPE
//! terminal        container ─► pty ─► pump ─► fifo | file | binary | capture
//! capture         container ─► pipe ─► pump ─► OutputLog         read by cursor
//! stdin           fifo | write_stdin ─► pump ─► pipe | pty       so that closing it is ours to decide
//! ```
//!
//! What is promised: opening never blocks; no byte that a process wrote before it ended is lost while somebody
//! reads; a reader that left or stopped blocks the writer (buffers are bounded) and nobody else: [`Streams::drained`]
//! and [`Streams::close`] return within named deadlines. An idle stream costs descriptors and, where it is pumped,
//! one small task without a buffer; never a thread.
//!
//! Crash rule: nothing here is durable. A process whose shim died keeps its fifos; [`Streams::adopt`] takes the
//! reading ends again. Its stdin and terminal ended with the shim.

mod binary;
mod capture;
mod console;
mod error;
mod fd;
mod fifo;
mod file;
mod modes;
mod open;
mod piped;
mod pump;
mod stdin;
mod streams;
mod uri;

#[cfg(test)]
mod tests;

pub(crate) use binary::loggers_settled;
pub(crate) use capture::Overflow;
pub(crate) use console::ConsoleSocket;
pub(crate) use error::StdioError;
pub(crate) use open::{ChildStdio, StdioOwner, StdioSpec, open};
pub(crate) use streams::Streams;
