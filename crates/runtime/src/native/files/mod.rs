//! The files of a container, with nothing installed in it.
//!
//! ```text
//! request ─► whose rights (actor) ─► the container's root: /proc/<init>/root
//!                                        └─► resolve: openat2, inside of that root ─► transfer, entry, change
//! ```
//!
//! Every path is resolved by the kernel below the root of the container's mount namespace
//! (`RESOLVE_IN_ROOT`, no magic links), and what is found is used by its descriptor: no path of the host is
//! ever followed, whatever the container does to its links meanwhile. Work runs in a thread of its own, since
//! it takes on the rights of a user; it works on a paused container too, and neither a kill nor a delete
//! waits for it.

mod actor;
mod change;
mod entry;
mod fault;
mod names;
mod resolve;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use a3sbox_oci::{
    Error, ErrorCode, FileOp, FileRequest, FileResponse, FilesystemOp, FilesystemRequest,
    FilesystemResponse,
};

use actor::Actor;
use resolve::Root;

use crate::owner::state::Status;
use crate::owner::{Container, operation, wrong_state};

/// The longest that one call may take, on a network filesystem for example. Its thread may take longer.
const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) async fn file(
    container: Arc<Container>,
    request: FileRequest,
) -> Result<FileResponse, Error> {
    let answer = |data: Option<String>, size: u64| FileResponse {
        target: request.target.clone(),
        data,
        size,
    };
    match request.op {
        FileOp::Download => {
            let path = request.path.clone();
            let (data, size) =
                with_root(&container, request.user.as_deref(), move |root, actor| {
                    transfer::download(root, actor, &path)
                })
                .await?;
            Ok(answer(Some(data), size))
        }
        FileOp::Upload => {
            let context = required(request.context.as_ref())?;
            let operation = operation(
                context,
                "file",
                &(&request.target, &request.path, &request.data, &request.user),
            )?;
            let bytes = transfer::decode(request.data.as_deref().unwrap_or_default())?;
            let size = bytes.len() as u64;
            if container.replay(&operation, None)?.is_some() {
                return Ok(answer(None, size));
            }
            let path = request.path.clone();
            with_root(&container, request.user.as_deref(), move |root, actor| {
                transfer::upload(root, actor, &path, &bytes)
            })
            .await?;
            container.settle(operation)?;
            Ok(answer(None, size))
        }
    }
}

pub(crate) async fn filesystem(
    container: Arc<Container>,
    request: FilesystemRequest,
) -> Result<FilesystemResponse, Error> {
    let operation = match &request.context {
        Some(context) => Some(operation(
            context,
            "filesystem",
            &(
                &request.target,
                request.op,
                &request.path,
                &request.destination,
                &request.user,
            ),
        )?),
        None => None,
    };
    let is_done = match &operation {
        Some(operation) => container.replay(operation, None)?.is_some(),
        None => false,
    };
    let (op, path, depth) = (request.op, request.path.clone(), request.depth);
    let destination = request.destination.clone().unwrap_or_default();
    let (entry, entries) = with_root(&container, request.user.as_deref(), move |root, actor| {
        // What was done before is looked at, not done again.
        match (op, is_done) {
            (FilesystemOp::Stat, _) | (FilesystemOp::MakeDir, true) => {
                Ok((Some(entry::stat(root, actor, &path)?), Vec::new()))
            }
            (FilesystemOp::ListDir, _) => Ok((None, entry::list(root, actor, &path, depth)?)),
            (FilesystemOp::MakeDir, false) => {
                change::make_dir(root, actor, &path)?;
                Ok((Some(entry::stat(root, actor, &path)?), Vec::new()))
            }
            (FilesystemOp::Move, is_done) => {
                if !is_done {
                    change::rename(root, actor, &path, &destination)?;
                }
                Ok((Some(entry::stat(root, actor, &destination)?), Vec::new()))
            }
            (FilesystemOp::Remove, is_done) => {
                if !is_done {
                    change::remove(root, actor, &path)?;
                }
                Ok((None, Vec::new()))
            }
        }
    })
    .await?;
    if let Some(operation) = operation
        && !is_done
    {
        container.settle(operation)?;
    }
    Ok(FilesystemResponse {
        target: request.target,
        entry,
        entries,
    })
}

/// Runs `work` on the container's root with the rights of a user of the container.
async fn with_root<T: Send + 'static>(
    container: &Arc<Container>,
    user: Option<&str>,
    work: impl FnOnce(&Root, &Actor) -> Result<T, fault::Fault> + Send + 'static,
) -> Result<T, Error> {
    match container.status() {
        Status::Created | Status::Running | Status::Paused => {}
        status @ (Status::Creating | Status::Stopped) => {
            return Err(wrong_state("use the files of", status));
        }
    }
    let init = container
        .init()
        .and_then(|init| init.identity())
        .ok_or_else(|| wrong_state("use the files of", Status::Stopped))?;
    let user = user.map(str::to_owned);
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("container-files".to_owned())
        .spawn(move || {
            let outcome = Root::open(init).and_then(|root| {
                let actor = Actor::take_on(&root, init, user.as_deref())?;
                work(&root, &actor)
            });
            // Nobody waits any more when the deadline has passed.
            let _ = tell.send(outcome);
        })
        .map_err(|error| internal(format!("cannot start a thread: {error}")))?;
    match tokio::time::timeout(DEADLINE, told).await {
        Ok(Ok(outcome)) => outcome.map_err(Into::into),
        Ok(Err(_)) => Err(internal("a file operation ended without an outcome")),
        Err(_) => Err(Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "the file operation took longer than {} s",
                DEADLINE.as_secs()
            ),
        )),
    }
}

fn required<T>(context: Option<&T>) -> Result<&T, Error> {
    context.ok_or_else(|| {
        Error::new(
            ErrorCode::InvalidArgument,
            "an operation that changes something needs an operation context",
        )
    })
}

fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::Internal, message)
}
