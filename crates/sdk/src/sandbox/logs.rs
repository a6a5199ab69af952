//! The end of a sandbox's log.

use a3sbox_core::LogEntry;

use super::handle::Sandbox;
use crate::client::{Result, invalid};

const DEFAULT_TAIL: usize = 100;
const MAX_TAIL: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxLogOptions {
    /// Number of entries from the end, 1 to 10,000.
    pub tail: usize,
}

impl SandboxLogOptions {
    pub const fn tail(tail: usize) -> Self {
        Self { tail }
    }
}

impl Default for SandboxLogOptions {
    fn default() -> Self {
        Self { tail: DEFAULT_TAIL }
    }
}

impl Sandbox {
    /// The last entries in order, standard output and standard error mixed as they were recorded.
    ///
    /// # Errors
    /// `Validation`, without a call, for a tail outside 1..=10,000.
    pub async fn logs(&self, options: SandboxLogOptions) -> Result<Vec<LogEntry>> {
        if !(1..=MAX_TAIL).contains(&options.tail) {
            return invalid(format!(
                "log tail {} is outside 1..={MAX_TAIL}",
                options.tail
            ));
        }
        let shared = &self.shared;
        let generation = shared.open()?;
        let mut entries = shared
            .client
            .read_execution_logs(&shared.execution_id, generation)
            .await?;
        let surplus = entries.len().saturating_sub(options.tail);
        entries.drain(..surplus);
        Ok(entries)
    }
}
