//! Events of one generation, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use a3sbox_core::{
    ExecutionEventsRequest, ExecutionGeneration, ExecutionRuntimeEvent,
    MAX_EXECUTION_EVENT_BATCH_ITEMS,
};

use super::handle::Sandbox;
use super::shared::Shared;
use crate::client::{Result, invalid};

const DEFAULT_BATCH_ITEMS: u32 = 256;
const DEFAULT_WAIT_TIMEOUT_MS: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxEventStreamOptions {
    /// Zero for all that are kept.
    pub after_sequence: u64,
    /// Events per call, 1 to 4096.
    pub batch_items: u32,
    /// How long one call may wait for a first event; not zero.
    pub wait_timeout_ms: u64,
}

impl Default for SandboxEventStreamOptions {
    fn default() -> Self {
        Self {
            after_sequence: 0,
            batch_items: DEFAULT_BATCH_ITEMS,
            wait_timeout_ms: DEFAULT_WAIT_TIMEOUT_MS,
        }
    }
}

/// An endless reader of the events of the generation that was current when it was made.
#[derive(Debug)]
pub struct SandboxEventStream {
    shared: Arc<Shared>,
    generation: ExecutionGeneration,
    options: SandboxEventStreamOptions,
    cursor: u64,
    pending: VecDeque<ExecutionRuntimeEvent>,
    ended: bool,
}

impl Sandbox {
    /// # Errors
    /// `Validation` for options out of bounds, or when the sandbox is not alive.
    pub fn stream_events(&self, options: SandboxEventStreamOptions) -> Result<SandboxEventStream> {
        if !(1..=MAX_EXECUTION_EVENT_BATCH_ITEMS).contains(&options.batch_items) {
            return invalid(format!(
                "event batch of {} is outside 1..={MAX_EXECUTION_EVENT_BATCH_ITEMS}",
                options.batch_items
            ));
        }
        if options.wait_timeout_ms == 0 {
            return invalid("wait for events must be greater than 0");
        }
        Ok(SandboxEventStream {
            generation: self.alive("reading events")?,
            shared: Arc::clone(&self.shared),
            cursor: options.after_sequence,
            options,
            pending: VecDeque::new(),
            ended: false,
        })
    }
}

impl SandboxEventStream {
    /// The next event, waiting for it. The first error is the last item.
    pub async fn next(&mut self) -> Option<Result<ExecutionRuntimeEvent>> {
        while !self.ended && self.pending.is_empty() {
            if let Err(error) = self.fetch().await {
                self.ended = true;
                return Some(Err(error));
            }
        }
        self.pending.pop_front().map(Ok)
    }

    /// One call; an empty answer is one that waited in vain.
    async fn fetch(&mut self) -> Result<()> {
        let batch = self
            .shared
            .client
            .execution_events(
                &self.shared.execution_id,
                self.generation,
                ExecutionEventsRequest {
                    after_sequence: self.cursor,
                    limit: self.options.batch_items,
                    wait_timeout_ms: Some(self.options.wait_timeout_ms),
                },
            )
            .await?;
        batch.validate_after(self.cursor)?;
        self.cursor = batch.next_sequence;
        self.pending.extend(batch.events);
        Ok(())
    }
}
