//! The shared vocabulary of a3sbox and the traits of its execution manager.
//!
//! Types, validation and traits only: no file, socket or process is touched here. What two crates
//! must agree on lives in this one, and everything is reachable at the crate root; the modules that
//! are public give the same items under the subject they belong to.

#![forbid(unsafe_code)]

pub mod config;
pub mod error;
mod event;
pub mod exec;
mod execution;
mod generation;
mod ids;
mod isolation;
pub mod limits;
pub mod log;
mod manager;
pub mod network;
mod plan;
mod policy;
mod port;
mod process;
pub mod pty;
mod request;
mod resources;
mod session;
mod snapshot;
mod stats;
pub mod volume;

pub use config::{BoxConfig, LogLevel, ResourceConfig, ResourceLimits};
pub use error::{BoxError, ExecutionManagerError, ExecutionManagerResult, Result};
pub use event::{
    ExecutionEventBatch, ExecutionEventKind, ExecutionEventsRequest, ExecutionRuntimeEvent,
};
pub use exec::{
    ExecChunk, ExecEvent, ExecExit, ExecOutput, ExecRequest, FileOp, FileRequest, FileResponse,
    FilesystemEntry, FilesystemEntryKind, FilesystemOp, FilesystemRequest, FilesystemResponse,
    StreamType,
};
pub use execution::{
    ExecutionLease, ExecutionReservation, ExecutionState, ExecutionStatus, KillExecutionOptions,
    KillOutcome, ReconcileOutcome, RestartExecutionOptions,
};
pub use generation::{ExecutionGeneration, Fence};
pub use ids::{ExecutionId, ExecutionSnapshotId, OperationId};
pub use isolation::{ExecutionBackend, ExecutionIsolation, IsolationClass};
pub use limits::{MAX_BOUNDED_FILE_BYTES, MAX_EXECUTION_EVENT_BATCH_ITEMS};
pub use log::{LogConfig, LogDriver, LogEntry};
pub use manager::ExecutionManager;
pub use network::{IsolationMode, NetworkConfig, NetworkEndpoint, NetworkMode};
pub use plan::{
    ResolvedExecutionPlan, resolve_execution, validate_microvm_compatibility,
    validate_sandbox_compatibility,
};
pub use policy::{ExecutionHealthCheck, ExecutionRecordPolicy, ExecutionRestartPolicy};
pub use port::{PortMapping, PortProtocol, parse_port_mapping};
pub use process::{
    ExecutionProcess, ExecutionProcessInfo, ExecutionProcessInput, ExecutionProcessInventory,
    ExecutionProcessSignal, ExecutionProcessStream,
};
pub use pty::PtyRequest;
pub use request::CreateExecutionRequest;
pub use resources::ExecutionResourceUpdate;
pub use session::ExecutionSessionManager;
pub use snapshot::{ExecutionSnapshot, SnapshotImageConfig, SnapshotMetadata};
pub use stats::{ExecutionCpuStats, ExecutionMemoryStats, ExecutionStats};
pub use volume::VolumeConfig;
