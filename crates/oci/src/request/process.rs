//! Requests about added processes and about the streams of any process.

use oci_spec::runtime::Process;
use serde::{Deserialize, Serialize};

use super::{ProcessIo, Signal, TerminalSize};
use crate::extension::StdioUris;
use crate::ids::{ContainerTarget, OperationContext, ProcessId, ProcessTarget};

/// Run a further process in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    pub context: OperationContext,
    pub container: ContainerTarget,
    pub process_id: ProcessId,
    pub process: Process,
    pub io: ProcessIo,
    /// The streams by URI; the streams of `io` that are `Inherit` or `Terminal` are these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<StdioUris>,
}

/// Captured output after a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadOutputRequest {
    pub process: ProcessTarget,
    pub after_sequence: u64,
    pub max_bytes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_timeout_ms: Option<u64>,
}

/// Bytes for the stdin of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WriteStdinRequest {
    pub context: OperationContext,
    pub process: ProcessTarget,
    pub data: Vec<u8>,
}

/// No more stdin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CloseStdinRequest {
    pub context: OperationContext,
    pub process: ProcessTarget,
}

/// A new size of a process's terminal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResizeRequest {
    pub context: OperationContext,
    pub process: ProcessTarget,
    pub size: TerminalSize,
}

/// A signal for one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignalProcessRequest {
    pub context: OperationContext,
    pub process: ProcessTarget,
    pub signal: Signal,
}

/// The exit status of one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WaitProcessRequest {
    pub process: ProcessTarget,
    /// `None` waits without limit, `Some(0)` asks once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Forget a process that ended or was never started; `FailedPrecondition` while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeleteProcessRequest {
    pub context: OperationContext,
    pub process: ProcessTarget,
}
