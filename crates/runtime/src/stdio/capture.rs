//! Captured output: one sequence over both streams, read by cursor.
//!
//! A data chunk ends at `sequence` and starts where the one before ended; an end-of-stream chunk takes one
//! unit. Nothing is handed out once only: a reader that lost an answer asks again from its old cursor. Bytes
//! that a reader has asked past are kept while there is room.
//!
//! Locking: one std mutex, held for copies in memory only. Waiting is on two watch channels, so a change
//! between a look and a wait is never missed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use a3sbox_oci::{OutputChunk, OutputStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// Most bytes of one process that are held.
pub(super) const CAPTURE_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Longest piece that is kept as one.
const SEGMENT_BYTES: usize = 64 * 1024;

/// What happens when nobody reads and the buffer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The process waits in its write, as with any pipe: for the processes of sessions.
    Block,
    /// The oldest bytes go, which a reader sees as a gap: for init processes, which nobody may ever read.
    DropOldest,
}

/// The captured output of one process.
#[derive(Debug)]
pub(super) struct OutputLog {
    state: Mutex<State>,
    overflow: Overflow,
    limit: usize,
    /// Grows with everything that is appended; true in the second place after the last end of stream.
    progress: watch::Sender<(u64, bool)>,
    /// Tells that bytes were freed.
    room: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    segments: VecDeque<Segment>,
    held: usize,
    last: u64,
    read_to: u64,
    dropped: u64,
    open: Vec<OutputStream>,
    ended: Vec<OutputStream>,
}

#[derive(Debug)]
struct Segment {
    /// Sequence before the first byte.
    start: u64,
    stream: OutputStream,
    /// Empty for an end of stream.
    data: Vec<u8>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + units(&self.data)
    }
}

/// How far a chunk moves the sequence.
fn units(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX).max(1)
}

impl OutputLog {
    /// A log of the given streams, in the order in which their ends are told.
    pub(super) fn new(streams: Vec<OutputStream>, overflow: Overflow) -> Self {
        Self::with_limit(streams, overflow, CAPTURE_BUFFER_BYTES)
    }

    pub(super) fn with_limit(streams: Vec<OutputStream>, overflow: Overflow, limit: usize) -> Self {
        let finished = streams.is_empty();
        Self {
            state: Mutex::new(State {
                segments: VecDeque::new(),
                held: 0,
                last: 0,
                read_to: 0,
                dropped: 0,
                open: streams,
                ended: Vec::new(),
            }),
            overflow,
            limit,
            progress: watch::Sender::new((0, finished)),
            room: watch::Sender::new(()),
        }
    }

    /// Waits until something may be appended. Cancel safe.
    pub(super) async fn wait_room(&self) {
        let mut freed = self.room.subscribe();
        while self.is_full() {
            if freed.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_full(&self) -> bool {
        let mut state = self.lock();
        state.evict_read(self.limit);
        self.overflow == Overflow::Block && state.held >= self.limit
    }

    /// Adds bytes of a stream. The bound may be passed by one piece.
    pub(super) fn append(&self, stream: OutputStream, mut bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.lock();
        while !bytes.is_empty() {
            let taken = state.push(stream, bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        state.evict_read(self.limit);
        if self.overflow == Overflow::DropOldest {
            state.drop_oldest(self.limit);
        }
        let last = state.last;
        drop(state);
        self.progress.send_replace((last, false));
    }

    /// Notes that a stream has ended. The ends are told together, after the last byte of either stream.
    pub(super) fn end(&self, stream: OutputStream) {
        let mut state = self.lock();
        let Some(at) = state.open.iter().position(|open| *open == stream) else {
            return;
        };
        state.open.remove(at);
        state.ended.push(stream);
        if !state.open.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut state.ended);
        ended.sort_by_key(|stream| *stream == OutputStream::Stderr);
        for stream in ended {
            let start = state.last;
            state.segments.push_back(Segment {
                start,
                stream,
                data: Vec::new(),
            });
            state.last = start + 1;
        }
        let last = state.last;
        drop(state);
        self.progress.send_replace((last, true));
    }

    /// The chunks after a cursor, at most `max_bytes` of data. Waits up to `wait` when there are none yet;
    /// after the last end of stream it answers at once.
    pub(super) async fn read(
        &self,
        after: u64,
        max_bytes: usize,
        wait: Option<Duration>,
    ) -> Vec<OutputChunk> {
        let deadline = wait.map(|wait| Instant::now() + wait);
        let mut progress = self.progress.subscribe();
        loop {
            let (_, finished) = *progress.borrow_and_update();
            let chunks = self.take(after, max_bytes);
            let Some(deadline) = deadline else {
                return chunks;
            };
            if !chunks.is_empty() || finished {
                return chunks;
            }
            match tokio::time::timeout_at(deadline, progress.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return self.take(after, max_bytes),
            }
        }
    }

    /// Bytes that were dropped because nobody read them.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    fn take(&self, after: u64, max_bytes: usize) -> Vec<OutputChunk> {
        let mut state = self.lock();
        state.read_to = state.read_to.max(after.min(state.last));
        let mut left = max_bytes;
        let mut chunks = Vec::new();
        let first = state
            .segments
            .partition_point(|segment| segment.end() <= after);
        for segment in state.segments.iter().skip(first) {
            if segment.data.is_empty() {
                chunks.push(OutputChunk {
                    sequence: segment.end(),
                    stream: segment.stream,
                    data: Vec::new(),
                    eof: true,
                });
                continue;
            }
            if left == 0 {
                break;
            }
            let skipped = after.saturating_sub(segment.start);
            let rest = usize::try_from(skipped)
                .ok()
                .and_then(|skipped| segment.data.get(skipped..))
                .unwrap_or_default();
            let piece = rest.get(..left).unwrap_or(rest);
            left -= piece.len();
            chunks.push(OutputChunk {
                sequence: segment.start + skipped + units(piece),
                stream: segment.stream,
                data: piece.to_vec(),
                eof: false,
            });
            if piece.len() < rest.len() {
                break;
            }
        }
        drop(state);
        // What was asked past may go when the space is needed.
        self.room.send_replace(());
        chunks
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds the start of `bytes` to the last segment or as a new one; tells how much.
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) -> usize {
        let taken = match self.segments.back_mut() {
            Some(last)
                if last.stream == stream
                    && !last.data.is_empty()
                    && last.data.len() < SEGMENT_BYTES =>
            {
                let taken = bytes.len().min(SEGMENT_BYTES - last.data.len());
                last.data.extend_from_slice(&bytes[..taken]);
                taken
            }
            _ => {
                let taken = bytes.len().min(SEGMENT_BYTES);
                self.segments.push_back(Segment {
                    start: self.last,
                    stream,
                    data: bytes[..taken].to_vec(),
                });
                taken
            }
        };
        self.held += taken;
        self.last += units(&bytes[..taken]);
        taken
    }

    /// Lets go of what a reader has asked past, as far as the bound needs it.
    fn evict_read(&mut self, limit: usize) {
        while self.held >= limit
            && self
                .segments
                .front()
                .is_some_and(|first| first.end() <= self.read_to)
        {
            self.pop();
        }
    }

    fn drop_oldest(&mut self, limit: usize) {
        while self.held > limit {
            let Some(bytes) = self.pop() else { break };
            self.dropped += bytes;
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let first = self.segments.pop_front()?;
        self.held = self.held.saturating_sub(first.data.len());
        Some(u64::try_from(first.data.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
