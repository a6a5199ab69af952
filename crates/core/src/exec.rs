//! Commands, files and the filesystem of a running execution: requests and answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::limits::{
    DEFAULT_EXEC_TIMEOUT_NS, MAX_BOUNDED_FILE_BYTES, MAX_ONE_SHOT_OUTPUT_BYTES, MAX_OUTPUT_BYTES,
};

/// One command to run beside the init process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    pub cmd: Vec<String>,
    /// Zero is the backend's default.
    pub timeout_ns: u64,
    /// `KEY=VALUE`.
    #[serde(default)]
    pub env: Vec<String>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default)]
    pub rootfs: Option<String>,
    #[serde(default)]
    pub stdin: Option<Vec<u8>>,
    #[serde(default)]
    pub stdin_streaming: bool,
    /// `root`, `1000` or `1000:1000`.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub streaming: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
    /// Output above the bound was dropped.
    #[serde(default)]
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamType {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecChunk {
    pub stream: StreamType,
    pub data: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    pub exit_code: i32,
    #[serde(default)]
    pub oom_killed: bool,
}

/// One step of a streamed command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecEvent {
    Chunk(ExecChunk),
    /// What was asked to be flushed is out.
    FlushAck,
    Exit(ExecExit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileOp {
    Upload,
    Download,
}

/// One whole file in or out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    pub op: FileOp,
    pub guest_path: String,
    /// Base64, standard alphabet; upload only.
    #[serde(default)]
    pub data: Option<String>,
    #[serde(default)]
    pub user: Option<String>,
    /// Most decoded bytes of the answer, at most [`MAX_BOUNDED_FILE_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileResponse {
    pub success: bool,
    pub data: Option<String>,
    pub size: u64,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FilesystemOp {
    Stat,
    MakeDir,
    Move,
    ListDir,
    Remove,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemRequest {
    pub op: FilesystemOp,
    pub path: String,
    /// Where to move to.
    #[serde(default)]
    pub destination: Option<String>,
    /// How deep to list.
    #[serde(default)]
    pub depth: u32,
    #[serde(default)]
    pub user: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FilesystemEntryKind {
    Unspecified,
    File,
    Directory,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemEntry {
    pub name: String,
    pub kind: FilesystemEntryKind,
    pub path: String,
    pub size: i64,
    pub mode: u32,
    /// As `ls` writes them.
    pub permissions: String,
    pub owner: String,
    pub group: String,
    pub modified_seconds: i64,
    pub modified_nanos: i32,
    #[serde(default)]
    pub symlink_target: Option<String>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemResponse {
    pub success: bool,
    #[serde(default)]
    pub entry: Option<FilesystemEntry>,
    #[serde(default)]
    pub entries: Vec<FilesystemEntry>,
    #[serde(default)]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_needs_argv_and_timeout_only() {
        let request: ExecRequest =
            serde_json::from_str(r#"{"cmd":["true"],"timeout_ns":0}"#).unwrap();
        assert_eq!(
            request,
            ExecRequest {
                request_id: None,
                cmd: vec!["true".into()],
                timeout_ns: 0,
                env: vec![],
                working_dir: None,
                rootfs: None,
                stdin: None,
                stdin_streaming: false,
                user: None,
                streaming: false,
            }
        );
        let value = serde_json::to_value(&request).unwrap();
        assert!(value.get("request_id").is_none());
        assert!(serde_json::from_str::<ExecRequest>(r#"{"cmd":[]}"#).is_err());
        assert!(serde_json::from_str::<ExecRequest>(r#"{"timeout_ns":0}"#).is_err());
    }

    #[test]
    fn truncated_may_be_absent() {
        let output: ExecOutput =
            serde_json::from_str(r#"{"stdout":[111],"stderr":[],"exit_code":3}"#).unwrap();
        assert!(!output.truncated);
        assert_eq!(output.stdout, b"o");
    }

    #[test]
    fn operations_go_by_variant_name() {
        assert_eq!(serde_json::to_value(FileOp::Upload).unwrap(), "Upload");
        assert_eq!(
            serde_json::to_value(FilesystemOp::ListDir).unwrap(),
            "ListDir"
        );
    }

    #[test]
    fn an_unbounded_file_request_leaves_the_bound_out() {
        let request = FileRequest {
            op: FileOp::Download,
            guest_path: "/f".into(),
            data: None,
            user: None,
            max_bytes: None,
        };
        let value = serde_json::to_value(&request).unwrap();
        assert!(value.get("max_bytes").is_none());
        assert_eq!(
            serde_json::from_value::<FileRequest>(value).unwrap(),
            request
        );
    }

    #[test]
    fn a_filesystem_request_needs_operation_and_path_only() {
        let request: FilesystemRequest =
            serde_json::from_str(r#"{"op":"Stat","path":"/"}"#).unwrap();
        assert_eq!((request.depth, request.user), (0, None));
        assert!(request.destination.is_none());
    }
}
