//! The bundle that containerd made, as the OCI backend wants it: its rootfs mounted, its configuration
//! loaded, streams and engine switches attached. And what it takes to take it away again.

mod idmap;
mod loopdev;
mod mount;
mod options;
mod trace;

use std::path::{Path, PathBuf};

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_execution::task::TaskRecord;
use a3sbox_execution::{
    BoxRecord, OciBundlePreparationContext, OciBundleProvider, OciPreparedExecution,
};
use a3sbox_oci::{
    CreateAttachments, ENGINE_EXTENSION, ENGINE_EXTENSION_VERSION, IoMode, OciBundle, ProcessIo,
    STDIO_EXTENSION, STDIO_EXTENSION_VERSION, TerminalSize,
};
use async_trait::async_trait;

pub(crate) use idmap::{HOLD_ARGUMENT, hold};
pub(crate) use mount::unmount_stack;
use trace::note_exit;
pub(crate) use trace::{Trace, leave_trace, read_trace};

use crate::convert::request;
use crate::logging::chain;

/// Turns the record of a task into what the runtime's create takes.
#[derive(Debug)]
pub(crate) struct ContainerdBundles;

#[async_trait]
impl OciBundleProvider for ContainerdBundles {
    async fn prepare(
        &self,
        record: &BoxRecord,
        _: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        let task = task_of(record)?;
        // Before the mounts: what is wrong with the bundle costs nothing then.
        let bundle = OciBundle::load(&task.bundle).await.map_err(invalid)?;
        let attachments = attachments(&bundle, task)?;
        let (mounts, root) = (task.rootfs.clone(), rootfs_of(task));
        if !mounts.is_empty() {
            blocking(move || {
                // Mounts of an attempt that was interrupted; a second layer of them would stay for ever.
                mount::unmount_all(&mounts, &root)?;
                mount::mount_all(&mounts, &root)
            })
            .await
            .map_err(|text| {
                ExecutionManagerError::InvalidRequest(format!(
                    "failed to mount rootfs component: {text}"
                ))
            })?;
        }
        Ok(OciPreparedExecution::with_attachments(
            bundle,
            attachments,
            record.console_log.clone(),
        ))
    }

    async fn cleanup(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let task = task_of(record)?;
        if let Some(exit) = &task.init.exit
            && let Err(error) = note_exit(&task.bundle, exit)
        {
            tracing::warn!(
                container_id = task.key.container_id.as_str(),
                error = chain(&error),
                "an exit is not noted in the bundle"
            );
        }
        if task.rootfs.is_empty() {
            return Ok(());
        }
        let (mounts, root) = (task.rootfs.clone(), rootfs_of(task));
        blocking(move || mount::unmount_all(&mounts, &root))
            .await
            .map_err(ExecutionManagerError::Unavailable)
    }
}

/// Where containerd wants the rootfs mounted.
fn rootfs_of(task: &TaskRecord) -> PathBuf {
    rootfs(&task.bundle)
}

/// Where the rootfs of a bundle is mounted.
pub(crate) fn rootfs(bundle: &Path) -> PathBuf {
    bundle.join("rootfs")
}

fn task_of(record: &BoxRecord) -> ExecutionManagerResult<&TaskRecord> {
    record
        .managed_execution
        .as_ref()
        .and_then(|managed| managed.task.as_ref())
        .ok_or_else(|| {
            ExecutionManagerError::InvalidRequest(format!(
                "execution {} was not made by containerd",
                record.id
            ))
        })
}

/// The runtime opens the streams itself, by the names in the extension; the contract's own modes say
/// only whether there is a terminal.
fn attachments(bundle: &OciBundle, task: &TaskRecord) -> ExecutionManagerResult<CreateAttachments> {
    let mode = if task.stdio.terminal {
        IoMode::Terminal
    } else {
        IoMode::Null
    };
    let io = ProcessIo {
        stdin: mode,
        stdout: mode,
        stderr: mode,
        terminal_size: task.stdio.terminal.then(|| terminal_size(bundle)),
    };
    let stdio = serde_json::to_value(&task.stdio).map_err(internal)?;
    let engine = serde_json::to_value(&task.engine).map_err(internal)?;
    CreateAttachments::from_bundle(bundle, io)
        .and_then(|attachments| {
            attachments.with_extension(STDIO_EXTENSION, STDIO_EXTENSION_VERSION, true, stdio)
        })
        .and_then(|attachments| {
            attachments.with_extension(ENGINE_EXTENSION, ENGINE_EXTENSION_VERSION, true, engine)
        })
        .map_err(invalid)
}

/// The size that the configuration asks for. A terminal has one in any case: a client that has not sent
/// its own yet must not meet one of no columns.
fn terminal_size(bundle: &OciBundle) -> TerminalSize {
    let asked = bundle
        .spec()
        .process()
        .as_ref()
        .and_then(|process| process.console_size());
    // A number above 32 bits is above what any terminal has, too.
    let side = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    request::terminal_size(
        asked.map_or(0, |size| side(size.width())),
        asked.map_or(0, |size| side(size.height())),
    )
}

fn invalid(error: a3sbox_oci::Error) -> ExecutionManagerError {
    ExecutionManagerError::InvalidRequest(error.message)
}

fn internal(error: serde_json::Error) -> ExecutionManagerError {
    ExecutionManagerError::Internal(error.to_string())
}

async fn blocking(
    work: impl FnOnce() -> Result<(), mount::MountError> + Send + 'static,
) -> Result<(), String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| chain(&error)),
        Err(error) => Err(chain(&error)),
    }
}
