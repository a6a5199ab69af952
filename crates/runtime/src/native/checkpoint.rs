//! Checkpoint and restore, which are CRIU's work. Where it is missing they are refused before any effect.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use a3sbox_oci::{CheckpointRequest, ContainerRecord, EngineOptions, Error, ErrorCode};

use crate::error::RuntimeError;
use crate::native::reaper::SpawnHold;
use crate::owner::state::Status;
use crate::owner::{Container, operation, wrong_state};

const CRIU: &str = "criu";
const WORK_FOLDER: &str = "criu-work";

/// Refuses when there is no CRIU.
pub(crate) fn require_criu(options: &EngineOptions) -> Result<(), Error> {
    let is_there = match &options.criu_path {
        Some(path) => path.is_file(),
        None => is_in_path(CRIU),
    };
    if is_there {
        return Ok(());
    }
    let name = options.criu_path.as_deref().unwrap_or(Path::new(CRIU));
    Err(Error::new(
        ErrorCode::Unsupported,
        format!(
            "checkpoint and restore need CRIU: executable {} not found",
            name.display()
        ),
    ))
}

pub(crate) fn is_in_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| find_in(&path, name).is_some())
}

/// The first file of that name in the folders of a search path.
pub(crate) fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Where CRIU writes its logs; ours goes with the container.
pub(crate) fn work_folder(
    container: &Container,
    asked: Option<&Path>,
) -> Result<PathBuf, RuntimeError> {
    let work = asked.map_or_else(|| container.folder().join(WORK_FOLDER), Path::to_path_buf);
    std::fs::create_dir_all(&work).map_err(RuntimeError::io("make the work folder of CRIU"))?;
    Ok(work)
}

pub(crate) async fn checkpoint(
    container: Arc<Container>,
    request: CheckpointRequest,
) -> Result<ContainerRecord, Error> {
    require_criu(&container.file().engine)?;
    let operation = operation(
        &request.context,
        "checkpoint",
        &(
            &request.target,
            &request.image_path,
            &request.work_path,
            request.exit,
        ),
    )?;
    let _turn = container.turn().await?;
    if let Some(record) = container.replay(&operation, None)? {
        return Ok(record);
    }
    match container.status() {
        Status::Running | Status::Paused => {}
        status @ (Status::Creating | Status::Created | Status::Stopped) => {
            return Err(wrong_state("checkpoint", status));
        }
    }
    let work = work_folder(&container, request.work_path.as_deref())?;
    let hold = SpawnHold::take();
    let taken = container
        .engine
        .checkpoint(
            container.folder(),
            container.engine_id(),
            &request,
            &work,
            &hold,
        )
        .await;
    drop(hold);
    if let Err(error) = taken {
        // Kept where the stock shim keeps it, for whoever is told of the path.
        let log = container.file().bundle.join("criu-dump.log");
        if let Err(error) = std::fs::copy(work.join("dump.log"), &log) {
            tracing::debug!(error = %error, "CRIU left no log");
        }
        let error: Error = RuntimeError::engine("OCI runtime checkpoint failed")(error).into();
        let message = format!("{} path= {}", error.message, log.display());
        return Err(Error { message, ..error });
    }
    container.commit(crate::journal::Entry::Updated { operation })?;
    Ok(container.record())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_criu_is_unsupported_and_named() {
        let options = EngineOptions {
            criu_path: Some("/no/such/criu".into()),
            ..EngineOptions::default()
        };
        let error = require_criu(&options).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
        assert!(error.message.contains("/no/such/criu"), "{error}");
        assert!(find_in(OsStr::new("/no/such:/nor/this"), CRIU).is_none());
    }
}
