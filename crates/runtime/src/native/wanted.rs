//! What a create or a restore asks for, before anything is done about it.

use std::path::{Path, PathBuf};

use a3sbox_oci::oci_spec::runtime::{LinuxNamespaceType, Spec};
use a3sbox_oci::{
    CreateRequest, ENGINE_EXTENSION, EngineOptions, Error, ErrorCode, IsolationClass,
    RestoreRequest, STDIO_EXTENSION, StdioUris,
};
use serde::de::DeserializeOwned;

use super::{Driver, features, hooks};
use crate::journal::{Operation, RequestDigest};
use crate::native::engine::Engine;
use crate::owner::record::ContainerFile;

/// A create or a restore, with its extensions decoded.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) request: CreateRequest,
    pub(crate) operation: Operation,
    pub(crate) engine: EngineOptions,
    pub(crate) stdio: Option<StdioUris>,
}

impl Wanted {
    pub(crate) fn by_create(driver: &Driver, request: CreateRequest) -> Result<Self, Error> {
        let digest = create_digest(&request)?;
        decode(driver, request, digest)
    }

    pub(crate) fn by_restore(driver: &Driver, request: RestoreRequest) -> Result<Self, Error> {
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
        Ok(wanted)
    }

    /// The record of the container, with a generation that no other one has.
    pub(crate) fn file(&self, driver: &Driver) -> Result<ContainerFile, Error> {
        let request = &self.request;
        let spec = request.bundle.spec();
        Ok(ContainerFile {
            schema_version: ContainerFile::SCHEMA_VERSION,
            boot_id: driver.boot_id.clone(),
            id: request.id.clone(),
            generation: driver.registry.next_generation(),
            create: self.operation.clone(),
            isolation: request.isolation.class(),
            bundle: request.bundle.directory().to_path_buf(),
            config_digest: request.bundle.config_digest().to_owned(),
            attachments_digest: Some(request.attachments.digest()?),
            oci_version: spec.version().clone(),
            annotations: spec.annotations().clone(),
            engine: self.engine.clone(),
            stdio: self.stdio.clone(),
            terminal: is_terminal(spec),
            shares_pid_namespace: shares_pid_namespace(spec),
            cgroups_path: spec
                .linux()
                .as_ref()
                .and_then(|linux| linux.cgroups_path().clone()),
            poststop: hooks::driver_poststop(spec).to_vec(),
            poststart_timeout: hooks::HookGuard::for_start(spec.hooks().as_ref())
                .map(hooks::HookGuard::longest_timeout_s),
        })
    }
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
    if let Some(name) = &engine.container_id
        && !EngineOptions::is_container_id(name)
    {
        return Err(Error::new(
            ErrorCode::InvalidArgument,
            format!("no engine has a container called {name:?}"),
        ));
    }
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

pub(crate) fn engine_of(options: &EngineOptions) -> Engine {
    Engine {
        binary: in_path(
            options
                .binary
                .as_deref()
                .unwrap_or(crate::config::DEFAULT_ENGINE),
        ),
        root: options.root.clone().unwrap_or_default(),
        systemd_cgroup: options.systemd_cgroup,
        criu: options.criu_path.clone(),
    }
}

/// A bare name as the first executable of `PATH` that has it; one that is not found stays as it is, and
/// its start says so.
fn in_path(name: &str) -> PathBuf {
    if name.contains('/') {
        return name.into();
    }
    std::env::var_os("PATH")
        .and_then(|path| super::checkpoint::find_in(&path, name))
        .unwrap_or_else(|| name.into())
}

fn is_terminal(spec: &Spec) -> bool {
    spec.process()
        .as_ref()
        .and_then(|process| process.terminal())
        .unwrap_or(false)
}

/// The process changes its label and so may not use files that containerd labelled.
pub(crate) fn is_relabelled(process: Option<&a3sbox_oci::Process>) -> bool {
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
