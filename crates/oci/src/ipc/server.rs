//! The serving half of the transport: one accepted stream.
//!
//! Two loops share the stream, one reads requests and one writes answers; each request runs in a task of
//! its own. A request that only looks ends with its connection; one that changes something is finished, and
//! its outcome is in the service's journal for whoever asks again.

use std::sync::Arc;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::call::{AnswerSize, FeaturesRequest, Patience, WireRequest};
use super::codec::{self, Bulk, Encoded};
use super::frame::{FrameReader, FrameSize, FrameWriter, WriteFailure, within};
use super::incoming::{self, Body, Incoming};
use super::running::{EndOnDrop, Running};
use crate::capability::RuntimeOperation;
use crate::error::{Error, ErrorCode, Result};
use crate::limits::{
    FILE_PROTOCOL_VERSION, HELLO_DEADLINE, MAX_CALLS_IN_FLIGHT, MAX_LARGE_ANSWERS,
    MAX_OUTPUT_BYTES_PROMISED, MAX_QUEUED_FRAMES, MAX_REQUEST_BYTES_HELD, MAX_WAITS_IN_FLIGHT,
    MIN_OUTPUT_READ_GRANT, SDK_PROTOCOL_VERSION_MAX, SDK_PROTOCOL_VERSION_MIN,
};
use crate::service::OciRuntimeService;
use crate::verbs::for_each_verb;

/// Serves one accepted stream until the peer closes it; a clean end of stream is `Ok`.
///
/// A request that fails is answered with its error. A peer that breaks the protocol, or that stops inside
/// a frame, ends the connection with an error.
pub async fn serve_transport_connection<T>(service: Arc<dyn OciRuntimeService>, io: T) -> Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (reading, writing) = tokio::io::split(io);
    let mut reader = FrameReader::new(reading);
    let mut writer = FrameWriter::new(writing);
    let Some(protocol) = negotiate(&mut reader, &mut writer).await? else {
        return Ok(());
    };
    let (answers, mut queue) = mpsc::channel(MAX_QUEUED_FRAMES);
    let session = Session {
        service,
        protocol,
        answers,
        running: Arc::default(),
        budget: Budget::new(),
    };
    tokio::select! {
        outcome = session.read_requests(&mut reader) => outcome,
        outcome = write_answers(&mut writer, &mut queue) => match outcome {
            Ok(()) | Err(WriteFailure::PeerClosed) => Ok(()),
            Err(WriteFailure::Failed(error)) => Err(error),
        },
    }
}

/// The agreed version; `None` when the peer left without a word.
async fn negotiate<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut FrameWriter<W>,
) -> Result<Option<u16>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let first = within(HELLO_DEADLINE, "the peer said nothing", reader.first()).await??;
    let Some(frame) = first else {
        return Ok(None);
    };
    let Incoming::Hello { min, max } = incoming::decode(frame)? else {
        return Err(Error::internal("the peer did not begin with a hello"));
    };
    let common = max.min(SDK_PROTOCOL_VERSION_MAX);
    let outcome = if common >= min.max(SDK_PROTOCOL_VERSION_MIN) {
        Ok(common)
    } else {
        Err(Error::new(
            ErrorCode::Unsupported,
            format!(
                "versions {min} to {max} are not between {SDK_PROTOCOL_VERSION_MIN} and {SDK_PROTOCOL_VERSION_MAX}"
            ),
        ))
    };
    let reply = match &outcome {
        Ok(protocol) => codec::welcome(*protocol)?,
        Err(error) => codec::reject(error)?,
    };
    writer.write(&reply.json, &reply.segments).await?;
    writer.flush().await?;
    outcome.map(Some)
}

struct Session {
    service: Arc<dyn OciRuntimeService>,
    protocol: u16,
    answers: mpsc::Sender<Answer>,
    running: Arc<Running>,
    budget: Budget,
}

/// A frame on its way out, with what it keeps reserved until it is written.
struct Answer {
    frame: Encoded,
    _held: Held,
}

type Held = Vec<OwnedSemaphorePermit>;

