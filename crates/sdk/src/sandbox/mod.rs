//! The handle on one sandbox: create or connect, run commands and scripts, move files, pause, restart,
//! take a snapshot of the filesystem, read the log, end it.
//!
//! All clones of a handle share what is known of the sandbox: its generation, its state, and whether the
//! handle is closed. Only the manager knows the truth; a handle asks it where a method says so.

mod artifact;
mod builder;
mod command;
mod commands;
mod events;
mod files;
mod handle;
mod lifecycle;
mod logs;
mod mounts;
mod observe;
mod options;
mod request;
mod script;
mod shared;
mod validate;

pub use artifact::{Artifact, ArtifactExportOptions, MAX_ARTIFACT_BYTES};
pub use builder::SandboxBuilder;
pub use command::{CommandResult, CommandRunOptions, SandboxCommand};
pub use commands::Commands;
pub use events::{SandboxEventStream, SandboxEventStreamOptions};
pub use files::{Filesystem, FilesystemOptions, WriteInfo};
pub use handle::{Sandbox, SandboxInfo};
pub use lifecycle::SandboxRestartOptions;
pub use logs::SandboxLogOptions;
pub use mounts::{TmpfsMount, VolumeMount, VolumeSource};
pub use options::{
    DEFAULT_SANDBOX_IMAGE, DEFAULT_SANDBOX_TIMEOUT_SECONDS, SandboxCreateOptions, SandboxNetwork,
};
pub use script::ScriptBuilder;
