//! One live connection of a client: the requests that wait for answers, and the task that moves frames.
//!
//! The task owns the stream and ends with it. It holds no part of the client: when the last handle on a
//! [`Link`] goes, the queue closes, the frame being written is finished, and the stream is closed. On the
//! first error every request that waits fails, and the link takes no further ones.
//!
//! A request that is dropped before its answer keeps its place until the answer has come, so that the peer
//! never has more in flight than it agreed to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::call::{Patience, WireRequest};
use super::codec::{self, Bulk, Encoded};
use super::frame::{FrameReader, FrameWriter, within};
use super::incoming::{self, Body, Incoming};
use crate::capability::RuntimeOperation;
use crate::error::{Error, ErrorCode, Result};
use crate::limits::{
    FILE_PROTOCOL_VERSION, HELLO_DEADLINE, MAX_CALLS_IN_FLIGHT, MAX_QUEUED_FRAMES,
    MAX_WAITS_IN_FLIGHT, SDK_PROTOCOL_VERSION_MAX, SDK_PROTOCOL_VERSION_MIN,
};

/// A negotiated connection.
#[derive(Debug)]
pub(super) struct Link {
    protocol: u16,
    queue: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Outgoing {
    id: u64,
    frame: Encoded,
}

#[derive(Debug)]
struct Shared {
    calls: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    cancel_wanted: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    /// Why the link is no longer usable.
    broken: Option<Error>,
    slots: HashMap<u64, Slot>,
    /// Requests that were sent and dropped; at most one entry per slot.
    cancels: Vec<u64>,
}

/// The place of one request until its answer has come.
#[derive(Debug)]
struct Slot {
    /// `None` when nobody waits any more.
    answer: Option<oneshot::Sender<Result<Body>>>,
    /// The frame was handed to the stream.
    sent: bool,
    /// The largest answer that its verb has.
    limit: usize,
    _permit: OwnedSemaphorePermit,
}

impl Link {
    /// Negotiates on a fresh stream and starts the task that moves its frames.
    pub(super) async fn open<T>(io: T) -> Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (reading, writing) = tokio::io::split(io);
        let mut reader = FrameReader::new(reading);
        let mut writer = FrameWriter::new(writing);
        let hello = codec::hello()?;
        writer.write(&hello.json, &hello.segments).await?;
        writer.flush().await?;
        let frame = within(HELLO_DEADLINE, "the runtime did not answer", reader.first())
            .await??
            .ok_or_else(|| Error::unavailable("the runtime closed the stream"))?;
        let protocol = match incoming::decode(frame)? {
            Incoming::Welcome { protocol } => protocol,
            Incoming::Reject(error) => return Err(error),
            _ => return Err(Error::internal("the runtime did not answer the hello")),
        };
        if !(SDK_PROTOCOL_VERSION_MIN..=SDK_PROTOCOL_VERSION_MAX).contains(&protocol) {
            return Err(Error::internal(format!(
                "the runtime chose version {protocol}, which was not offered"
            )));
        }
        let (queue, frames) = mpsc::channel(MAX_QUEUED_FRAMES);
        let shared = Arc::new(Shared {
            calls: Arc::new(Semaphore::new(MAX_CALLS_IN_FLIGHT)),
            waits: Arc::new(Semaphore::new(MAX_WAITS_IN_FLIGHT)),
            cancel_wanted: Notify::new(),
            state: Mutex::default(),
        });
        tokio::spawn(drive(
            Guard(Arc::clone(&shared)),
            protocol,
            reader,
            writer,
            frames,
        ));
        Ok(Self {
            protocol,
            queue,
            shared,
        })
    }

    pub(super) const fn protocol(&self) -> u16 {
        self.protocol
    }

    pub(super) fn is_broken(&self) -> bool {
        self.shared.lock().broken.is_some()
    }

    /// Sends one request and waits for its answer, without a deadline of its own.
    pub(super) async fn call<Q, A>(&self, operation: RuntimeOperation, request: Q) -> Result<A>
    where
        Q: WireRequest + Serialize,
        A: serde::de::DeserializeOwned + Bulk,
    {
        let needs_files = matches!(
            operation,
            RuntimeOperation::File | RuntimeOperation::Filesystem
        );
        if needs_files && self.protocol < FILE_PROTOCOL_VERSION {
            return Err(Error::unsupported(operation.label()));
        }
        let permit = self.admit(request.patience()).await?;
        let (answer, arrival) = oneshot::channel();
        let place = self
            .shared
            .enter(answer, request.answer_size().limit(), permit)?;
        let frame = codec::request(self.protocol, place.id, operation, request)?;
        let outgoing = Outgoing {
            id: place.id,
            frame,
        };
        if self.queue.send(outgoing).await.is_err() {
            return Err(self.shared.reason());
        }
        match arrival.await {
            Ok(body) => body?.answer(operation),
            Err(_) => Err(self.shared.reason()),
        }
    }

    /// Calls queue for a place; a wait that finds none is refused, since places of waits are given back
    /// only when processes end.
    async fn admit(&self, patience: Patience) -> Result<OwnedSemaphorePermit> {
        if patience == Patience::Prompt {
            let calls = Arc::clone(&self.shared.calls);
            return calls
                .acquire_owned()
                .await
                .map_err(|_| self.shared.reason());
        }
        let waits = Arc::clone(&self.shared.waits);
        waits.try_acquire_owned().map_err(|_| {
            if self.is_broken() {
                self.shared.reason()
            } else {
                Error::new(
                    ErrorCode::ResourceExhausted,
                    format!("{MAX_WAITS_IN_FLIGHT} waits are in flight on this connection"),
                )
                .retryable(true)
            }
        })
    }
}

