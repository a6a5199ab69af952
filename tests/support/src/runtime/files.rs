//! Files and folders that do not exist: answers of a fixed shape.

use std::collections::BTreeMap;

use a3sbox_oci::{
    Error, ErrorCode, FileOp, FileRequest, FileResponse, FilesystemEntry, FilesystemEntryKind,
    FilesystemOp, FilesystemRequest, FilesystemResponse, OperationContext, Result,
    RuntimeOperation,
};

use super::State;

/// `fake file\n`.
const DOWNLOAD: &str = "ZmFrZSBmaWxlCg==";
const DOWNLOAD_SIZE: u64 = 10;

impl State {
    pub(super) fn file(&mut self, request: FileRequest) -> Result<FileResponse> {
        self.recorded.files.push(request.clone());
        self.container(&request.target)?;
        if request.op == FileOp::Upload {
            self.files
                .admit(required(request.context.as_ref())?, &request)?;
        }
        let response = FileResponse {
            target: self.answered(&request.target, "a3s-box-file-drift")?,
            data: (request.op == FileOp::Download).then(|| DOWNLOAD.to_owned()),
            size: match request.op {
                FileOp::Upload => decoded_size(request.data.as_deref().unwrap_or_default()),
                FileOp::Download => DOWNLOAD_SIZE,
            },
        };
        self.answer(RuntimeOperation::File, response)
    }

    pub(super) fn filesystem(&mut self, request: FilesystemRequest) -> Result<FilesystemResponse> {
        self.recorded.filesystems.push(request.clone());
        self.container(&request.target)?;
        if request.op.is_mutating() {
            self.filesystems
                .admit(required(request.context.as_ref())?, &request)?;
        }
        let (entry, entries) = match request.op {
            FilesystemOp::Stat => (
                Some(entry(&request.path, FilesystemEntryKind::File)),
                vec![],
            ),
            FilesystemOp::MakeDir => (
                Some(entry(&request.path, FilesystemEntryKind::Directory)),
                vec![],
            ),
            FilesystemOp::Move => {
                let destination = request.destination.as_deref().unwrap_or_default();
                (Some(entry(destination, FilesystemEntryKind::File)), vec![])
            }
            FilesystemOp::ListDir => {
                let path = format!("{}/fixture.txt", request.path);
                (None, vec![entry(&path, FilesystemEntryKind::File)])
            }
            FilesystemOp::Remove => (None, vec![]),
        };
        let target = self.answered(&request.target, "a3s-box-filesystem-drift")?;
        let response = FilesystemResponse {
            target,
            entry,
            entries,
        };
        self.answer(RuntimeOperation::Filesystem, response)
    }
}

fn required(context: Option<&OperationContext>) -> Result<&OperationContext> {
    context.ok_or_else(|| Error::new(ErrorCode::InvalidArgument, "no operation context"))
}

fn decoded_size(base64: &str) -> u64 {
    let padding = base64
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    u64::try_from(base64.len() / 4 * 3 - padding).expect("a small file")
}

fn entry(path: &str, kind: FilesystemEntryKind) -> FilesystemEntry {
    let is_file = kind == FilesystemEntryKind::File;
    FilesystemEntry {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        kind,
        path: path.to_owned(),
        size: if is_file { 10 } else { 0 },
        mode: if is_file { 0o100_644 } else { 0o040_755 },
        permissions: if is_file { "-rw-r--r--" } else { "drwxr-xr-x" }.to_owned(),
        owner: "root".to_owned(),
        group: "root".to_owned(),
        modified_seconds: 1,
        modified_nanos: 2,
        symlink_target: None,
        metadata: BTreeMap::from([("fake".to_owned(), "true".to_owned())]),
    }
}
