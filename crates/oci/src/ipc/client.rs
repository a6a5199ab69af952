//! The client half of the transport: a runtime service behind a stream.
//!
//! Reconnection is deliberate and small. A call that meets a broken stream fails with `Unavailable`, like
//! every other call that is pending; nothing is sent again and nothing is connected inside that call. The
//! next call connects once; calls that come meanwhile share that attempt and its outcome.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::call::{FeaturesRequest, Patience, WireRequest};
use super::codec::Bulk;
use super::frame::within;
use super::link::Link;
use crate::capability::{RuntimeInfo, RuntimeOperation};
use crate::endpoint::LocalIpcEndpoint;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::OperationContext;
use crate::limits::{ANSWER_DEADLINE, ANSWER_GRACE, CONNECT_DEADLINE};
use crate::service::OciRuntimeService;
use crate::verbs::for_each_verb;

/// A runtime service at the other end of a stream. All calls share the one stream; dropping the last
/// handle closes it.
pub struct RuntimeTransportClient {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None`: a stream that was handed in cannot be opened again.
    endpoint: Option<LocalIpcEndpoint>,
    connection: Mutex<Connection>,
}

enum Connection {
    Idle,
    Connecting(Attempt),
    Ready(Arc<Link>),
}

type Outcome = Option<Result<Arc<Link>>>;

/// A connect in progress; it ends when nobody is left to use it.
struct Attempt {
    outcome: watch::Receiver<Outcome>,
    task: AbortHandle,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for RuntimeTransportClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeTransportClient")
            .field("endpoint", &self.inner.endpoint)
            .finish_non_exhaustive()
    }
}

impl RuntimeTransportClient {
    /// A client of one given stream; when it breaks, every further call is `Unavailable`.
    pub async fn from_io<T>(io: T) -> Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let link = Link::open(io).await?;
        Ok(Self::with_link(None, link))
    }

    /// Opens exactly one stream and negotiates on it.
    pub async fn connect(endpoint: &LocalIpcEndpoint) -> Result<Self> {
        let link = open(endpoint).await?;
        Ok(Self::with_link(Some(endpoint.clone()), link))
    }

    fn with_link(endpoint: Option<LocalIpcEndpoint>, link: Link) -> Self {
        Self {
            inner: Arc::new(Inner {
                endpoint,
                connection: Mutex::new(Connection::Ready(Arc::new(link))),
            }),
        }
    }

    /// The version that was agreed on, while a stream is open.
    pub fn protocol_version(&self) -> Option<u16> {
        match &*self.inner.lock() {
            Connection::Ready(link) => Some(link.protocol()),
            Connection::Idle | Connection::Connecting(_) => None,
        }
    }

    async fn call<Q, A>(&self, operation: RuntimeOperation, request: Q) -> Result<A>
    where
        Q: WireRequest,
        A: DeserializeOwned + Bulk,
    {
        let Limit { time, code } = Limit::of(&request)?;
        let exchange = async {
            let link = self.inner.link().await?;
            link.call(operation, request).await
        };
        let outcome = match time {
            None => exchange.await,
            Some(time) => timeout(time, exchange).await.unwrap_or_else(|_| {
                Err(
                    Error::new(code, format!("no answer within {} ms", time.as_millis()))
                        .retryable(true),
                )
            }),
        };
        outcome.map_err(|error| match error.operation {
            Some(_) => error,
            None => error.for_operation(operation.label()),
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The open stream, or the outcome of the one attempt to open it.
    async fn link(self: &Arc<Self>) -> Result<Arc<Link>> {
        let mut outcome = {
            let mut connection = self.lock();
            match &*connection {
                Connection::Ready(link) if !link.is_broken() => return Ok(Arc::clone(link)),
                // A closed channel without an outcome is an attempt whose runtime was shut down.
                Connection::Connecting(attempt) if attempt.outcome.has_changed().is_ok() => {
                    attempt.outcome.clone()
                }
                Connection::Ready(_) | Connection::Connecting(_) | Connection::Idle => {
                    let attempt = self.start_attempt()?;
                    let outcome = attempt.outcome.clone();
                    *connection = Connection::Connecting(attempt);
                    outcome
                }
            }
        };
        let arrived = outcome.wait_for(Option::is_some).await;
        match arrived.ok().and_then(|outcome| outcome.clone()) {
            Some(result) => result,
            None => Err(Error::unavailable("connecting the runtime was given up")),
        }
    }

    /// The attempt holds the client weakly: it must not keep alive what it serves.
    fn start_attempt(self: &Arc<Self>) -> Result<Attempt> {
        let endpoint = self
            .endpoint
            .clone()
            .ok_or_else(|| Error::unavailable("the stream to the runtime is broken"))?;
        let (sender, outcome) = watch::channel(None);
        let client = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let result = open(&endpoint).await.map(Arc::new);
            finish_attempt(&client, sender, result);
        });
        Ok(Attempt {
            outcome,
            task: task.abort_handle(),
        })
    }
}

/// The connection is settled before the waiting calls learn of it, so that a call after a failed attempt
/// makes a new one.
fn finish_attempt(client: &Weak<Inner>, sender: watch::Sender<Outcome>, result: Result<Arc<Link>>) {
    let Some(client) = client.upgrade() else {
        return;
    };
    let settled = match &result {
        Ok(link) => Connection::Ready(Arc::clone(link)),
        Err(_) => Connection::Idle,
    };
    let attempt = std::mem::replace(&mut *client.lock(), settled);
    sender.send_replace(Some(result));
    drop(attempt);
}

async fn open(endpoint: &LocalIpcEndpoint) -> Result<Link> {
    let path = endpoint
        .as_unix_socket()
        .ok_or_else(|| Error::unavailable("named pipes do not exist on this platform"))?;
    let stream = within(
        CONNECT_DEADLINE,
        "the runtime did not accept the connection",
        UnixStream::connect(path),
    )
    .await?
    .map_err(|error| Error::unavailable(format!("cannot connect {}: {error}", path.display())))?;
    Link::open(stream).await
}

/// How long a call may take, and what it means when that has passed.
struct Limit {
    time: Option<Duration>,
    code: ErrorCode,
}

impl Limit {
    fn of(request: &impl WireRequest) -> Result<Self> {
        let time = match request.patience() {
            Patience::Prompt => Some(ANSWER_DEADLINE),
            Patience::UpTo(wait) => Some(wait.saturating_add(ANSWER_GRACE)),
            Patience::Forever => None,
        };
        let left = request.context().and_then(time_left);
        Ok(match (time, left) {
            (_, Some(left)) if left.is_zero() => {
                return Err(Error::new(
                    ErrorCode::DeadlineExceeded,
                    "the deadline of the operation has passed",
                )
                .retryable(true));
            }
            (Some(time), Some(left)) if left >= time => Self::service(Some(time)),
            (_, Some(left)) => Self {
                time: Some(left),
                code: ErrorCode::DeadlineExceeded,
            },
            (time, None) => Self::service(time),
        })
    }

    const fn service(time: Option<Duration>) -> Self {
        Self {
            time,
            code: ErrorCode::Unavailable,
        }
    }
}

fn time_left(context: &OperationContext) -> Option<Duration> {
    let end = UNIX_EPOCH.checked_add(Duration::from_millis(context.deadline_unix_ms?))?;
    Some(end.duration_since(SystemTime::now()).unwrap_or_default())
}

macro_rules! implement_service {
    ($($method:ident($request:ty) -> $answer:ty, $operation:ident;)*) => {
        #[async_trait]
        impl OciRuntimeService for RuntimeTransportClient {
            async fn features(&self) -> Result<RuntimeInfo> {
                self.call(RuntimeOperation::Features, FeaturesRequest).await
            }

            $(async fn $method(&self, request: $request) -> Result<$answer> {
                self.call(RuntimeOperation::$operation, request).await
            })*
        }
    };
}

for_each_verb!(implement_service);
