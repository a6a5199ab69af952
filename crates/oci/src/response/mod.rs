//! Answers of the contract, by subject.

mod container;
mod exit;
mod files;
mod stream;

pub use container::{
    ContainerRecord, ContainerStats, CpuStats, IO_READ_BYTES_METRIC, IO_WRITE_BYTES_METRIC,
    MemoryStats, PAUSED_STATE_ANNOTATION, ProcessRecord, RuntimePid,
};
pub use exit::ExitStatus;
pub use files::{FileResponse, FilesystemEntry, FilesystemEntryKind, FilesystemResponse};
pub use stream::{EventBatch, OutputChunk, OutputStream, RuntimeEvent, RuntimeEventKind};
