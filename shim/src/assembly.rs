//! Puts the layers together: runtime service, client, OCI backend, execution manager, all in process.
//!
//! ```text
//! <state root>/<instance>/<namespace>/<container>/    records of the manager
//!                                    /.runtime/<group>/   state of this shim's runtime service
//!                                    /.runc/          state of the engine, when no Root is given
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use a3sbox_core::ExecutionManagerError;
use a3sbox_durable::FileLock;
use a3sbox_execution::{LocalExecutionManager, OciLocalExecutionBackend};
use a3sbox_oci::{EngineOptions, OciRuntimeEndpoint, RuntimeClient};
use a3sbox_runtime::{NativeRuntimeService, RuntimeConfig};

use crate::bundle::ContainerdBundles;
use crate::grouping;

/// Name of the lock in the runtime service's folder; hidden, so that it is no container.
const LOCK_FILE: &str = ".lock";

/// Where one shim keeps its state.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// Records of all containers of the namespace.
    pub(crate) namespace_root: PathBuf,
    pub(crate) namespace: String,
    /// State of the runtime service of one group.
    pub(crate) runtime_root: PathBuf,
    pub(crate) engine_root: PathBuf,
}

/// Why the layers do not stand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssemblyError {
    #[error("cannot make the state folder {path}")]
    Folder {
        path: PathBuf,
        source: a3sbox_durable::DurableError,
    },
    #[error("another process has the runtime service of this pod")]
    Lock(#[source] a3sbox_durable::DurableError),
    #[error("cannot open the runtime service")]
    Runtime(#[source] a3sbox_oci::Error),
    #[error("cannot open the backend")]
    Backend(#[source] ExecutionManagerError),
}

impl Paths {
    /// `socket` is the group's: its name is a digest of the group, short enough for a folder.
    pub(crate) fn new(state_root: &Path, address: &str, namespace: &str, socket: &Path) -> Self {
        let namespace_root = state_root
            .join(grouping::instance_of(address))
            .join(namespace);
        let group = socket.file_name().unwrap_or_default();
        Self {
            runtime_root: namespace_root.join(".runtime").join(group),
            engine_root: namespace_root.join(".runc"),
            namespace: namespace.to_owned(),
            namespace_root,
        }
    }
}

/// The layers of one process, and its right to the state of the runtime service.
pub(crate) struct Assembled {
    pub(crate) manager: Arc<LocalExecutionManager>,
    pub(crate) service: Arc<NativeRuntimeService>,
    pub(crate) lock: FileLock,
}

/// Opens everything below the Task service. One process at a time has the runtime service of a group; the
/// one before it may still be ending.
pub(crate) async fn open(
    paths: &Paths,
    lock_deadline: Duration,
) -> Result<Assembled, AssemblyError> {
    let lock = lock_runtime(paths, lock_deadline)?;
    let config = RuntimeConfig {
        namespace: paths.namespace.clone(),
        engine: EngineOptions {
            root: Some(paths.engine_root.clone()),
            ..EngineOptions::default()
        },
        // Everything that this process starts goes through the runtime crate, or under its hold.
        sweep_orphans: true,
        ..RuntimeConfig::new(&paths.runtime_root)
    };
    let service = NativeRuntimeService::open(config)
        .await
        .map_err(AssemblyError::Runtime)?;
    let client = RuntimeClient::from_arc(service.clone());
    // In process there is nothing to dial: the endpoint names the service's state in the records.
    let endpoint = OciRuntimeEndpoint::UnixSocket {
        path: paths.runtime_root.join("in-process"),
    };
    let backend =
        OciLocalExecutionBackend::from_client(endpoint, client, Arc::new(ContainerdBundles))
            .map_err(AssemblyError::Backend)?;
    let manager = LocalExecutionManager::for_containers(
        &paths.namespace_root,
        paths.namespace_root.join(".home"),
        Arc::new(backend),
    );
    Ok(Assembled {
        manager: Arc::new(manager),
        service,
        lock,
    })
}

/// Makes the folders and takes the lock in them. Whoever had the lock before takes the empty folders away
/// behind it, perhaps between two of these steps: then they are made again.
fn lock_runtime(paths: &Paths, deadline: Duration) -> Result<FileLock, AssemblyError> {
    let give_up_at = Instant::now() + deadline;
    loop {
        let locked = a3sbox_durable::folder::create_all(&paths.runtime_root)
            .map_err(|source| AssemblyError::Folder {
                path: paths.runtime_root.clone(),
                source,
            })
            .and_then(|()| {
                FileLock::lock_within(&paths.runtime_root.join(LOCK_FILE), deadline)
                    .map_err(AssemblyError::Lock)
            });
        match locked {
            Err(AssemblyError::Folder { source, .. } | AssemblyError::Lock(source))
                if source.io_kind() == Some(ErrorKind::NotFound) && Instant::now() < give_up_at => {
            }
            other => return other,
        }
    }
}

/// [`remove_empty`] after a server that died, unless another process has the runtime service.
pub(crate) fn remove_leftovers(paths: &Paths) {
    let lock = paths.runtime_root.join(LOCK_FILE);
    if !lock.exists() {
        remove_empty_folders(paths);
    } else if let Ok(lock) = FileLock::try_lock(&lock) {
        remove_empty(paths, lock);
    }
}

/// Takes the folders away in which nothing is any more, under the lock that lies in one of them.
pub(crate) fn remove_empty(paths: &Paths, lock: FileLock) {
    // A folder that still holds something stays, and that is right: `remove_dir` takes empty ones alone.
    let _ = std::fs::remove_file(lock.path());
    let _ = std::fs::remove_dir(&paths.runtime_root);
    drop(lock);
    remove_empty_folders(paths);
}

fn remove_empty_folders(paths: &Paths) {
    let _ = std::fs::remove_dir(&paths.engine_root);
    if let Some(all_runtimes) = paths.runtime_root.parent() {
        let _ = std::fs::remove_dir(all_runtimes);
    }
    let _ = std::fs::remove_dir(&paths.namespace_root);
    if let Some(instance) = paths.namespace_root.parent() {
        let _ = std::fs::remove_dir(instance);
    }
}
