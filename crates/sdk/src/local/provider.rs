//! From a record to a bundle that honours every required control, and back to nothing.

use std::io;
use std::path::{Path, PathBuf};

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_execution::{
    BoxRecord, OciBundlePreparationContext, OciBundleProvider, OciPreparedExecution,
    OciRuntimeBinding,
};
use a3sbox_oci::{
    CreateAttachments, IoMode, OciBundle, ProcessIo, STDIO_EXTENSION, STDIO_EXTENSION_VERSION,
    StdioUris,
};
use async_trait::async_trait;

use super::ids::FIRST_HOST_ID;
use super::logs::{self, Projections};
use super::rootfs::Rootfs;
use super::spec::{self, Plan};
use super::{etc, mounts, refusal, user};
use crate::client::A3sBoxPaths;
use crate::image::ImageStore;

/// Left by the manager where the sandbox is restored from a snapshot: the whole tree below the overlay.
const SNAPSHOT_LOWER_MARKER: &str = ".snapshot-lower";
/// The longest path in that marker.
const MAX_MARKER_BYTES: u64 = 4_096;
/// Never made: the config travels in the request, and the runtime keeps it.
const BUNDLE_FOLDER: &str = "bundle";

#[derive(Debug, Clone)]
pub(super) struct BundleProvider {
    paths: A3sBoxPaths,
    images: ImageStore,
    projections: Projections,
}

impl BundleProvider {
    pub(super) fn new(paths: A3sBoxPaths) -> Self {
        Self {
            images: ImageStore::new(&paths.images_dir),
            projections: Projections::default(),
            paths,
        }
    }

    fn rootfs(&self, record: &BoxRecord) -> Rootfs {
        Rootfs::of(&self.paths.home, &record.box_dir, &record.id)
    }

    /// The blocking half of `prepare`.
    fn build(
        &self,
        record: &BoxRecord,
        cgroup: String,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        let image = refusal::image(&self.images, record)?;
        let lower = match snapshot_lower(&record.box_dir)? {
            Some(lower) => lower,
            None => image.rootfs,
        };
        std::fs::create_dir_all(&record.box_dir).map_err(failed("create the sandbox's folder"))?;
        let rootfs = self.rootfs(record);
        rootfs
            .mount(&lower)
            .map_err(failed("mount the root filesystem"))?;
        let etc = etc::write(record).map_err(failed("write the sandbox's names"))?;
        self.open_volumes(record)?;
        let (stdout, stderr) =
            logs::prepare(&record.console_log).map_err(failed("make the log"))?;
        let asked = record.user.as_deref().unwrap_or(&image.defaults.user);
        let config = spec::config(&Plan {
            record,
            defaults: &image.defaults,
            user: user::resolve(&rootfs.path(), asked)?,
            engine_root: &rootfs.engine_root,
            etc: &etc,
            cgroup,
        })?;
        let bundle = OciBundle::from_json(record.box_dir.join(BUNDLE_FOLDER), config.to_string())
            .map_err(unfit)?;
        let attachments = CreateAttachments::from_bundle(&bundle, no_streams())
            .and_then(|attachments| {
                let uris = StdioUris {
                    stdout: Some(stdout.display().to_string()),
                    stderr: Some(stderr.display().to_string()),
                    uid: FIRST_HOST_ID,
                    gid: FIRST_HOST_ID,
                    ..StdioUris::default()
                };
                let value = serde_json::to_value(uris).unwrap_or_default();
                attachments.with_extension(STDIO_EXTENSION, STDIO_EXTENSION_VERSION, true, value)
            })
            .map_err(unfit)?;
        let mut prepared =
            OciPreparedExecution::with_attachments(bundle, attachments, &record.console_log);
        prepared
            .anonymous_volumes
            .clone_from(&record.anonymous_volumes);
        Ok(prepared)
    }

    /// A named volume belongs to the sandboxes: their root may write in it from the first time on.
    fn open_volumes(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        use std::os::unix::fs::{MetadataExt as _, chown};

        for entry in &record.volumes {
            let (source, _, _) = mounts::volume(entry)?;
            let source = Path::new(source);
            let is_named = source.parent() == Some(&self.paths.volumes_dir);
            if !is_named {
                continue;
            }
            let metadata =
                std::fs::symlink_metadata(source).map_err(failed("find the named volume"))?;
            if metadata.is_dir() && metadata.uid() == 0 {
                chown(source, Some(FIRST_HOST_ID), Some(FIRST_HOST_ID))
                    .map_err(failed("hand over the named volume"))?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl OciBundleProvider for BundleProvider {
    fn preflight(
        &self,
        record: &BoxRecord,
        _context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<()> {
        refusal::check(&self.images, record)
    }

    async fn prepare(
        &self,
        record: &BoxRecord,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        let (provider, record) = (self.clone(), record.clone());
        let cgroup = format!("/{}", context.runtime_container_id());
        blocking(move || provider.build(&record, cgroup)).await
    }

    async fn ensure_log_projection(
        &self,
        record: &BoxRecord,
        _binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        self.projections
            .ensure(&record.id, &record.console_log, &record.log_config)
            .map_err(failed("open the log"))
    }

    async fn wait_log_projection_drained(
        &self,
        record: &BoxRecord,
        _binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        self.projections
            .drain(&record.id, &record.console_log, &record.log_config)
            .await
            .map_err(failed("write the log"))
    }

    async fn wait_log_projection_stopped_after_owner_loss(
        &self,
        record: &BoxRecord,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        // The raw files hold everything that was written, whoever watched.
        self.wait_log_projection_drained(record, binding).await
    }

    async fn cleanup(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let (provider, record) = (self.clone(), record.clone());
        blocking(move || {
            provider
                .rootfs(&record)
                .unmount()
                .map_err(failed("unmount the root filesystem"))?;
            provider
                .projections
                .remove(&record.id, &record.console_log)
                .map_err(failed("remove the raw log"))
        })
        .await
    }
}

/// The streams are named by the extension.
fn no_streams() -> ProcessIo {
    ProcessIo {
        stdin: IoMode::Null,
        stdout: IoMode::Null,
        stderr: IoMode::Null,
        terminal_size: None,
    }
}

fn snapshot_lower(box_dir: &Path) -> ExecutionManagerResult<Option<PathBuf>> {
    let marker = box_dir.join(SNAPSHOT_LOWER_MARKER);
    let bytes = a3sbox_durable::record::read(&marker, MAX_MARKER_BYTES)
        .map_err(|error| ExecutionManagerError::Unavailable(error.to_string()))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| {
        ExecutionManagerError::Internal(format!("{} is not UTF-8", marker.display()))
    })?;
    Ok(Some(PathBuf::from(text.trim())))
}

fn unfit(error: a3sbox_oci::Error) -> ExecutionManagerError {
    ExecutionManagerError::InvalidRequest(format!("the sandbox's config is refused: {error}"))
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ExecutionManagerError {
    move |error| ExecutionManagerError::Unavailable(format!("cannot {what}: {error}"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ExecutionManagerResult<T> + Send + 'static,
) -> ExecutionManagerResult<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        ExecutionManagerError::Internal(format!("a preparation did not finish: {error}"))
    })?
}
