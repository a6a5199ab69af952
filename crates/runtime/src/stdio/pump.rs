//! Output through us: from a pipe or a terminal's master to a fifo, a file, a logging binary or a log.
//!
//! One task per stream. It holds a buffer only while bytes are on their way, so an idle stream costs no
//! memory but the task's own. It does not read on while its sink is full: the pressure reaches the writer.
//!
//! ```text
//! Running ── exited() ──► Exited ──────────────► close() ──► Closed
//!  read, wait              terminal, captured: read until     stop, whatever
//!  for more                nothing is left, then end          is pending
//!                          others: read on to the end
//! ```
//!
//! From a pipe into a pipe or fifo the kernel moves the pages itself, and no byte comes by here.

use std::io;
use std::time::Duration;

use a3sbox_oci::OutputStream;
use rustix::io::Errno;
use std::sync::Arc;
use tokio::sync::watch;

use super::capture::OutputLog;
use super::fd::{PUMP_BUFFER_BYTES, Wake, Watched};
use super::file::LogFile;

/// How often a terminal is looked at whose slave side nobody holds although the process lives: programs
/// may close their terminal and open it again. Grows from the first to the second.
const TERMINAL_REOPEN_POLL: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// Full buffers that are moved before other tasks of the thread get their turn.
const LOOKS_PER_TURN: u32 = 8;

/// Where the life of the process is, as its streams need to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The process may still write.
    Running,
    /// The process has ended: what is there is taken, and nothing is waited for.
    Exited,
    /// The streams are given up.
    Closed,
}

/// The phase as a task sees it. A handle that was dropped counts as closed.
#[derive(Debug, Clone)]
pub(super) struct PhaseWatch(watch::Receiver<Phase>);

impl PhaseWatch {
    pub(super) fn new(receiver: watch::Receiver<Phase>) -> Self {
        Self(receiver)
    }

    pub(super) fn current(&self) -> Phase {
        if self.0.has_changed().is_err() {
            return Phase::Closed;
        }
        *self.0.borrow()
    }

    /// Waits until the phase is at least `phase`. Cancel safe.
    pub(super) async fn reached(&mut self, phase: Phase) {
        // An error is a dropped handle, which is the last phase.
        let _ = self.0.wait_for(|current| *current >= phase).await;
    }
}

/// What output comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// The reading end of a pipe: it ends when every writer has gone, which may be children of the process
    /// that outlive it.
    Pipe(Watched),
    /// The same, but of a process whose exit is the end: what its children write later is nobody's.
    PipeUntilExit(Watched),
    /// The master of a terminal: it is hung up while nobody holds the slave side.
    Terminal(Option<Watched>),
}

/// What one look at a source gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Some,
    Nothing,
    HungUp,
    End,
}

