//! The trait of sessions: commands, terminals and files in a running execution.

use async_trait::async_trait;

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::exec::{
    ExecOutput, ExecRequest, FileRequest, FileResponse, FilesystemRequest, FilesystemResponse,
};
use crate::generation::ExecutionGeneration;
use crate::ids::ExecutionId;
use crate::process::ExecutionProcess;
use crate::pty::PtyRequest;

/// A generation that is not the current one is refused with `Conflict` before anything happens; an
/// unknown execution with `NotFound`.
#[async_trait]
pub trait ExecutionSessionManager: Send + Sync {
    /// Runs a command to its end and returns its bounded output. Not idempotent: a retry runs again,
    /// except where the request carries a `request_id` that the backend knows.
    async fn execute(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput>;

    /// Starts a command and streams it.
    async fn start_process(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess>;

    /// Starts a command on a terminal and streams it.
    async fn start_pty(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess>;

    /// Moves one whole file in or out.
    async fn transfer_file(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse>;

    /// Looks at or changes the filesystem.
    async fn filesystem(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        let _ = (execution_id, generation, request);
        Err(ExecutionManagerError::Unavailable(
            "this manager has no filesystem operations".to_owned(),
        ))
    }
}
