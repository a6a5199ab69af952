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

use a3sbox_oci::oci_spec::runtime::{LinuxNamespaceType, Spec};
use a3sbox_oci::{
    ContainerRecord, CreateRequest, ENGINE_EXTENSION, EngineOptions, Error, ErrorCode,
    IsolationClass, RestoreRequest, RuntimeEventKind, STDIO_EXTENSION, StdioUris,
};
use serde::de::DeserializeOwned;

use super::delete::Undo;
use super::{Driver, bundle, checkpoint, delete, exit, features, hooks, to_the_end};
use crate::error::RuntimeError;
use crate::journal::{ContainerJournal, Entry, Operation, RequestDigest, conflict};
use crate::native::cgroup::Cgroup;
use crate::native::engine::{CreateCall, Engine, FailureKind, ProcessFds};
use crate::native::reaper::{SpawnHold, Watched};
use crate::owner::record::ContainerFile;
use crate::owner::state::Status;
use crate::owner::{Container, ProcessSlot, Turn};
use crate::stdio::{self, ChildStdio, ConsoleSocket, Overflow, StdioOwner, StdioSpec, Streams};

/// A create or a restore, with its extensions decoded.
struct Wanted {
    request: CreateRequest,
    operation: Operation,
    engine: EngineOptions,
    stdio: Option<StdioUris>,
}

pub(crate) async fn create(
    driver: &Arc<Driver>,
    request: CreateRequest,
) -> Result<ContainerRecord, Error> {
    let digest = create_digest(&request)?;
    let wanted = decode(driver, request, digest)?;
    begin(driver, wanted).await
}

/// A restore is a create whose process comes from a checkpoint image.
pub(crate) async fn restore(
    driver: &Arc<Driver>,
    request: RestoreRequest,
) -> Result<ContainerRecord, Error> {
    let create = CreateRequest {
        context: request.context,
        id: request.id,
        bundle: request.bundle,
        isolation: request.isolation,
        attachments: request.attachments,
    };
    let digest = RequestDigest::of(
        "restore",
        &(
            create_digest(&create)?,
            &request.image_path,
            &request.work_path,
        ),
    )?;
    let mut wanted = decode(driver, create, digest)?;
    wanted.engine.restore_from = Some(request.image_path);
    wanted.engine.criu_work_path = request.work_path;
    begin(driver, wanted).await
}

fn create_digest(request: &CreateRequest) -> Result<RequestDigest, Error> {
    // The digests stand for the bytes that they were made from.
    RequestDigest::of(
        "create",
        &(
            &request.id,
            request.bundle.directory(),
            request.bundle.config_digest(),
            &request.isolation,
            request.attachments.digest()?,
        ),
    )
}

fn decode(driver: &Driver, request: CreateRequest, digest: RequestDigest) -> Result<Wanted, Error> {
    if request.isolation.class() != IsolationClass::SharedHostKernel {
        return Err(Error::new(
            ErrorCode::Unsupported,
            "the native driver gives no isolation stronger than the shared host kernel",
        ));
    }
    features::attachments()?.require(&request.attachments)?;
    let engine = driver
        .config
        .engine_for(extension(&request, ENGINE_EXTENSION)?);
    let stdio = extension(&request, STDIO_EXTENSION)?;
    Ok(Wanted {
        operation: Operation {
            id: request.context.operation_id.clone(),
            digest,
        },
        request,
        engine,
        stdio,
    })
}

fn extension<T: DeserializeOwned>(request: &CreateRequest, name: &str) -> Result<Option<T>, Error> {
    request
        .attachments
        .extension_value(name)
        .map(|value| T::deserialize(value))
        .transpose()
        .map_err(|error| {
            Error::new(
                ErrorCode::InvalidArgument,
                format!("extension {name} is malformed: {error}"),
            )
        })
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
    let request = &wanted.request;
    let spec = request.bundle.spec();
    let file = ContainerFile {
        schema_version: ContainerFile::SCHEMA_VERSION,
        boot_id: driver.boot_id.clone(),
        id: request.id.clone(),
        generation: driver.registry.next_generation(),
        create: wanted.operation.clone(),
        isolation: request.isolation.class(),
        bundle: request.bundle.directory().to_path_buf(),
        config_digest: request.bundle.config_digest().to_owned(),
        attachments_digest: Some(request.attachments.digest()?),
        oci_version: spec.version().clone(),
        annotations: spec.annotations().clone(),
        engine: wanted.engine.clone(),
        stdio: wanted.stdio.clone(),
        terminal: is_terminal(spec),
        shares_pid_namespace: shares_pid_namespace(spec),
        cgroups_path: spec
            .linux()
            .as_ref()
            .and_then(|linux| linux.cgroups_path().clone()),
        poststop: hooks::driver_poststop(spec).to_vec(),
        poststart_timeout: hooks::HookGuard::for_start(spec.hooks().as_ref())
            .map(hooks::HookGuard::longest_timeout_s),
    };
    driver.registry.insert_with(&request.id, || {
        let folder = driver.config.root.join(request.id.as_str());
        a3sbox_durable::folder::create(&folder)?;
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
        let engine = engine_of(&wanted.engine);
        Ok(Container::new(
            folder,
            file,
            engine,
            driver.events.clone(),
            journal,
        ))
    })
}

pub(crate) fn engine_of(options: &EngineOptions) -> Engine {
    Engine {
        binary: options
            .binary
            .as_deref()
            .unwrap_or(crate::config::DEFAULT_ENGINE)
            .into(),
        root: options.root.clone().unwrap_or_default(),
        systemd_cgroup: options.systemd_cgroup,
        criu: options.criu_path.clone(),
    }
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
        id: container.id().as_str(),
        namespace: &driver.config.namespace,
        pumped: is_relabelled(spec.process().as_ref()),
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
        id: container.id().as_str(),
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

fn is_terminal(spec: &Spec) -> bool {
    spec.process()
        .as_ref()
        .and_then(|process| process.terminal())
        .unwrap_or(false)
}

/// The process changes its label and so may not use files that containerd labelled.
fn is_relabelled(process: Option<&a3sbox_oci::Process>) -> bool {
    process
        .and_then(|process| process.selinux_label().as_deref())
        .is_some_and(|label| !label.is_empty())
}

/// Without a new pid namespace the end of init does not take the others along.
fn shares_pid_namespace(spec: &Spec) -> bool {
    let has_own = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.namespaces().as_ref())
        .is_some_and(|namespaces| {
            namespaces.iter().any(|namespace| {
                namespace.typ() == LinuxNamespaceType::Pid && is_new(namespace.path().as_deref())
            })
        });
    !has_own
}

fn is_new(path: Option<&Path>) -> bool {
    path.is_none_or(|path| path.as_os_str().is_empty())
}