/// The bounds of one connection.
struct Budget {
    request_bytes: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    output: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Budget {
    fn new() -> Self {
        let of = |permits| Arc::new(Semaphore::new(permits));
        Self {
            request_bytes: of(MAX_REQUEST_BYTES_HELD),
            calls: of(MAX_CALLS_IN_FLIGHT),
            waits: of(MAX_WAITS_IN_FLIGHT),
            output: of(MAX_OUTPUT_BYTES_PROMISED),
            large: of(MAX_LARGE_ANSWERS),
        }
    }
}

impl Session {
    async fn read_requests<R: AsyncRead + Unpin>(&self, reader: &mut FrameReader<R>) -> Result<()> {
        // Leaving this loop, by any way, ends the requests that only look.
        let _ends = EndOnDrop(&self.running);
        while let Some(size) = reader.next_size().await? {
            let bytes = self.reserve_request(size).await?;
            let message = incoming::decode(reader.body(size).await?)?;
            let version = match &message {
                Incoming::Request { protocol, .. } | Incoming::Cancel { protocol, .. } => *protocol,
                _ => {
                    return Err(Error::internal(
                        "the peer sent something else than a request",
                    ));
                }
            };
            if version != self.protocol {
                return Err(Error::internal(format!(
                    "a message of version {version} on a connection of version {}",
                    self.protocol
                )));
            }
            match message {
                Incoming::Request { id, body, .. } => self.accept(id, body, bytes).await?,
                Incoming::Cancel { id, .. } => self.running.cancel(id),
                _ => {}
            }
        }
        Ok(())
    }

    /// At the bound nothing more is read until requests have ended.
    async fn reserve_request(&self, size: FrameSize) -> Result<OwnedSemaphorePermit> {
        let permits = u32::try_from(size.total()).unwrap_or(u32::MAX);
        acquire(&self.budget.request_bytes, permits).await
    }

    async fn accept(&self, id: u64, body: Body, bytes: OwnedSemaphorePermit) -> Result<()> {
        if id == 0 {
            return Err(Error::internal("request id 0 is not allowed"));
        }
        if !self.running.enter(id) {
            return Err(Error::internal(format!("request id {id} is in flight")));
        }
        let held = vec![bytes];
        match body.operation() {
            Ok(operation) if self.lacks(operation) => {
                self.refuse(id, held, Error::unsupported(operation.label()))
                    .await
            }
            Ok(operation) => self.dispatch(id, operation, body, held).await,
            Err(error) => self.refuse(id, held, error).await,
        }
    }

    fn lacks(&self, operation: RuntimeOperation) -> bool {
        self.protocol < FILE_PROTOCOL_VERSION
            && matches!(
                operation,
                RuntimeOperation::File | RuntimeOperation::Filesystem
            )
    }

    async fn refuse(&self, id: u64, held: Held, error: Error) -> Result<()> {
        self.running.leave(id);
        let frame = codec::failure(self.protocol, id, &error)?;
        // A closed queue means that the writing side has ended, which ends this side too.
        let _ = self.answers.send(Answer { frame, _held: held }).await;
        Ok(())
    }

