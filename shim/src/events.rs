//! Events of the containers, on their way to containerd: in order, until it acknowledged each.
//!
//! The manager hands over events in the order in which their causes were recorded. They wait in an
//! outbox; one task forwards the oldest, and takes it out when containerd has answered. containerd may be
//! away for long: the outbox then keeps at most [`OUTBOX_LIMIT`] events and gives up the oldest that a
//! later one makes pointless (paused, exec added, ...). Exits and deletes are never given up; they cannot
//! pile up either, since only containerd starts processes, and each process ends once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use a3sbox_execution::task::{TaskEvent, TaskEventKind};
use containerd_shim_protos::shim::event::Envelope;
use containerd_shim_protos::shim::events::ForwardRequest;
use containerd_shim_protos::shim_async::{Client, EventsClient};
use tokio::sync::{Notify, mpsc};
use tracing::{error, warn};
use ttrpc::context::Context;

use crate::convert::event;

/// Events that wait for containerd before the less important ones are given up.
const OUTBOX_LIMIT: usize = 4096;
/// Longest time that containerd may take to acknowledge one event.
const FORWARD_DEADLINE: Duration = Duration::from_secs(5);
/// Pauses between attempts to reach a containerd that is away: the first, and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(2);
/// Refusals by a containerd that is there, before an event is given up: it will not change its mind.
const REFUSALS_LIMIT: u32 = 10;

/// The outbox, shared by the collector, the forwarder and the end of the shim.
#[derive(Clone)]
pub(crate) struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<TaskEvent>,
    given_up: u64,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Each change under this lock is complete in itself, a panic cannot tear it.
        self.shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes every event from the manager; it never waits for containerd.
    pub(crate) async fn collect(self, mut events: mpsc::Receiver<TaskEvent>) {
        while let Some(event) = events.recv().await {
            self.put(event);
        }
    }

    fn put(&self, event: TaskEvent) {
        let mut waiting = self.waiting();
        waiting.events.push_back(event);
        if waiting.events.len() > OUTBOX_LIMIT {
            // The oldest is being forwarded and must stay where it is.
            let pointless =
                (1..waiting.events.len()).find(|at| !is_final(&waiting.events[*at].kind));
            if let Some(at) = pointless {
                waiting.events.remove(at);
                waiting.given_up += 1;
                if waiting.given_up.is_power_of_two() {
                    warn!(
                        given_up = waiting.given_up,
                        "containerd is away: events were given up"
                    );
                }
            }
        }
        drop(waiting);
        self.shared.changed.notify_waiters();
    }

    /// Forwards events for as long as the shim lives.
    pub(crate) async fn forward(self, address: String) {
        let mut connection = Connection::new(address);
        let mut pause = RETRY_FIRST;
        let mut refusals = 0;
        loop {
            let changed = self.shared.changed.notified();
            let Some(event) = self.waiting().events.front().cloned() else {
                changed.await;
                continue;
            };
            match connection.forward(&event).await {
                Ok(()) => {
                    self.acknowledged();
                    pause = RETRY_FIRST;
                    refusals = 0;
                    continue;
                }
                Err(Failure::Refused(reason)) => {
                    refusals += 1;
                    if refusals >= REFUSALS_LIMIT {
                        error!(
                            container_id = event.key.container_id,
                            namespace = event.key.namespace,
                            topic = event::topic(&event.kind),
                            reason,
                            "containerd refuses an event: it is given up"
                        );
                        self.acknowledged();
                        refusals = 0;
                    }
                }
                Err(Failure::Away) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_LONGEST);
        }
    }

    fn acknowledged(&self) {
        self.waiting().events.pop_front();
        self.shared.changed.notify_waiters();
    }

    /// Returns when nothing waits any more.
    pub(crate) async fn drained(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.waiting().events.is_empty() {
                return;
            }
            changed.await;
        }
    }
}

/// Whether an event tells the end of something: nothing later says it again.
const fn is_final(kind: &TaskEventKind) -> bool {
    match kind {
        TaskEventKind::Exited { .. }
        | TaskEventKind::Deleted { .. }
        | TaskEventKind::OutOfMemory => true,
        TaskEventKind::Created { .. }
        | TaskEventKind::Started { .. }
        | TaskEventKind::ExecAdded { .. }
        | TaskEventKind::ExecStarted { .. }
        | TaskEventKind::Paused
        | TaskEventKind::Resumed
        | TaskEventKind::Checkpointed { .. } => false,
    }
}

enum Failure {
    /// containerd answered and does not take the event.
    Refused(String),
    /// No answer came.
    Away,
}

/// One connection to containerd's event service, made again when it breaks.
struct Connection {
    address: String,
    client: Option<EventsClient>,
}

impl Connection {
    fn new(address: String) -> Self {
        let address = if address.contains("://") {
            address
        } else {
            format!("unix://{address}")
        };
        Self {
            address,
            client: None,
        }
    }

    async fn forward(&mut self, event: &TaskEvent) -> Result<(), Failure> {
        let client = match &self.client {
            Some(client) => client,
            None => {
                let client = Client::connect(&self.address)
                    .await
                    .map_err(|_| Failure::Away)?;
                self.client.insert(EventsClient::new(client))
            }
        };
        let mut envelope = Envelope::new();
        envelope.timestamp = Some(event::timestamp(event.at)).into();
        envelope.namespace.clone_from(&event.key.namespace);
        event::topic(&event.kind).clone_into(&mut envelope.topic);
        envelope.event = Some(event::body(event)).into();
        let mut request = ForwardRequest::new();
        request.envelope = Some(envelope).into();
        let mut context = Context::default();
        context.set(
            "containerd-namespace-ttrpc".to_owned(),
            vec![event.key.namespace.clone()],
        );
        let answer =
            tokio::time::timeout(FORWARD_DEADLINE, client.forward(context, &request)).await;
        match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(ttrpc::Error::RpcStatus(status))) => Err(Failure::Refused(status.message)),
            Ok(Err(_)) | Err(_) => {
                self.client = None;
                Err(Failure::Away)
            }
        }
    }
}

#[cfg(test)]
mod tests;
