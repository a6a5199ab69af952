//! Input through us, so that its end is ours to decide.
//!
//! A client that closes its end of the fifo has detached; only a close request is the end. The request takes
//! what is in the fifo at that moment along, in any state from created on, and then closes the pipe.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::termios::{LocalModes, SpecialCodeIndex};
use tokio::sync::{Semaphore, mpsc, watch};

use super::error::StdioError;
use super::fd::{PUMP_BUFFER_BYTES, Watched};
use super::pump::{Phase, PhaseWatch};

/// Bytes of written input that may wait for the process: one write of the largest size.
const STDIN_QUEUE_BYTES: usize = a3sbox_oci::MAX_STDIN_WRITE_BYTES;
/// How long a write waits for room in the queue.
const STDIN_ROOM_DEADLINE: Duration = Duration::from_secs(10);

/// What input comes from.
#[derive(Debug)]
pub(super) enum InputSource {
    /// A client's fifo, opened for both directions: it never ends by itself.
    Fifo(Watched),
    /// What [`InputQueue::write`] accepted.
    Queue(QueueReader),
}

/// Where input goes.
#[derive(Debug)]
pub(super) enum InputSink {
    Pipe(Watched),
    /// The master of a terminal.
    Terminal(Watched),
}

/// One look at the source.
enum Look {
    Some,
    Nothing,
}

impl InputSource {
    /// Takes what is there now, into an empty buffer.
    fn look(&mut self, buffer: &mut Vec<u8>) -> io::Result<Look> {
        match self {
            Self::Fifo(fifo) => {
                buffer.resize(PUMP_BUFFER_BYTES, 0);
                match fifo.try_read(buffer) {
                    Ok(0) => {
                        buffer.clear();
                        Ok(Look::Nothing)
                    }
                    Ok(read) => {
                        buffer.truncate(read);
                        Ok(Look::Some)
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        buffer.clear();
                        Ok(Look::Nothing)
                    }
                    Err(error) => Err(error),
                }
            }
            Self::Queue(queue) => match queue.pieces.try_recv() {
                Ok(piece) => {
                    *buffer = piece;
                    Ok(Look::Some)
                }
                Err(_) => Ok(Look::Nothing),
            },
        }
    }

    /// Waits for more, taking it from a queue. Cancel safe.
    async fn wait(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Fifo(fifo) => fifo.wait_readable().await.map(|_| ()),
            Self::Queue(queue) => match queue.pieces.recv().await {
                Some(piece) => {
                    *buffer = piece;
                    Ok(())
                }
                // Every handle is gone: the phase tells the same.
                None => std::future::pending().await,
            },
        }
    }

    /// Holds the fifo of a process that has ended until the client writes once more, or its streams are
    /// closed.
    ///
    /// A client that writes to a fifo without a reader gets an error, and containerd's then closes the
    /// process's output too, read or not: the first write after the end must succeed, as with a shim that
    /// notices only by that write.
    async fn linger(self, mut phase: PhaseWatch) {
        if let Self::Fifo(fifo) = self {
            tokio::select! {
                () = phase.reached(Phase::Closed) => {}
                // Readable or broken, it is not needed any more.
                _ = fifo.wait_readable() => {}
            }
        }
    }

    /// Tells the queue that bytes have been handed on.
    fn done(&self, bytes: usize) {
        if let Self::Queue(queue) = self {
            queue.room.add_permits(bytes);
        }
    }
}

impl InputSink {
    fn fd(&self) -> &Watched {
        match self {
            Self::Pipe(fd) | Self::Terminal(fd) => fd,
        }
    }

    /// Writes all. False when the process does not take input any more.
    async fn deliver(&self, bytes: &[u8], phase: &mut PhaseWatch) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = tokio::select! {
                biased;
                written = self.fd().write(rest) => written,
                () = phase.reached(Phase::Exited) => return false,
            };
            match written {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) => {
                    tracing::debug!(%error, "the process takes no more input");
                    return false;
                }
            }
        }
        true
    }
}