impl Source {
    /// Appends what is there to the buffer, until it is full or nothing is left.
    ///
    /// A terminal gives at most 4 KiB per call, so one look is many calls: that is where the throughput
    /// of terminals comes from. The kernel flushes the line discipline before it says that there is nothing
    /// or that the other side has gone, so after the exit neither can hide bytes.
    fn look(&self, buffer: &mut Vec<u8>) -> io::Result<Look> {
        let (fd, terminal) = match self {
            Self::Pipe(fd) | Self::PipeUntilExit(fd) => (fd, false),
            Self::Terminal(Some(fd)) => (fd, true),
            Self::Terminal(None) => return Ok(Look::End),
        };
        let mut filled = 0;
        buffer.resize(PUMP_BUFFER_BYTES, 0);
        let look = loop {
            match fd.try_read(&mut buffer[filled..]) {
                Ok(0) => break Ok(Look::End),
                Ok(read) => {
                    filled += read;
                    if filled == buffer.len() {
                        break Ok(Look::Some);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(Look::Nothing),
                Err(error)
                    if terminal && error.raw_os_error() == Some(Errno::IO.raw_os_error()) =>
                {
                    break Ok(Look::HungUp);
                }
                Err(error) => break Err(error),
            }
        };
        buffer.truncate(filled);
        // What stopped the look is met again by the next one.
        if filled > 0 { Ok(Look::Some) } else { look }
    }

    /// The phase in which nothing more is waited for.
    fn last_phase(&self) -> Phase {
        match self {
            Self::Pipe(_) => Phase::Closed,
            Self::PipeUntilExit(_) | Self::Terminal(_) => Phase::Exited,
        }
    }

    async fn wait(&self) -> io::Result<Wake> {
        match self {
            Self::Pipe(fd) | Self::PipeUntilExit(fd) | Self::Terminal(Some(fd)) => {
                fd.wait_readable().await
            }
            Self::Terminal(None) => Ok(Wake::Readable),
        }
    }

    /// Watches a terminal anew after a hang-up that was taken back.
    fn rewatch(&mut self) -> io::Result<()> {
        if let Self::Terminal(slot) = self
            && let Some(old) = slot.take()
        {
            *slot = Some(Watched::readable(old.into_fd())?);
        }
        Ok(())
    }
}

/// Where output goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// A fifo or the pipe of a logging binary.
    Fd(Watched),
    File(LogFile),
    Log(Arc<OutputLog>, OutputStream),
    /// Nobody takes it any more; the process must not notice.
    Discard,
}

impl Sink {
    /// Hands the buffer on, whole. False when the streams were given up meanwhile.
    async fn deliver(&mut self, buffer: &mut Vec<u8>, phase: &mut PhaseWatch) -> bool {
        match self {
            Self::Fd(fd) => {
                let mut rest = buffer.as_slice();
                while !rest.is_empty() {
                    let written = tokio::select! {
                        biased;
                        written = fd.write(rest) => written,
                        () = phase.reached(Phase::Closed) => return false,
                    };
                    match written {
                        Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                        Err(error) => {
                            tracing::warn!(%error, "nobody takes the output any more, discarding it");
                            *self = Self::Discard;
                            return true;
                        }
                    }
                }
            }
            Self::File(file) => {
                let (empty, result) = file.append(std::mem::take(buffer)).await;
                *buffer = empty;
                if let Err(error) = result {
                    tracing::warn!(%error, "cannot write the output file, discarding output");
                    *self = Self::Discard;
                }
            }
            Self::Log(log, stream) => {
                tokio::select! {
                    biased;
                    () = log.wait_room() => {}
                    () = phase.reached(Phase::Closed) => return false,
                }
                log.append(*stream, buffer);
            }
            Self::Discard => {}
        }
        true
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Self::Log(log, stream) = self {
            log.end(*stream);
        }
    }
}

/// Moves output until the source ends, the process has ended and nothing is left, or all is given up.
pub(super) async fn run(mut source: Source, mut sink: Sink, mut phase: PhaseWatch) {
    if let Err(error) = pump(&mut source, &mut sink, &mut phase).await {
        tracing::warn!(%error, "reading the output of a process failed");
    }
    // A terminal's master stays open until its pump ends; the order is for the reader: end of stream last.
    drop(source);
    drop(sink);
}

/// Lets the kernel move what is there, where both sides are pipes; `None` where they are not, or when nobody
/// takes it any more.
async fn splice(
    source: &Source,
    sink: &mut Sink,
    phase: &mut PhaseWatch,
) -> Option<io::Result<Look>> {
    let (Source::Pipe(from), Sink::Fd(to)) = (source, &*sink) else {
        return None;
    };
    loop {
        match from.try_splice(to) {
            Ok(0) => return Some(Ok(Look::End)),
            Ok(_) => return Some(Ok(Look::Some)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "nobody takes the output any more, discarding it");
                *sink = Sink::Discard;
                return None;
            }
        }
        // Either side may be the reason.
        match from.has_input() {
            Ok(true) => {}
            Ok(false) => return Some(Ok(Look::Nothing)),
            Err(error) => return Some(Err(error)),
        }
        let room = tokio::select! {
            room = to.wait_writable() => room,
            () = phase.reached(Phase::Closed) => return Some(Ok(Look::End)),
        };
        if let Err(error) = room {
            return Some(Err(error));
        }
    }
}

async fn pump(source: &mut Source, sink: &mut Sink, phase: &mut PhaseWatch) -> io::Result<()> {
    let mut reopen_poll = TERMINAL_REOPEN_POLL.0;
    let mut turn = 0_u32;
    let mut buffer = Vec::new();
    let last_phase = source.last_phase();
    loop {
        // The phase is read before the look: what was written before the exit is there to be seen.
        let before = phase.current();
        if before == Phase::Closed {
            return Ok(());
        }
        let look = match splice(source, sink, phase).await {
            Some(moved) => moved?,
            None => source.look(&mut buffer)?,
        };
        match look {
            Look::End => return Ok(()),
            Look::Some => {
                reopen_poll = TERMINAL_REOPEN_POLL.0;
                if !buffer.is_empty() && !sink.deliver(&mut buffer, phase).await {
                    return Ok(());
                }
                // Neither side may have made the task wait: the calls about the container come between.
                turn = turn.wrapping_add(1);
                if turn.is_multiple_of(LOOKS_PER_TURN) {
                    tokio::task::yield_now().await;
                }
            }
            Look::Nothing | Look::HungUp if before >= last_phase => return Ok(()),
            Look::Nothing => {
                buffer = Vec::new();
                let wake = tokio::select! {
                    wake = source.wait() => wake?,
                    () = phase.reached(last_phase) => Wake::Readable,
                };
                if wake == Wake::Stale {
                    source.rewatch()?;
                }
            }
            Look::HungUp => {
                buffer = Vec::new();
                tokio::select! {
                    () = tokio::time::sleep(reopen_poll) => {}
                    () = phase.reached(last_phase) => {}
                }
                reopen_poll = (reopen_poll * 2).min(TERMINAL_REOPEN_POLL.1);
            }
        }
    }
}
