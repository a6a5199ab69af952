//! The execution manager in the client's own process, and the clients made from it.
//!
//! ```text
//! client ─► LocalExecutionManager ─► backend (opened when first needed)
//!                                      ├─► refusal, host: what is not run is said before anything is made
//!                                      └─► OCI backend ─► runtime service with the native driver ─► runc
//!                                            └─► provider: image ─► rootfs, spec, logs
//! ```
//!
//! Everything of a sandbox is below the client's home, but its root's mount point for the engine
//! (`/run/a3sbox-sdk`) and its cgroup. A sandbox goes on when its client ends; the next client of the same home
//! takes it over. One process at a time is that client.

mod backend;
mod etc;
mod host;
pub(crate) mod ids;
mod logs;
mod mounts;
mod provider;
mod refusal;
mod rootfs;
mod seccomp;
mod spec;
mod user;

use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_execution::LocalExecutionManager;

use crate::client::{A3sBoxClient, A3sBoxPaths, ClientError, Result};
use crate::image::{ImageStore, ImageSummary};
use crate::sandbox::{Sandbox, SandboxCreateOptions};
use backend::LocalBackend;

/// Clients of the local manager. Making one touches no file and needs neither KVM nor containerd.
impl A3sBoxClient {
    /// On the user's own folder.
    #[expect(
        clippy::new_without_default,
        reason = "a client of the user's own state is asked for by name, not by default"
    )]
    pub fn new() -> Self {
        Self::with_paths(A3sBoxPaths::default())
    }

    pub fn from_home(home: impl Into<PathBuf>) -> Self {
        Self::with_paths(A3sBoxPaths::from_home(home))
    }

    pub fn with_paths(paths: A3sBoxPaths) -> Self {
        let resolved = absolute(&paths);
        let manager = Arc::new(LocalExecutionManager::new(
            resolved.boxes_file.clone(),
            resolved.home.clone(),
            Arc::new(LocalBackend::new(resolved)),
        ));
        Self::with_execution_services(paths, manager.clone(), manager)
    }
}

/// The images that local sandboxes are made from. There is no registry: an image comes as an archive.
impl A3sBoxClient {
    /// Imports an OCI image archive (tar; layers plain or with gzip) under the name that it states, from then on
    /// valid for [`Self::sandbox`](A3sBoxClient::sandbox). The same archive again changes nothing; an image of the
    /// same name is replaced, and sandboxes that run keep what they have. Needs root.
    ///
    /// # Errors
    /// `Runtime` for an archive that is damaged, leads out of its root, or is over a bound; `State` for the host's
    /// own errors. Nothing is left of an import that failed.
    pub async fn import_image(&self, archive: impl Into<PathBuf>) -> Result<ImageSummary> {
        let (images, archive) = (ImageStore::new(&self.paths().images_dir), archive.into());
        off_thread(move || Ok(images.import(&archive)?)).await
    }

    /// The imported images, by name.
    pub async fn list_images(&self) -> Result<Vec<ImageSummary>> {
        let images = ImageStore::new(&self.paths().images_dir);
        off_thread(move || Ok(images.list()?)).await
    }
}

/// The same places whatever becomes of the working directory: mounts and the engine are told of them.
fn absolute(paths: &A3sBoxPaths) -> A3sBoxPaths {
    let resolve = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    A3sBoxPaths {
        home: resolve(&paths.home),
        boxes_file: resolve(&paths.boxes_file),
        images_dir: resolve(&paths.images_dir),
        volumes_file: resolve(&paths.volumes_file),
        volumes_dir: resolve(&paths.volumes_dir),
        networks_file: resolve(&paths.networks_file),
        snapshots_dir: resolve(&paths.snapshots_dir),
    }
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ClientError::State(std::io::Error::other(error)))?
}

/// Sandboxes of the local manager on the user's own folder.
impl Sandbox {
    pub async fn create(image: impl Into<String>) -> Result<Self> {
        Self::create_with_options(SandboxCreateOptions::new(image)).await
    }

    pub async fn create_with_options(options: SandboxCreateOptions) -> Result<Self> {
        Self::create_with_client(A3sBoxClient::new(), options).await
    }

    pub async fn connect(sandbox_id: impl Into<String>) -> Result<Self> {
        Self::connect_with_client(A3sBoxClient::new(), sandbox_id).await
    }
}
