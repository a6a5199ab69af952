//! Create: the container exists and its init waits for start.
//!
//! ```text
//! record ─► streams ─► engine create ─► init watched ─► console ─► cgroup ─► journal: created
//!    └────────────── on a failure everything before it is undone, the folder last ──────────┘
//! ```
//!
//! A crash before "created" leaves a record without a journal line: the next service undoes it.

use std::path::Path;
use std::sync::Arc;

use a3sbox_oci::{
    ContainerRecord, CreateRequest, Error, ErrorCode, RestoreRequest, RuntimeEventKind,
};

use super::delete::Undo;
use super::wanted::{self, Wanted};
use super::{Driver, bundle, checkpoint, delete, exit, hooks, to_the_end};
use crate::error::RuntimeError;
use crate::journal::{ContainerJournal, Entry, Operation, conflict};
use crate::native::cgroup::Cgroup;
use crate::native::engine::{CreateCall, FailureKind, ProcessFds};
use crate::native::reaper::{SpawnHold, Watched};
use crate::owner::state::Status;
use crate::owner::{Container, ProcessSlot, Turn};
use crate::stdio::{self, ChildStdio, ConsoleSocket, Overflow, StdioOwner, StdioSpec, Streams};

pub(crate) async fn create(
    driver: &Arc<Driver>,
    request: CreateRequest,
) -> Result<ContainerRecord, Error> {
    begin(driver, Wanted::by_create(driver, request)?).await
}

/// A restore is a create whose process comes from a checkpoint image.
pub(crate) async fn restore(
    driver: &Arc<Driver>,
    request: RestoreRequest,
) -> Result<ContainerRecord, Error> {
    begin(driver, Wanted::by_restore(driver, request)?).await
}

async fn begin(driver: &Arc<Driver>, wanted: Wanted) -> Result<ContainerRecord, Error> {
    if wanted.engine.restore_from.is_some() {
        checkpoint::require_criu(&wanted.engine)?;
    }
    loop {
        if let Some(present) = driver.registry.get(&wanted.request.id) {
            match repeated(&present, &wanted.operation).await? {
                Some(record) => return Ok(record),
                // The create that was under way has failed: this one is the first again.
                None => continue,
            }
        }
        match reserve(driver, &wanted)? {
            Some((container, turn)) => {
                let driver = driver.clone();
                return to_the_end(
                    async move { carry_out(&driver, &container, &wanted, turn).await },
                )
                .await;
            }
            None => continue,
        }
    }
}

/// The id is taken: by the same request, whose outcome this is, or by another one.
async fn repeated(
    present: &Arc<Container>,
    operation: &Operation,
) -> Result<Option<ContainerRecord>, Error> {
    let known = &present.file().create;
    if known.id != operation.id {
        return Err(Error::new(
            ErrorCode::AlreadyExists,
            format!("container {} already exists", present.id()),
        ));
    }
    if known.digest != operation.digest {
        return Err(conflict(&operation.id));
    }
    // Behind the create, when it is still under way.
    let Ok(_turn) = present.turn().await else {
        return Ok(None);
    };
    let status = if present.file().engine.restore_from.is_some() {
        Status::Running
    } else {
        Status::Created
    };
    Ok(Some(present.record_as(status)))
}

/// Takes the id, with a record on disk. `None`: somebody else took it just now.
fn reserve(
    driver: &Driver,
    wanted: &Wanted,
) -> Result<Option<(Arc<Container>, Turn)>, RuntimeError> {
    let id = &wanted.request.id;
    let file = wanted.file(driver)?;
    driver.registry.insert_with(id, || {
        let folder = driver.config.root.join(id.as_str());
        if !a3sbox_durable::folder::create(&folder)? {
            // One that could not be adopted. It is kept for whoever can read it.
            return Err(in_the_way(&folder).into());
        }
        let made = (|| {
            file.write(&folder)?;
            ContainerJournal::open(&folder).map_err(RuntimeError::from)
        })();
        let journal = match made {
            Ok(journal) => journal,
            Err(error) => {
                // Nothing has happened yet; what cannot be removed is removed on the next open.
                let _ = std::fs::remove_dir_all(&folder);
                return Err(error);
            }
        };
        let engine = wanted::engine_of(&wanted.engine);
        Ok(Container::new(
            folder,
            file,
            engine,
            driver.events.clone(),
            journal,
        ))
    })
}

fn in_the_way(folder: &Path) -> Error {
    Error::new(
        ErrorCode::AlreadyExists,
        format!(
            "{} is in the way: it holds the state of a container that this service cannot read",
            folder.display()
        ),
    )
}