    /// Decodes and checks a request, waits for its place, and starts it. A client of ours never has more
    /// in flight than there are places; for any other, reading stops here.
    async fn run<Q, A, F>(
        &self,
        id: u64,
        operation: RuntimeOperation,
        body: Body,
        mut held: Held,
        act: impl FnOnce(Arc<dyn OciRuntimeService>, Q) -> F,
    ) -> Result<()>
    where
        Q: WireRequest,
        A: Serialize + Bulk + Send + 'static,
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let checked = body.request::<Q>().and_then(|request| {
            request.validate()?;
            Ok(request)
        });
        let mut request = match checked {
            Ok(request) => request,
            Err(error) => {
                let error = error.for_operation(operation.label());
                return self.refuse(id, held, error).await;
            }
        };
        let places = match request.patience() {
            Patience::Prompt => &self.budget.calls,
            Patience::UpTo(_) | Patience::Forever => &self.budget.waits,
        };
        held.push(acquire(places, 1).await?);
        let answer_size = request.answer_size();
        let large = match answer_size {
            AnswerSize::Small | AnswerSize::Events => None,
            AnswerSize::Output(wanted) => {
                request.limit_output(self.promise_output(wanted, &mut held));
                None
            }
            AnswerSize::Large => Some(Arc::clone(&self.budget.large)),
        };
        let changes = request.context().is_some();
        let work = act(Arc::clone(&self.service), request);
        let task = tokio::spawn(async move {
            let turn = match &large {
                Some(large) => Some(acquire(large, 1).await?),
                None => None,
            };
            Ok::<_, Error>((work.await?, turn))
        });
        if !changes {
            self.running.may_end(id, task.abort_handle());
        }
        let (protocol, answers) = (self.protocol, self.answers.clone());
        let running = Arc::clone(&self.running);
        tokio::spawn(async move {
            let outcome = task.await.unwrap_or_else(|error| {
                Err(if error.is_cancelled() {
                    Error::unavailable("the request was cancelled")
                } else {
                    Error::internal("the runtime panicked")
                }
                .for_operation(operation.label()))
            });
            running.leave(id);
            let frame = outcome
                .and_then(|(answer, turn)| {
                    held.extend(turn);
                    codec::answer(protocol, id, operation, answer)
                })
                .and_then(|frame| within_limit(frame, answer_size))
                .or_else(|error| codec::failure(protocol, id, &error));
            if let Ok(frame) = frame {
                // Nobody is left to tell when the queue is closed.
                let _ = answers.send(Answer { frame, _held: held }).await;
            }
        });
        Ok(())
    }

    /// Reserves what an output read asks for, or what is left. A read may wait long with nothing to give,
    /// so it is never made to wait for a reservation: beyond the bound it gets a small one.
    fn promise_output(&self, wanted: u32, held: &mut Held) -> u32 {
        let left = self.budget.output.available_permits();
        let share = u32::try_from(left).unwrap_or(u32::MAX).min(wanted);
        if share > MIN_OUTPUT_READ_GRANT.min(wanted)
            && let Ok(permit) = Arc::clone(&self.budget.output).try_acquire_many_owned(share)
        {
            held.push(permit);
            return share;
        }
        wanted.min(MIN_OUTPUT_READ_GRANT)
    }
}

fn within_limit(frame: Encoded, size: AnswerSize) -> Result<Encoded> {
    if frame.size() > size.limit() {
        return Err(Error::exhausted(format!(
            "the answer has {} bytes, more than {}",
            frame.size(),
            size.limit()
        )));
    }
    Ok(frame)
}

macro_rules! dispatch_by_operation {
    ($($method:ident($request:ty) -> $answer:ty, $operation:ident;)*) => {
        impl Session {
            async fn dispatch(
                &self,
                id: u64,
                operation: RuntimeOperation,
                body: Body,
                held: Held,
            ) -> Result<()> {
                match operation {
                    RuntimeOperation::Features => {
                        self.run(id, operation, body, held, |service, _: FeaturesRequest| async move {
                            service.features().await
                        })
                        .await
                    }
                    $(RuntimeOperation::$operation => {
                        self.run(id, operation, body, held, |service, request: $request| async move {
                            service.$method(request).await
                        })
                        .await
                    })*
                }
            }
        }
    };
}

for_each_verb!(dispatch_by_operation);

async fn acquire(semaphore: &Arc<Semaphore>, permits: u32) -> Result<OwnedSemaphorePermit> {
    Arc::clone(semaphore)
        .acquire_many_owned(permits)
        .await
        .map_err(|_| Error::internal("a bound of the connection was closed"))
}

async fn write_answers<W: AsyncWrite + Unpin>(
    writer: &mut FrameWriter<W>,
    queue: &mut mpsc::Receiver<Answer>,
) -> std::result::Result<(), WriteFailure> {
    while let Some(Answer { frame, _held }) = queue.recv().await {
        writer.write(&frame.json, &frame.segments).await?;
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
    Ok(())
}
