//! Files of a sandbox, without any tool inside it.

use std::sync::Arc;

use a3sbox_core::{
    ExecutionGeneration, FileOp, FileRequest, FileResponse, FilesystemEntry, FilesystemOp,
    FilesystemRequest, FilesystemResponse,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::artifact::check_bound;
use super::shared::Shared;
use crate::client::{ClientError, Result};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesystemOptions {
    /// `root`, `1000` or `1000:1000`.
    pub user: Option<String>,
}

impl FilesystemOptions {
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteInfo {
    pub path: String,
    pub size: u64,
}

/// The filesystem of one sandbox. What the workload's side refuses is `Guest`, with its text.
#[derive(Debug, Clone)]
pub struct Filesystem {
    shared: Arc<Shared>,
}

impl Filesystem {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub async fn write(
        &self,
        path: impl Into<String>,
        data: impl AsRef<[u8]>,
    ) -> Result<WriteInfo> {
        self.write_with_options(path, data, FilesystemOptions::default())
            .await
    }

    pub async fn write_with_options(
        &self,
        path: impl Into<String>,
        data: impl AsRef<[u8]>,
        options: FilesystemOptions,
    ) -> Result<WriteInfo> {
        let path = path.into();
        let response = self
            .transfer(FileRequest {
                op: FileOp::Upload,
                guest_path: path.clone(),
                data: Some(STANDARD.encode(data)),
                user: options.user,
                max_bytes: None,
            })
            .await?;
        Ok(WriteInfo {
            path,
            size: response.size,
        })
    }

    pub async fn read(&self, path: impl Into<String>) -> Result<Vec<u8>> {
        self.read_with_options(path, FilesystemOptions::default())
            .await
    }

    pub async fn read_with_options(
        &self,
        path: impl Into<String>,
        options: FilesystemOptions,
    ) -> Result<Vec<u8>> {
        self.download(path.into(), None, options).await
    }

    /// # Errors
    /// `Guest` for a file that is not UTF-8.
    pub async fn read_text(&self, path: impl Into<String>) -> Result<String> {
        let path = path.into();
        let data = self.read(path.clone()).await?;
        String::from_utf8(data).map_err(|_| ClientError::Guest(format!("{path} is not UTF-8")))
    }

    /// # Errors
    /// `Validation` for a bound of zero or above 8 MiB, `Guest` for an answer above the bound.
    pub async fn read_bounded_with_options(
        &self,
        path: impl Into<String>,
        max_bytes: u64,
        options: FilesystemOptions,
    ) -> Result<Vec<u8>> {
        check_bound(max_bytes)?;
        self.download(path.into(), Some(max_bytes), options).await
    }

    /// Whether something is there, as far as the workload's side can tell.
    pub async fn exists(&self, path: impl Into<String>) -> Result<bool> {
        match self.stat(path).await {
            Ok(_) => Ok(true),
            // The answer carries no class, only a text, and this is the word that all of them use.
            Err(ClientError::Guest(text)) if text.to_lowercase().contains("not found") => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub async fn stat(&self, path: impl Into<String>) -> Result<FilesystemEntry> {
        self.stat_with_options(path, FilesystemOptions::default())
            .await
    }

    pub async fn stat_with_options(
        &self,
        path: impl Into<String>,
        options: FilesystemOptions,
    ) -> Result<FilesystemEntry> {
        let request = filesystem_request(FilesystemOp::Stat, path, options);
        let path = request.path.clone();
        self.call(request)
            .await?
            .entry
            .ok_or_else(|| ClientError::Guest(format!("no entry in the answer about {path}")))
    }

    pub async fn list(&self, path: impl Into<String>, depth: u32) -> Result<Vec<FilesystemEntry>> {
        self.list_with_options(path, depth, FilesystemOptions::default())
            .await
    }

    pub async fn list_with_options(
        &self,
        path: impl Into<String>,
        depth: u32,
        options: FilesystemOptions,
    ) -> Result<Vec<FilesystemEntry>> {
        let request = FilesystemRequest {
            depth,
            ..filesystem_request(FilesystemOp::ListDir, path, options)
        };
        Ok(self.call(request).await?.entries)
    }

    pub async fn make_dir(&self, path: impl Into<String>) -> Result<()> {
        self.make_dir_with_options(path, FilesystemOptions::default())
            .await
    }

    pub async fn make_dir_with_options(
        &self,
        path: impl Into<String>,
        options: FilesystemOptions,
    ) -> Result<()> {
        self.call(filesystem_request(FilesystemOp::MakeDir, path, options))
            .await
            .map(drop)
    }

    pub async fn move_path(
        &self,
        source: impl Into<String>,
        destination: impl Into<String>,
    ) -> Result<()> {
        self.move_path_with_options(source, destination, FilesystemOptions::default())
            .await
    }

    pub async fn move_path_with_options(
        &self,
        source: impl Into<String>,
        destination: impl Into<String>,
        options: FilesystemOptions,
    ) -> Result<()> {
        let request = FilesystemRequest {
            destination: Some(destination.into()),
            ..filesystem_request(FilesystemOp::Move, source, options)
        };
        self.call(request).await.map(drop)
    }

    pub async fn remove(&self, path: impl Into<String>) -> Result<()> {
        self.remove_with_options(path, FilesystemOptions::default())
            .await
    }

    pub async fn remove_with_options(
        &self,
        path: impl Into<String>,
        options: FilesystemOptions,
    ) -> Result<()> {
        self.call(filesystem_request(FilesystemOp::Remove, path, options))
            .await
            .map(drop)
    }

    async fn download(
        &self,
        path: String,
        max_bytes: Option<u64>,
        options: FilesystemOptions,
    ) -> Result<Vec<u8>> {
        let response = self
            .transfer(FileRequest {
                op: FileOp::Download,
                guest_path: path.clone(),
                data: None,
                user: options.user,
                max_bytes,
            })
            .await?;
        let data = STANDARD
            .decode(response.data.unwrap_or_default())
            .map_err(|error| ClientError::Guest(format!("contents of {path}: {error}")))?;
        if u64::try_from(data.len()) != Ok(response.size) {
            return Err(ClientError::Guest(format!(
                "{path} was announced with {} bytes and came with {}",
                response.size,
                data.len()
            )));
        }
        if max_bytes.is_some_and(|bound| response.size > bound) {
            return Err(ClientError::Guest(format!(
                "{path} came with {} bytes, above the bound that was asked for",
                response.size
            )));
        }
        Ok(data)
    }

    async fn transfer(&self, request: FileRequest) -> Result<FileResponse> {
        let generation = self.running()?;
        let response = self
            .shared
            .client
            .transfer_execution_file(&self.shared.execution_id, generation, request)
            .await?;
        if response.success {
            Ok(response)
        } else {
            Err(refusal(response.error))
        }
    }

    async fn call(&self, request: FilesystemRequest) -> Result<FilesystemResponse> {
        let generation = self.running()?;
        let response = self
            .shared
            .client
            .filesystem_execution(&self.shared.execution_id, generation, request)
            .await?;
        if response.success {
            Ok(response)
        } else {
            Err(refusal(response.error))
        }
    }

    fn running(&self) -> Result<ExecutionGeneration> {
        self.shared.running("access to files")
    }
}

fn filesystem_request(
    op: FilesystemOp,
    path: impl Into<String>,
    options: FilesystemOptions,
) -> FilesystemRequest {
    FilesystemRequest {
        op,
        path: path.into(),
        destination: None,
        depth: 0,
        user: options.user,
    }
}

fn refusal(error: Option<String>) -> ClientError {
    ClientError::Guest(error.unwrap_or_else(|| "refused without a reason".to_owned()))
}
