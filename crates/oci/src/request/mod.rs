//! Requests of the contract, by subject. Fields are public; [`crate::ValidateRequest`] says what is
//! accepted.

mod files;
mod io;
mod lifecycle;
mod observe;
mod process;

pub use files::{FileOp, FileRequest, FilesystemOp, FilesystemRequest};
pub use io::{IoMode, ProcessIo, TerminalSize};
pub use lifecycle::{
    CheckpointRequest, ContainerOperationRequest, CreateRequest, DeleteMode, DeleteRequest,
    KillRequest, RestoreRequest, RunRequest, Signal, StartRequest, UpdateRequest,
};
pub use observe::{
    EventsRequest, ListRequest, PidsRequest, ProcessesRequest, StateRequest, StatsRequest,
    WaitRequest,
};
pub use process::{
    CloseStdinRequest, DeleteProcessRequest, ExecRequest, ReadOutputRequest, ResizeRequest,
    SignalProcessRequest, WaitProcessRequest, WriteStdinRequest,
};

#[cfg(test)]
mod tests;
