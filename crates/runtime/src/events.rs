//! What happened to the containers, in order, for whoever asks with a cursor.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use a3sbox_oci::{
    ContainerTarget, EventBatch, EventsRequest, ProcessId, RuntimeEvent, RuntimeEventKind,
};
use tokio::sync::watch;

use crate::native::reaper::now_unix_ns;

/// Most events that are kept. A reader that is further behind misses the oldest ones and can tell by the
/// gap in the sequence.
const MAX_EVENTS: usize = 4096;
/// Longest time that one call waits for an event; its caller asks again.
const MAX_EVENT_WAIT: Duration = Duration::from_secs(60);

/// The events of one service. Sequences start again at 1 with each process.
#[derive(Debug)]
pub(crate) struct EventLog {
    ring: Mutex<VecDeque<RuntimeEvent>>,
    last: watch::Sender<u64>,
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self {
            ring: Mutex::default(),
            last: watch::Sender::new(0),
        }
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<RuntimeEvent>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(
        &self,
        container: ContainerTarget,
        process_id: Option<ProcessId>,
        kind: RuntimeEventKind,
        attributes: BTreeMap<String, String>,
    ) {
        let mut ring = self.ring();
        let sequence = *self.last.borrow() + 1;
        if ring.len() == MAX_EVENTS {
            ring.pop_front();
        }
        ring.push_back(RuntimeEvent {
            sequence,
            timestamp_unix_ns: now_unix_ns(),
            container,
            process_id,
            kind,
            attributes,
        });
        // Under the lock, so that sequences are announced in order.
        self.last.send_replace(sequence);
    }

    /// The events after the cursor; waits for one when there is none and the request says so.
    pub(crate) async fn read(&self, request: &EventsRequest) -> EventBatch {
        let mut last = self.last.subscribe();
        let wait = Duration::from_millis(request.wait_timeout_ms.unwrap_or(0)).min(MAX_EVENT_WAIT);
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            last.mark_unchanged();
            let batch = self.collect(request);
            if !batch.events.is_empty() {
                return batch;
            }
            match tokio::time::timeout_at(deadline, last.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return batch,
            }
        }
    }

    fn collect(&self, request: &EventsRequest) -> EventBatch {
        let ring = self.ring();
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let mut next_sequence = request.after_sequence;
        let mut events = Vec::new();
        // Sequences are dense, so the place of the cursor is known.
        let first = ring.front().map_or(1, |event| event.sequence);
        let skip = request
            .after_sequence
            .saturating_add(1)
            .saturating_sub(first);
        for event in ring
            .iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
        {
            if events.len() == limit {
                break;
            }
            next_sequence = event.sequence;
            if is_asked_for(event, request.container.as_ref()) {
                events.push(event.clone());
            }
        }
        EventBatch {
            events,
            next_sequence,
        }
    }
}

fn is_asked_for(event: &RuntimeEvent, asked: Option<&ContainerTarget>) -> bool {
    asked.is_none_or(|asked| {
        asked.id == event.container.id
            && (asked.generation.is_none() || asked.generation == event.container.generation)
    })
}

#[cfg(test)]
mod tests {
    use a3sbox_oci::{ContainerId, Generation};

    use super::*;

    fn target(id: &str) -> ContainerTarget {
        ContainerTarget::exact(ContainerId::new(id).unwrap(), Generation(1))
    }

    fn request(container: Option<&str>, after_sequence: u64, limit: u32) -> EventsRequest {
        EventsRequest {
            container: container.map(target),
            after_sequence,
            limit,
            wait_timeout_ms: None,
        }
    }

    fn push(log: &EventLog, id: &str) {
        log.push(
            target(id),
            None,
            RuntimeEventKind::ContainerStarted,
            BTreeMap::new(),
        );
    }

    #[tokio::test]
    async fn the_cursor_walks_in_order_and_filters() {
        let log = EventLog::new();
        for id in ["a", "b", "a"] {
            push(&log, id);
        }
        let first = log.read(&request(None, 0, 2)).await;
        assert_eq!(first.events.len(), 2);
        assert_eq!(first.next_sequence, 2);
        let rest = log.read(&request(None, first.next_sequence, 9)).await;
        assert_eq!(rest.events.len(), 1);
        let of_a = log.read(&request(Some("a"), 0, 9)).await;
        assert_eq!(of_a.events.len(), 2);
        assert_eq!(of_a.next_sequence, 3);
        assert!(log.read(&request(None, 3, 9)).await.events.is_empty());
    }

    #[tokio::test]
    async fn the_ring_is_bounded_and_a_late_reader_gets_what_is_left() {
        let log = EventLog::new();
        for _ in 0..MAX_EVENTS + 3 {
            push(&log, "a");
        }
        let batch = log.read(&request(None, 0, 1)).await;
        assert_eq!(batch.events[0].sequence, 4);
    }

    #[tokio::test]
    async fn a_reader_waits_for_the_next_event() {
        let log = std::sync::Arc::new(EventLog::new());
        let reader = tokio::spawn({
            let log = log.clone();
            async move {
                log.read(&EventsRequest {
                    wait_timeout_ms: Some(10_000),
                    ..request(Some("b"), 0, 9)
                })
                .await
            }
        });
        tokio::task::yield_now().await;
        push(&log, "a");
        tokio::task::yield_now().await;
        push(&log, "b");
        assert_eq!(reader.await.unwrap().events.len(), 1);
    }
}