/// Moves input until it is closed, the process has ended, or it closed its own end.
pub(super) async fn run(
    mut source: InputSource,
    sink: InputSink,
    mut close: watch::Receiver<bool>,
    mut phase: PhaseWatch,
) {
    let mut buffer = Vec::new();
    let mut last_byte = None;
    let mut closing = false;
    loop {
        // Whether the end was asked for is read before the look: what came before it is seen by the look.
        closing = closing || *close.borrow_and_update();
        match source.look(&mut buffer) {
            Ok(Look::Some) => {
                last_byte = buffer.last().copied();
                if !sink.deliver(&buffer, &mut phase).await {
                    return;
                }
                source.done(buffer.len());
                tokio::task::yield_now().await;
                continue;
            }
            Ok(Look::Nothing) if closing => break,
            Ok(Look::Nothing) => buffer = Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "reading the input of a process failed");
                break;
            }
        }
        tokio::select! {
            biased;
            () = phase.reached(Phase::Exited) => {
                drop(sink);
                return source.linger(phase).await;
            }
            changed = close.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            waited = source.wait(&mut buffer) => {
                if let Err(error) = waited {
                    tracing::warn!(%error, "waiting for the input of a process failed");
                    break;
                }
                if !buffer.is_empty() {
                    last_byte = buffer.last().copied();
                    if !sink.deliver(&buffer, &mut phase).await {
                        return;
                    }
                    source.done(buffer.len());
                }
            }
        }
    }
    if let InputSink::Terminal(master) = &sink
        && let Some(end) = end_of_input(master, last_byte)
    {
        sink.deliver(&end, &mut phase).await;
    }
}

/// What ends the input of a terminal: its end-of-file sign, twice when a line has been begun, because the
/// first then only completes that line. A terminal in raw mode has no such sign, and no end but a hang-up,
/// which would take the process along.
fn end_of_input(master: &Watched, last_byte: Option<u8>) -> Option<Vec<u8>> {
    let modes = rustix::termios::tcgetattr(master.as_fd()).ok()?;
    if !modes.local_modes.contains(LocalModes::ICANON) {
        return None;
    }
    let sign = modes.special_codes[SpecialCodeIndex::VEOF];
    let begun = !matches!(last_byte, None | Some(b'\n' | b'\r'));
    Some(vec![sign; if begun { 2 } else { 1 }])
}

/// The writing side of input that comes by calls.
#[derive(Debug, Clone)]
pub(super) struct InputQueue {
    pieces: mpsc::UnboundedSender<Vec<u8>>,
    /// One permit per byte: this is the queue's bound.
    room: Arc<Semaphore>,
}

/// The reading side; dropping it refuses further writes.
#[derive(Debug)]
pub(super) struct QueueReader {
    pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    room: Arc<Semaphore>,
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// A bounded queue of input.
pub(super) fn queue() -> (InputQueue, QueueReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(STDIN_QUEUE_BYTES));
    (
        InputQueue {
            pieces: sender,
            room: Arc::clone(&room),
        },
        QueueReader {
            pieces: receiver,
            room,
        },
    )
}

impl InputQueue {
    /// Accepts all of `data` or nothing of it. Cancelled before it returns, nothing was accepted.
    pub(super) async fn write(&self, data: Vec<u8>) -> Result<(), StdioError> {
        if data.is_empty() {
            return Ok(());
        }
        let full = || StdioError::StdinFull {
            seconds: STDIN_ROOM_DEADLINE.as_secs(),
        };
        // The contract's bound is checked where requests come in; here it keeps the wait finite.
        let bytes = u32::try_from(data.len()).map_err(|_| full())?;
        let room = tokio::time::timeout(STDIN_ROOM_DEADLINE, self.room.acquire_many(bytes));
        let permits = room
            .await
            .map_err(|_| full())?
            .map_err(|_| StdioError::StdinClosed)?;
        self.pieces
            .send(data)
            .map_err(|_| StdioError::StdinClosed)?;
        permits.forget();
        Ok(())
    }
}