impl Shared {
    /// No code panics while it holds the lock, so a poisoned state is still whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reason(&self) -> Error {
        self.lock()
            .broken
            .clone()
            .unwrap_or_else(|| Error::unavailable("the connection to the runtime is closed"))
    }

    fn enter(
        self: &Arc<Self>,
        answer: oneshot::Sender<Result<Body>>,
        limit: usize,
        permit: OwnedSemaphorePermit,
    ) -> Result<Place> {
        let mut state = self.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        state.last_id += 1;
        let id = state.last_id;
        state.slots.insert(
            id,
            Slot {
                answer: Some(answer),
                sent: false,
                limit,
                _permit: permit,
            },
        );
        Ok(Place {
            id,
            shared: Arc::clone(self),
        })
    }

    /// Called before a frame is written: false when nobody wants it any more.
    fn begin(&self, id: u64) -> bool {
        let mut state = self.lock();
        match state.slots.get_mut(&id) {
            Some(slot) => {
                slot.sent = true;
                true
            }
            None => false,
        }
    }

    fn deliver(&self, id: u64, body: Body) -> Result<()> {
        let slot = self
            .lock()
            .slots
            .remove(&id)
            .filter(|slot| slot.sent)
            .ok_or_else(|| {
                Error::unavailable(format!(
                    "the runtime answered request {id}, which is not open"
                ))
            })?;
        if body.size() > slot.limit {
            let error = format!("the answer to request {id} has {} bytes", body.size());
            if let Some(answer) = slot.answer {
                let _ = answer.send(Err(Error::unavailable(error.as_str())));
            }
            return Err(Error::exhausted(error));
        }
        if let Some(answer) = slot.answer {
            // The receiver may just have been dropped.
            let _ = answer.send(Ok(body));
        }
        Ok(())
    }

    fn take_cancels(&self) -> Vec<u64> {
        let mut state = self.lock();
        let mut cancels = std::mem::take(&mut state.cancels);
        cancels.retain(|id| state.slots.contains_key(id));
        cancels
    }

    fn fail(&self, error: Error) {
        let slots = {
            let mut state = self.lock();
            if state.broken.is_none() {
                state.broken = Some(error.clone());
            }
            std::mem::take(&mut state.slots)
        };
        self.calls.close();
        self.waits.close();
        for slot in slots.into_values() {
            if let Some(answer) = slot.answer {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}

/// A request in flight. Dropped early, it tells the peer that nobody waits.
struct Place {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let Some(slot) = state.slots.get_mut(&self.id) else {
            return;
        };
        slot.answer = None;
        if slot.sent {
            state.cancels.push(self.id);
            drop(state);
            self.shared.cancel_wanted.notify_one();
        } else {
            // It may still be in the queue, and is then skipped.
            state.slots.remove(&self.id);
        }
    }
}

/// Fails what waits when the task ends, also when its runtime is shut down under it.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fail(Error::unavailable(
            "the connection to the runtime is closed",
        ));
    }
}

async fn drive<R, W>(
    guard: Guard,
    protocol: u16,
    mut reader: FrameReader<R>,
    mut writer: FrameWriter<W>,
    mut frames: mpsc::Receiver<Outgoing>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let shared = &guard.0;
    let outcome = tokio::select! {
        outcome = read_answers(shared, protocol, &mut reader) => outcome,
        outcome = write_requests(shared, protocol, &mut writer, &mut frames) => outcome,
    };
    if let Err(error) = outcome {
        // Whatever went wrong, the effects of what was in flight are unknown: that is `Unavailable`.
        let error = Error::unavailable(format!("lost the connection to the runtime: {error}"));
        tracing::debug!(%error, "runtime connection ended");
        shared.fail(error);
    }
}

async fn read_answers<R: AsyncRead + Unpin>(
    shared: &Shared,
    negotiated: u16,
    reader: &mut FrameReader<R>,
) -> Result<()> {
    while let Some(frame) = reader.next().await? {
        match incoming::decode(frame)? {
            Incoming::Response { protocol, id, body } if protocol == negotiated => {
                shared.deliver(id, body)?;
            }
            _ => {
                return Err(Error::internal(
                    "the runtime sent something else than an answer",
                ));
            }
        }
    }
    Err(Error::unavailable("the runtime closed the stream"))
}

async fn write_requests<W: AsyncWrite + Unpin>(
    shared: &Shared,
    protocol: u16,
    writer: &mut FrameWriter<W>,
    frames: &mut mpsc::Receiver<Outgoing>,
) -> Result<()> {
    loop {
        let outgoing = tokio::select! {
            biased;
            () = shared.cancel_wanted.notified() => {
                for id in shared.take_cancels() {
                    let frame = codec::cancel(protocol, id)?;
                    writer.write(&frame.json, &frame.segments).await?;
                }
                writer.flush().await?;
                continue;
            }
            outgoing = frames.recv() => outgoing,
        };
        let Some(Outgoing { id, frame }) = outgoing else {
            return Ok(writer.shutdown().await?);
        };
        if shared.begin(id) {
            writer.write(&frame.json, &frame.segments).await?;
        }
        if frames.is_empty() {
            writer.flush().await?;
        }
    }
}
