//! What a bundle provider is told, and what it answers.

use std::path::{Component, Path, PathBuf};

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_oci::{
    AttachmentCapabilities, ContainerId, CreateAttachments, IoMode, IsolationRequest, OciBundle,
    OperationContext, ProcessIo, RUNTIME_BUNDLE_HANDOFF_BUNDLE_DIRECTORY,
    RUNTIME_BUNDLE_HANDOFF_EXTENSION, RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION,
    RUNTIME_BUNDLE_HANDOFF_MOVE_V1, RUNTIME_BUNDLE_HANDOFF_ROOT_DIRECTORY,
    runtime_bundle_handoff_directory,
};

use super::error::runtime_error;
use crate::BoxRecord;

/// The create call that a preparation is for, known before it is made.
#[derive(Debug, Clone)]
pub struct OciBundlePreparationContext {
    runtime_container_id: ContainerId,
    create_context: OperationContext,
    isolation: IsolationRequest,
    attachment_capabilities: AttachmentCapabilities,
}

impl OciBundlePreparationContext {
    pub(crate) fn new(
        runtime_container_id: ContainerId,
        create_context: OperationContext,
        isolation: IsolationRequest,
        attachment_capabilities: AttachmentCapabilities,
    ) -> Self {
        Self {
            runtime_container_id,
            create_context,
            isolation,
            attachment_capabilities,
        }
    }

    pub fn runtime_container_id(&self) -> &ContainerId {
        &self.runtime_container_id
    }

    /// The very context that the runtime's create will carry.
    pub fn create_context(&self) -> &OperationContext {
        &self.create_context
    }

    pub fn isolation(&self) -> &IsolationRequest {
        &self.isolation
    }

    pub fn attachment_capabilities(&self) -> &AttachmentCapabilities {
        &self.attachment_capabilities
    }

    /// Where a bundle must lie so that the runtime takes it over by a move.
    ///
    /// # Errors
    /// `Unavailable` when the runtime does not offer that; `InvalidRequest` for a relative root.
    pub fn runtime_bundle_handoff_directory(
        &self,
        runtime_root: impl AsRef<Path>,
    ) -> ExecutionManagerResult<PathBuf> {
        if !self.attachment_capabilities.supports_extension(
            RUNTIME_BUNDLE_HANDOFF_EXTENSION,
            RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION,
        ) {
            return Err(ExecutionManagerError::Unavailable(format!(
                "the runtime does not advertise version \
                 {RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION} of {RUNTIME_BUNDLE_HANDOFF_EXTENSION}"
            )));
        }
        runtime_bundle_handoff_directory(
            runtime_root,
            &self.runtime_container_id,
            &self.create_context.operation_id,
        )
        .map_err(runtime_error)
    }

    /// Accepts only a directory that [`Self::runtime_bundle_handoff_directory`] could have named.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn validate_runtime_bundle_handoff_directory(
        &self,
        directory: &Path,
    ) -> ExecutionManagerResult<()> {
        let refused = || {
            ExecutionManagerError::InvalidRequest(format!(
                "{} is not the handoff directory of this create",
                directory.display()
            ))
        };
        let normal: PathBuf = directory.components().collect();
        let is_plain = directory.is_absolute()
            && normal.as_os_str() == directory.as_os_str()
            && !directory
                .components()
                .any(|part| matches!(part, Component::ParentDir | Component::CurDir));
        // bundle, operation id, container id, handoff root: what is left is the runtime root.
        let root = directory.ancestors().nth(4).ok_or_else(refused)?;
        let expected = root
            .join(RUNTIME_BUNDLE_HANDOFF_ROOT_DIRECTORY)
            .join(self.runtime_container_id.as_str())
            .join(self.create_context.operation_id.as_str())
            .join(RUNTIME_BUNDLE_HANDOFF_BUNDLE_DIRECTORY);
        if is_plain && expected.as_os_str() == directory.as_os_str() {
            Ok(())
        } else {
            Err(refused())
        }
    }
}

/// A bundle ready for the runtime's create.
#[derive(Debug, Clone)]
pub struct OciPreparedExecution {
    pub bundle: OciBundle,
    pub attachments: CreateAttachments,
    pub console_log: PathBuf,
    pub anonymous_volumes: Vec<String>,
}

