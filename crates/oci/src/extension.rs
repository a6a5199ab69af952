//! What a create request may carry beside the OCI bundle: the attachment extensions of this project.
//!
//! An extension travels by name and version in [`crate::CreateAttachments`]. A service that does not
//! know a required one refuses the create before any effect.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the extension that names the standard streams of the init process by URI.
pub const STDIO_EXTENSION: &str = "dev.a3sbox.stdio";
/// Version of [`StdioUris`] as the value of [`STDIO_EXTENSION`].
pub const STDIO_EXTENSION_VERSION: u16 = 1;
/// Name of the extension that chooses the OCI engine and its switches.
pub const ENGINE_EXTENSION: &str = "dev.a3sbox.engine";
/// Version of [`EngineOptions`] as the value of [`ENGINE_EXTENSION`].
pub const ENGINE_EXTENSION_VERSION: u16 = 1;

/// The standard streams of one process as containerd names them.
///
/// Each stream is a URI (`fifo://`, `binary://`, `file://`) or a plain absolute path, which is a fifo.
/// `None` is a stream that nobody asked for: it is the null device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StdioUris {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Name by which a logging program (`binary://`) knows the process: the caller's own, which the
    /// runtime's ids do not tell. `None` is the runtime's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The process gets a pseudo-terminal; `stderr` is then not used.
    #[serde(default)]
    pub terminal: bool,
    /// Owner of the streams' files and pipes (`IoUid`, `IoGid` of containerd's runc options).
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
}

/// The OCI engine that runs one container, and its switches; the names are those of containerd's
/// `containerd.runc.v1.Options`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineOptions {
    /// Name of the container in the engine, and with it in the state that hooks read: the caller's own.
    /// `None` is the runtime's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Engine binary, a name searched in `PATH` or an absolute path. `None` is the driver's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// Folder of the engine's own state (`--root`), already specific to the containerd namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    #[serde(default)]
    pub systemd_cgroup: bool,
    #[serde(default)]
    pub no_pivot_root: bool,
    #[serde(default)]
    pub no_new_keyring: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criu_path: Option<PathBuf>,
    /// Checkpoint image to restore from instead of a fresh create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criu_work_path: Option<PathBuf>,
}

impl EngineOptions {
    /// Whether an engine takes this as a container's name: it becomes a folder, and runc allows these
    /// signs only.
    pub fn is_container_id(name: &str) -> bool {
        const MAX_BYTES: usize = 255;
        (1..=MAX_BYTES).contains(&name.len())
            && !name.starts_with('.')
            && !name.starts_with('-')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_+-.".contains(&b))
    }
}
