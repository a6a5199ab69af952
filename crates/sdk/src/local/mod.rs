//! The execution manager in the client's own process, and the clients made from it.

mod backend;

use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_execution::LocalExecutionManager;

use crate::client::{A3sBoxClient, A3sBoxPaths, Result};
use crate::sandbox::{Sandbox, SandboxCreateOptions};
use backend::MissingBackend;

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
        let manager = Arc::new(LocalExecutionManager::new(
            paths.boxes_file.clone(),
            paths.home.clone(),
            Arc::new(MissingBackend),
        ));
        Self::with_execution_services(paths, manager.clone(), manager)
    }
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
