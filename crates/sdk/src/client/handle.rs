//! The client itself: its paths, its managers and how they are put together.

use std::fmt;
use std::sync::Arc;

use a3sbox_core::{ExecutionManager, ExecutionSessionManager};

use super::error::{ClientError, Result};
use super::paths::A3sBoxPaths;

/// Cheap to clone; clones share the managers.
#[derive(Clone)]
pub struct A3sBoxClient {
    paths: A3sBoxPaths,
    executions: Arc<dyn ExecutionManager>,
    sessions: Option<Arc<dyn ExecutionSessionManager>>,
}

impl A3sBoxClient {
    /// A client without sessions: commands and files are refused with `Validation`.
    pub fn with_execution_manager(
        paths: A3sBoxPaths,
        execution_manager: Arc<dyn ExecutionManager>,
    ) -> Self {
        Self {
            paths,
            executions: execution_manager,
            sessions: None,
        }
    }

    pub fn with_execution_services(
        paths: A3sBoxPaths,
        execution_manager: Arc<dyn ExecutionManager>,
        execution_session_manager: Arc<dyn ExecutionSessionManager>,
    ) -> Self {
        Self {
            paths,
            executions: execution_manager,
            sessions: Some(execution_session_manager),
        }
    }

    pub fn paths(&self) -> &A3sBoxPaths {
        &self.paths
    }

    pub(crate) fn executions(&self) -> &dyn ExecutionManager {
        self.executions.as_ref()
    }

    pub(crate) fn sessions(&self) -> Result<&dyn ExecutionSessionManager> {
        self.sessions
            .as_deref()
            .ok_or_else(|| ClientError::Validation("this client has no session manager".to_owned()))
    }
}

impl fmt::Debug for A3sBoxClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("A3sBoxClient")
            .field("paths", &self.paths)
            .field("sessions", &self.sessions.is_some())
            .finish_non_exhaustive()
    }
}