impl OciPreparedExecution {
    /// Attachments as the bundle has them, and no streams for the init process.
    ///
    /// # Errors
    /// `InvalidRequest` when the bundle attaches what cannot be classified.
    pub fn new(bundle: OciBundle, console_log: impl Into<PathBuf>) -> ExecutionManagerResult<Self> {
        let io = ProcessIo {
            stdin: IoMode::Null,
            stdout: IoMode::Null,
            stderr: IoMode::Null,
            terminal_size: None,
        };
        let attachments = CreateAttachments::from_bundle(&bundle, io).map_err(runtime_error)?;
        Ok(Self::with_attachments(bundle, attachments, console_log))
    }

    pub fn with_attachments(
        bundle: OciBundle,
        attachments: CreateAttachments,
        console_log: impl Into<PathBuf>,
    ) -> Self {
        Self {
            bundle,
            attachments,
            console_log: console_log.into(),
            anonymous_volumes: Vec::new(),
        }
    }

    /// Declares that the runtime takes the bundle over.
    ///
    /// # Errors
    /// `Unavailable` when the runtime does not offer it; `InvalidRequest` when the bundle lies
    /// elsewhere or its config does not say so itself.
    pub fn with_runtime_bundle_handoff(
        self,
        context: &OciBundlePreparationContext,
        runtime_root: impl AsRef<Path>,
    ) -> ExecutionManagerResult<Self> {
        let expected = context.runtime_bundle_handoff_directory(runtime_root)?;
        if !exact_handoff_directory_matches(self.bundle.directory(), &expected) {
            return Err(ExecutionManagerError::InvalidRequest(format!(
                "the bundle lies in {} and not in its handoff directory {}",
                self.bundle.directory().display(),
                expected.display()
            )));
        }
        let declared = self
            .bundle
            .spec()
            .annotations()
            .as_ref()
            .and_then(|annotations| annotations.get(RUNTIME_BUNDLE_HANDOFF_EXTENSION));
        if declared.map(String::as_str) != Some(RUNTIME_BUNDLE_HANDOFF_MOVE_V1) {
            return Err(ExecutionManagerError::InvalidRequest(format!(
                "the bundle's config lacks annotation \
                 {RUNTIME_BUNDLE_HANDOFF_EXTENSION}={RUNTIME_BUNDLE_HANDOFF_MOVE_V1}"
            )));
        }
        let attachments = self
            .attachments
            .with_runtime_bundle_handoff(&self.bundle)
            .map_err(runtime_error)?;
        Ok(Self {
            attachments,
            ..self
        })
    }

    /// What must hold before anything is created from it.
    pub(crate) fn validate_for(
        &self,
        record: &BoxRecord,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<()> {
        self.attachments
            .validate(&self.bundle)
            .map_err(runtime_error)?;
        context
            .attachment_capabilities
            .require(&self.attachments)
            .map_err(runtime_error)?;
        if self.attachments.uses_runtime_bundle_handoff() {
            context.validate_runtime_bundle_handoff_directory(&handoff_name(
                self.bundle.directory(),
            ))?;
        }
        if self.console_log != record.console_log {
            return Err(ExecutionManagerError::InvalidRequest(format!(
                "the prepared console path {} is not the record's {}",
                self.console_log.display(),
                record.console_log.display()
            )));
        }
        if self.anonymous_volumes != record.anonymous_volumes {
            return Err(ExecutionManagerError::InvalidRequest(
                "the prepared anonymous volumes are not the record's".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Whether a loaded bundle's directory is the handoff directory. Loading resolves the directory, which
/// on two systems gives the same place another spelling; names are compared, nothing is opened.
pub(super) fn exact_handoff_directory_matches(directory: &Path, expected: &Path) -> bool {
    handoff_name(directory).as_os_str() == handoff_name(expected).as_os_str()
}

/// The spelling without the verbatim prefix of Windows or the `/private` of macOS.
fn handoff_name(path: &Path) -> PathBuf {
    #[cfg(windows)]
    {
        let text = path.as_os_str().to_string_lossy();
        if let Some(rest) = text.strip_prefix(r"\\?\UNC\") {
            return PathBuf::from(format!(r"\\{rest}"));
        }
        if let Some(rest) = text.strip_prefix(r"\\?\") {
            return PathBuf::from(rest.to_owned());
        }
    }
    #[cfg(target_os = "macos")]
    for alias in ["tmp", "var", "etc"] {
        if let Ok(rest) = path.strip_prefix(Path::new("/private").join(alias)) {
            return Path::new("/").join(alias).join(rest);
        }
    }
    path.to_path_buf()
}
