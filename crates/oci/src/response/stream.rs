//! Output and events, both read by a cursor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{ContainerTarget, ProcessId};

/// Which output a chunk belongs to. A terminal has only `Stdout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// A piece of captured output.
///
/// One sequence runs over both streams: a data chunk takes as many units as it has bytes, an end of
/// stream takes one. `sequence` is the last unit of the chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutputChunk {
    pub sequence: u64,
    pub stream: OutputStream,
    pub data: Vec<u8>,
    pub eof: bool,
}

/// Something that happened to a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeEvent {
    pub sequence: u64,
    pub timestamp_unix_ns: u64,
    pub container: ContainerTarget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    pub kind: RuntimeEventKind,
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RuntimeEventKind {
    ContainerCreating,
    ContainerCreated,
    ContainerStarted,
    ContainerStopped,
    ContainerDeleted,
    ContainerPaused,
    ContainerResumed,
    ResourcesUpdated,
    ProcessCreated,
    ProcessStarted,
    ProcessExited,
    OutputDropped,
    OutOfMemory,
    RuntimeWarning,
}

/// Events after a cursor, and the cursor to ask with next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBatch {
    pub events: Vec<RuntimeEvent>,
    pub next_sequence: u64,
}
