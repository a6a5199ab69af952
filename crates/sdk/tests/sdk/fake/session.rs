//! The fake's side of [`ExecutionSessionManager`].

use a3sbox_core::pty::PtyRequest;
use a3sbox_core::*;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Call, Fake, entry};

#[async_trait]
impl ExecutionSessionManager for Fake {
    async fn execute(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        let call = Call::Execute(generation.get(), request);
        self.fenced(call, id, generation, |state| {
            Ok(state.exec_output.clone().unwrap_or(ExecOutput {
                stdout: b"out\n".to_vec(),
                stderr: vec![],
                exit_code: 0,
                truncated: false,
            }))
        })
    }

    async fn start_process(
        &self,
        _: &ExecutionId,
        _: ExecutionGeneration,
        _: ExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        Err(ExecutionManagerError::Unavailable("not faked".into()))
    }

    async fn start_pty(
        &self,
        _: &ExecutionId,
        _: ExecutionGeneration,
        _: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        Err(ExecutionManagerError::Unavailable("not faked".into()))
    }

    async fn transfer_file(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FileRequest,
    ) -> ExecutionManagerResult<FileResponse> {
        let call = Call::Transfer(generation.get(), request.clone());
        self.fenced(call, id, generation, |state| {
            if let Some(response) = &state.file_response {
                return Ok(response.clone());
            }
            let done = |data: Option<String>, size: usize| FileResponse {
                success: true,
                data,
                size: size as u64,
                error: None,
            };
            Ok(match request.op {
                FileOp::Upload => {
                    let data = STANDARD.decode(request.data.unwrap()).unwrap();
                    let size = data.len();
                    state.files.insert(request.guest_path, data);
                    done(None, size)
                }
                FileOp::Download => match state.files.get(&request.guest_path) {
                    Some(data) => done(Some(STANDARD.encode(data)), data.len()),
                    None => FileResponse {
                        success: false,
                        data: None,
                        size: 0,
                        error: Some("File not found".into()),
                    },
                },
            })
        })
    }

    async fn filesystem(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: FilesystemRequest,
    ) -> ExecutionManagerResult<FilesystemResponse> {
        let call = Call::Filesystem(generation.get(), request.clone());
        self.fenced(call, id, generation, |state| {
            if let Some(response) = &state.filesystem_response {
                return Ok(response.clone());
            }
            let entry = state
                .files
                .get(&request.path)
                .map(|data| entry(&request.path, FilesystemEntryKind::File, data.len()));
            let success = request.op != FilesystemOp::Stat || entry.is_some();
            Ok(FilesystemResponse {
                success,
                entries: entry.clone().into_iter().collect(),
                entry,
                error: (!success).then(|| "Path Not Found".into()),
            })
        })
    }
}