async fn carry_out(
    driver: &Driver,
    container: &Arc<Container>,
    wanted: &Wanted,
    turn: Turn,
) -> Result<ContainerRecord, Error> {
    container.emit(None, RuntimeEventKind::ContainerCreating);
    let outcome = run(driver, container, wanted).await;
    let result = match outcome {
        Ok(()) => Ok(container.record()),
        Err((error, poststop_due)) => {
            delete::undo_create(driver, container, Undo::Failed { poststop_due }).await;
            Err(error.into())
        }
    };
    drop(turn);
    result
}

/// The steps of a create. An error says whether poststop hooks are due.
async fn run(
    driver: &Driver,
    container: &Arc<Container>,
    wanted: &Wanted,
) -> Result<(), (RuntimeError, bool)> {
    let early = |error: RuntimeError| (error, false);
    let request = &wanted.request;
    let spec = request.bundle.spec();
    let owner = StdioOwner {
        id: container.engine_id(),
        namespace: &driver.config.namespace,
        pumped: wanted::is_relabelled(spec.process().as_ref()),
    };
    let source = match &wanted.stdio {
        Some(uris) => StdioSpec::Uris(uris),
        None => StdioSpec::Io {
            io: request.attachments.process_io(),
            overflow: Overflow::DropOldest,
        },
    };
    let (streams, child) = stdio::open(source, &owner)
        .await
        .map_err(|error| early(error.into()))?;
    let created = launch(container, wanted, &streams, child).await;
    if let Err(error) = created {
        streams.close().await;
        return Err(error);
    }
    Ok(())
}

async fn launch(
    container: &Arc<Container>,
    wanted: &Wanted,
    streams: &Streams,
    child: ChildStdio,
) -> Result<(), (RuntimeError, bool)> {
    let early = |error: RuntimeError| (error, false);
    let late = |error: RuntimeError| (error, true);
    let spec = wanted.request.bundle.spec();
    let bundle = bundle::for_engine(&wanted.request.bundle, container.folder())
        .map_err(|error| early(RuntimeError::io("prepare the bundle")(error)))?;
    let (fds, console) = child_stdio(child);

    let hold = SpawnHold::take();
    let call = CreateCall {
        id: container.engine_id(),
        bundle: &bundle,
        options: &wanted.engine,
        console_socket: console.as_ref().map(ConsoleSocket::path),
        fds,
        hooks: hooks::HookGuard::for_create(spec.hooks().as_ref()),
    };
    let pid = match &wanted.engine.restore_from {
        None => container
            .engine
            .create(container.folder(), call, &hold)
            .await
            .map_err(|error| {
                let due = is_after_start(error.kind());
                (
                    RuntimeError::engine("OCI runtime create failed")(error),
                    due,
                )
            })?,
        Some(image) => {
            let work = checkpoint::work_folder(container, wanted.engine.criu_work_path.as_deref())
                .map_err(early)?;
            container
                .engine
                .restore(container.folder(), call, image, &work, &hold)
                .await
                .map_err(|error| {
                    let due = is_after_start(error.kind());
                    (
                        RuntimeError::engine("OCI runtime restore failed")(error),
                        due,
                    )
                })?
        }
    };
    let watched = Watched::child(pid, &hold)
        .map_err(|error| late(RuntimeError::io("watch the container's init")(error)))?;
    drop(hold);

    // From here on an undo finds the process.
    let slot = Arc::new(ProcessSlot::running(
        Arc::new(watched),
        container.file().terminal,
    ));
    slot.set_streams(streams.clone());
    container.set_init(slot.clone());
    let cgroup = Cgroup::of_process(pid)
        .or_else(|_| delete::configured_cgroup(container))
        .map_err(|error| late(error.into()))?;
    container.set_cgroup(cgroup.clone());
    if let Some(socket) = console {
        streams
            .attach_console(socket)
            .await
            .map_err(|error| late(error.into()))?;
    }
    let identity = slot
        .identity()
        .ok_or_else(|| late(Error::new(ErrorCode::Internal, "init is not watched").into()))?;
    container
        .commit(Entry::Created {
            identity,
            cgroup: cgroup.paths().clone(),
            restored: wanted.engine.restore_from.is_some(),
        })
        .map_err(late)?;
    container.emit(None, RuntimeEventKind::ContainerCreated);
    exit::watch_init(container, &slot);
    exit::watch_oom(container);
    Ok(())
}

/// The engine had begun to run the container, so its end is one that hooks are told of.
fn is_after_start(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::StartProcess | FailureKind::Hook)
}

pub(crate) fn child_stdio(child: ChildStdio) -> (ProcessFds, Option<ConsoleSocket>) {
    match child {
        ChildStdio::Console(socket) => (ProcessFds::default(), Some(socket)),
        ChildStdio::Files(files) => (
            ProcessFds {
                stdin: Some(files.stdin),
                stdout: Some(files.stdout),
                stderr: Some(files.stderr),
            },
            None,
        ),
    }
}
