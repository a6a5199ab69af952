#![forbid(unsafe_code)]
//! The OCI runtime service contract: its messages, its client, and its local transport.
//!
//! The same contract is called in process, over a local socket, and inside a guest; see
//! [`OciRuntimeService`] for what an implementation owes and [`RuntimeClient`] for how to call one.

mod attachments;
mod bundle;
mod capability;
mod client;
mod digest;
mod endpoint;
mod error;
mod extension;
mod ids;
mod ipc;
mod limits;
mod request;
mod response;
mod service;
mod validate;
mod verbs;

pub use async_trait::async_trait;
pub use oci_spec;
pub use oci_spec::runtime::{
    ContainerState as OciContainerState, Features as OciFeatures, LinuxResources, Process, Spec,
    State as OciState,
};

pub use attachments::{
    ATTACHMENT_SCHEMA_V1, AttachmentCapabilities, AttachmentEntry, AttachmentExtension,
    CreateAttachments, RUNTIME_BUNDLE_HANDOFF_BUNDLE_DIRECTORY, RUNTIME_BUNDLE_HANDOFF_EXTENSION,
    RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION, RUNTIME_BUNDLE_HANDOFF_MOVE_V1,
    RUNTIME_BUNDLE_HANDOFF_ROOT_DIRECTORY, runtime_bundle_handoff_directory,
};
pub use bundle::{CONFIG_FILE_NAME, OciBundle};
pub use capability::{
    CapabilityStatus, DriverCapability, DriverKind, DriverReadiness, HostPlatform, IsolationClass,
    IsolationRequest, RUNTIME_FEATURES_SCHEMA, RuntimeFeatures, RuntimeInfo, RuntimeOperation,
};
pub use client::RuntimeClient;
pub use endpoint::{LocalIpcEndpoint, OciRuntimeEndpoint};
pub use error::{Error, ErrorCode, Result};
pub use extension::{
    ENGINE_EXTENSION, ENGINE_EXTENSION_VERSION, EngineOptions, STDIO_EXTENSION,
    STDIO_EXTENSION_VERSION, StdioUris,
};
pub use ids::{
    ContainerId, ContainerTarget, Generation, OperationContext, OperationId, ProcessId,
    ProcessTarget, TrustDomainId,
};
pub use ipc::{
    LocalIpcListener, PeerCredentials, PeerPolicy, RuntimeTransportClient,
    serve_transport_connection,
};
pub use limits::{
    MAX_CALLS_IN_FLIGHT, MAX_CONFIG_BYTES, MAX_EVENT_BATCH_ITEMS, MAX_FILE_TRANSFER_BYTES,
    MAX_FILESYSTEM_DEPTH, MAX_FILESYSTEM_PATH_BYTES, MAX_FILESYSTEM_USER_BYTES, MAX_FRAME_BYTES,
    MAX_OUTPUT_READ_BYTES, MAX_STDIN_WRITE_BYTES, MAX_WAITS_IN_FLIGHT, SDK_PROTOCOL_VERSION_MAX,
    SDK_PROTOCOL_VERSION_MIN,
};
pub use request::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, CreateRequest, DeleteMode,
    DeleteProcessRequest, DeleteRequest, EventsRequest, ExecRequest, FileOp, FileRequest,
    FilesystemOp, FilesystemRequest, IoMode, KillRequest, ListRequest, PidsRequest, ProcessIo,
    ProcessesRequest, ReadOutputRequest, ResizeRequest, RestoreRequest, RunRequest, Signal,
    SignalProcessRequest, StartRequest, StateRequest, StatsRequest, TerminalSize, UpdateRequest,
    WaitProcessRequest, WaitRequest, WriteStdinRequest,
};
pub use response::{
    ContainerRecord, ContainerStats, CpuStats, EventBatch, ExitStatus, FileResponse,
    FilesystemEntry, FilesystemEntryKind, FilesystemResponse, IO_READ_BYTES_METRIC,
    IO_WRITE_BYTES_METRIC, MemoryStats, OutputChunk, OutputStream, PAUSED_STATE_ANNOTATION,
    ProcessRecord, RuntimeEvent, RuntimeEventKind, RuntimePid,
};
pub use service::OciRuntimeService;
pub use validate::ValidateRequest;
pub use validate::spec::{OCI_RUNTIME_SPEC_VERSION_MAX, OCI_RUNTIME_SPEC_VERSION_MIN};
