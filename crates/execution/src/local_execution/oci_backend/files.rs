//! File transfer and filesystem operations inside the container.
//!
//! These are the only calls that are resent: once, at once, unchanged, when the runtime says that it
//! may. The operation id of a mutating one is fresh per call and the same for its retry.
//!
//! What the container's own filesystem says about a path ("not found") is an answer without success, not an
//! error of the execution.

use a3sbox_core::exec::{
    FileOp as BoxFileOp, FileRequest as BoxFileRequest, FileResponse as BoxFileResponse,
    FilesystemEntry as BoxFilesystemEntry, FilesystemEntryKind as BoxFilesystemEntryKind,
    FilesystemOp as BoxFilesystemOp, FilesystemRequest as BoxFilesystemRequest,
    FilesystemResponse as BoxFilesystemResponse,
};
use a3sbox_core::{ExecutionManagerResult, MAX_BOUNDED_FILE_BYTES};
use a3sbox_oci::{
    ContainerTarget, FileOp, FileRequest, FileResponse, FilesystemEntry, FilesystemEntryKind,
    FilesystemOp, FilesystemRequest, FilesystemResponse, OperationContext, RuntimeOperation,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::OciLocalExecutionBackend;
use super::capabilities::require;
use super::error::{internal, invalid, runtime_error};
use super::identity::operation_context;
use super::record::Execution;
use crate::BoxRecord;

const FILE: &str = "file";
const FILESYSTEM: &str = "filesystem";
/// Bounds on one answer of a filesystem operation.
const MAX_FILESYSTEM_ENTRIES: usize = 4096;
const MAX_FILESYSTEM_RESPONSE_BYTES: usize = 12 * 1024 * 1024;

impl OciLocalExecutionBackend {
    pub(super) async fn transfer(
        &self,
        record: &BoxRecord,
        request: BoxFileRequest,
    ) -> ExecutionManagerResult<BoxFileResponse> {
        validate_limit(&request)?;
        let execution = Execution::new(record, &self.endpoint)?;
        let target = &execution.require_binding()?.target;
        require(&self.client, &[RuntimeOperation::File]).await?;
        let limit = request.max_bytes;
        let request = runtime_file_request(&execution, target, request)?;
        let answer = match self.client.file(request.clone()).await {
            Err(error) if error.retryable => self.client.file(request.clone()).await,
            answer => answer,
        };
        match answer {
            Ok(answer) => product_file_response(&request, answer, limit),
            Err(error) if error.is_of_path() => Ok(BoxFileResponse {
                success: false,
                data: None,
                size: 0,
                error: Some(error.message),
            }),
            Err(error) => Err(runtime_error(error)),
        }
    }

    pub(super) async fn filesystem_operation(
        &self,
        record: &BoxRecord,
        request: BoxFilesystemRequest,
    ) -> ExecutionManagerResult<BoxFilesystemResponse> {
        let execution = Execution::new(record, &self.endpoint)?;
        let target = &execution.require_binding()?.target;
        require(&self.client, &[RuntimeOperation::Filesystem]).await?;
        let request = runtime_filesystem_request(&execution, target, request)?;
        let answer = match self.client.filesystem(request.clone()).await {
            Err(error) if error.retryable => self.client.filesystem(request.clone()).await,
            answer => answer,
        };
        match answer {
            Ok(answer) => product_filesystem_response(&request, answer),
            Err(error) if error.is_of_path() => Ok(BoxFilesystemResponse {
                success: false,
                entry: None,
                entries: Vec::new(),
                error: Some(error.message),
            }),
            Err(error) => Err(runtime_error(error)),
        }
    }
}

fn validate_limit(request: &BoxFileRequest) -> ExecutionManagerResult<()> {
    let Some(limit) = request.max_bytes else {
        return Ok(());
    };
    if request.op == BoxFileOp::Upload {
        return Err(invalid("an upload takes no download limit"));
    }
    if !(1..=MAX_BOUNDED_FILE_BYTES).contains(&limit) {
        return Err(invalid(format!(
            "a download limit of {limit} bytes is outside 1..={MAX_BOUNDED_FILE_BYTES}"
        )));
    }
    Ok(())
}

/// A seed that no other call has.
fn fresh_seed() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn runtime_file_request(
    execution: &Execution<'_>,
    target: &ContainerTarget,
    request: BoxFileRequest,
) -> ExecutionManagerResult<FileRequest> {
    let mut request = FileRequest {
        target: target.clone(),
        op: match request.op {
            BoxFileOp::Upload => FileOp::Upload,
            BoxFileOp::Download => FileOp::Download,
        },
        path: request.guest_path,
        data: request.data,
        user: request.user,
        context: None,
    };
    if request.op == FileOp::Upload {
        request.context = Some(mutation_context(execution, FILE, (target, &request))?);
    }
    Ok(request)
}

fn runtime_filesystem_request(
    execution: &Execution<'_>,
    target: &ContainerTarget,
    request: BoxFilesystemRequest,
) -> ExecutionManagerResult<FilesystemRequest> {
    let mut request = FilesystemRequest {
        target: target.clone(),
        op: match request.op {
            BoxFilesystemOp::Stat => FilesystemOp::Stat,
            BoxFilesystemOp::MakeDir => FilesystemOp::MakeDir,
            BoxFilesystemOp::Move => FilesystemOp::Move,
            BoxFilesystemOp::ListDir => FilesystemOp::ListDir,
            BoxFilesystemOp::Remove => FilesystemOp::Remove,
        },
        path: request.path,
        destination: request.destination,
        depth: request.depth,
        user: request.user,
        context: None,
    };
    if request.op.is_mutating() {
        request.context = Some(mutation_context(execution, FILESYSTEM, (target, &request))?);
    }
    Ok(request)
}

fn mutation_context(
    execution: &Execution<'_>,
    label: &str,
    payload: impl serde::Serialize,
) -> ExecutionManagerResult<OperationContext> {
    operation_context(&fresh_seed(), execution.generation(), label, payload)
}

fn product_file_response(
    request: &FileRequest,
    answer: FileResponse,
    limit: Option<u64>,
) -> ExecutionManagerResult<BoxFileResponse> {
    if answer.target != request.target {
        return Err(internal(format!(
            "the runtime returned an invalid file target: container {} instead of {}",
            answer.target.id, request.target.id
        )));
    }
    if limit.is_some_and(|limit| answer.size > limit) {
        return Err(internal(format!(
            "the runtime's answer of {} bytes is over the requested download limit",
            answer.size
        )));
    }
    let carried = answer
        .data
        .as_deref()
        .or(request.data.as_deref())
        .unwrap_or_default();
    let bytes = STANDARD
        .decode(carried)
        .map_err(|error| internal(format!("the runtime's file data is not base64: {error}")))?;
    let has_data = answer.data.is_some();
    let is_consistent = u64::try_from(bytes.len()).is_ok_and(|size| size == answer.size)
        && has_data == (request.op == FileOp::Download);
    if !is_consistent {
        return Err(internal("the runtime's file answer contradicts itself"));
    }
    Ok(BoxFileResponse {
        success: true,
        data: answer.data,
        size: answer.size,
        error: None,
    })
}

fn product_filesystem_response(
    request: &FilesystemRequest,
    answer: FilesystemResponse,
) -> ExecutionManagerResult<BoxFilesystemResponse> {
    if answer.target != request.target {
        return Err(internal(format!(
            "the runtime returned an invalid filesystem target: container {} instead of {}",
            answer.target.id, request.target.id
        )));
    }
    let has_entry = answer.entry.is_some();
    let has_shape = match request.op {
        FilesystemOp::Stat | FilesystemOp::MakeDir | FilesystemOp::Move => {
            has_entry && answer.entries.is_empty()
        }
        FilesystemOp::ListDir => !has_entry,
        FilesystemOp::Remove => !has_entry && answer.entries.is_empty(),
    };
    if !has_shape {
        return Err(internal(format!(
            "the runtime's answer does not have the shape of {:?}",
            request.op
        )));
    }
    let size: usize = answer
        .entry
        .iter()
        .chain(&answer.entries)
        .map(entry_size)
        .sum();
    if answer.entries.len() > MAX_FILESYSTEM_ENTRIES || size > MAX_FILESYSTEM_RESPONSE_BYTES {
        return Err(internal(format!(
            "the runtime's answer of {} entries and {size} bytes is too large",
            answer.entries.len()
        )));
    }
    Ok(BoxFilesystemResponse {
        success: true,
        entry: answer.entry.map(product_entry),
        entries: answer.entries.into_iter().map(product_entry).collect(),
        error: None,
    })
}

/// Bytes of an entry: its fixed part and all of its text.
fn entry_size(entry: &FilesystemEntry) -> usize {
    let texts = [
        &entry.name,
        &entry.path,
        &entry.permissions,
        &entry.owner,
        &entry.group,
    ];
    let metadata = entry
        .metadata
        .iter()
        .map(|(key, value)| key.len() + value.len());
    size_of::<FilesystemEntry>()
        + texts.into_iter().map(String::len).sum::<usize>()
        + entry.symlink_target.as_ref().map_or(0, String::len)
        + metadata.sum::<usize>()
}

fn product_entry(entry: FilesystemEntry) -> BoxFilesystemEntry {
    BoxFilesystemEntry {
        name: entry.name,
        kind: match entry.kind {
            FilesystemEntryKind::File => BoxFilesystemEntryKind::File,
            FilesystemEntryKind::Directory => BoxFilesystemEntryKind::Directory,
            _ => BoxFilesystemEntryKind::Unspecified,
        },
        path: entry.path,
        size: entry.size,
        mode: entry.mode,
        permissions: entry.permissions,
        owner: entry.owner,
        group: entry.group,
        modified_seconds: entry.modified_seconds,
        modified_nanos: entry.modified_nanos,
        symlink_target: entry.symlink_target,
        metadata: entry.metadata,
    }
}
