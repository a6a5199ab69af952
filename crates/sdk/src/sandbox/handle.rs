//! The handle itself, and the two ways to get one.

use std::fmt;
use std::sync::Arc;

use a3sbox_core::{ExecutionId, ExecutionIsolation, ExecutionState};

use super::commands::Commands;
use super::files::Filesystem;
use super::options::SandboxCreateOptions;
use super::script::ScriptBuilder;
use super::shared::Shared;
use crate::client::{A3sBoxClient, ClientError, Result};

/// What a handle knows without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    pub sandbox_id: String,
    pub generation: u64,
    pub state: ExecutionState,
    pub isolation: ExecutionIsolation,
}

/// A handle on one sandbox. Dropping it ends nothing.
#[derive(Clone)]
pub struct Sandbox {
    pub commands: Commands,
    pub files: Filesystem,
    pub(super) shared: Arc<Shared>,
}

impl Sandbox {
    /// Creates and starts a sandbox with one call of the manager.
    ///
    /// # Errors
    /// `Validation` for bad options and `Runtime` for options that the isolation cannot honour, both
    /// before the manager is called.
    pub async fn create_with_client(
        client: A3sBoxClient,
        options: SandboxCreateOptions,
    ) -> Result<Self> {
        let isolation = options.isolation;
        let (request, operation_id) = super::request::build(&client, options)?;
        let lease = client.run_box(request, &operation_id).await?;
        Ok(Self::from_shared(Shared::new(
            client,
            lease.execution_id,
            isolation,
            lease.generation,
            ExecutionState::Running,
        )))
    }

    /// Takes up a sandbox that exists, with one inspection, in whatever state it is.
    pub async fn connect_with_client(
        client: A3sBoxClient,
        sandbox_id: impl Into<String>,
    ) -> Result<Self> {
        let execution_id = ExecutionId::new(sandbox_id)
            .map_err(|error| ClientError::Validation(error.to_string()))?;
        let status = client.inspect_execution(&execution_id).await?;
        Ok(Self::from_shared(Shared::new(
            client,
            status.execution_id,
            status.plan.requested_isolation,
            status.generation,
            status.state,
        )))
    }

    /// The execution id.
    pub fn id(&self) -> &str {
        self.shared.execution_id.as_str()
    }

    pub fn info(&self) -> SandboxInfo {
        let known = self.shared.known();
        SandboxInfo {
            sandbox_id: self.id().to_owned(),
            generation: known.generation.get(),
            state: known.state,
            isolation: self.shared.isolation,
        }
    }

    pub fn isolation(&self) -> ExecutionIsolation {
        self.shared.isolation
    }

    /// See [`Commands::script`].
    pub fn script(&self, source: impl AsRef<[u8]>) -> ScriptBuilder {
        self.commands.script(source)
    }

    fn from_shared(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        Self {
            commands: Commands::new(Arc::clone(&shared)),
            files: Filesystem::new(Arc::clone(&shared)),
            shared,
        }
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sandbox").field(&self.info()).finish()
    }
}
