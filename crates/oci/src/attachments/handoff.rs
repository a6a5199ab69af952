//! Handing a prepared bundle over to the runtime, which moves it into storage of its own.

use std::path::{Path, PathBuf};

use super::CreateAttachments;
use crate::bundle::OciBundle;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, OperationId};

/// Extension, and annotation of the configuration, that asks for a handoff.
pub const RUNTIME_BUNDLE_HANDOFF_EXTENSION: &str = "dev.a3s.bundle-handoff";
pub const RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION: u16 = 1;
/// Value of the annotation: the runtime takes the directory by moving it.
pub const RUNTIME_BUNDLE_HANDOFF_MOVE_V1: &str = "move-to-runtime-v1";
/// Folder below the runtime's root where bundles wait to be taken.
pub const RUNTIME_BUNDLE_HANDOFF_ROOT_DIRECTORY: &str = "bundle-handoffs";
/// Last component of a handoff path.
pub const RUNTIME_BUNDLE_HANDOFF_BUNDLE_DIRECTORY: &str = "bundle";

/// Where the bundle of one create operation must be for the runtime to take it. Nothing is created.
pub fn runtime_bundle_handoff_directory(
    runtime_root: impl AsRef<Path>,
    container_id: &ContainerId,
    operation_id: &OperationId,
) -> Result<PathBuf> {
    let root = runtime_root.as_ref();
    if !root.is_absolute() {
        return Err(Error::invalid(format!(
            "runtime root {} is not absolute",
            root.display()
        )));
    }
    Ok(root
        .join(RUNTIME_BUNDLE_HANDOFF_ROOT_DIRECTORY)
        .join(container_id.as_str())
        .join(operation_id.as_str())
        .join(RUNTIME_BUNDLE_HANDOFF_BUNDLE_DIRECTORY))
}

impl CreateAttachments {
    /// Asks the runtime to take the bundle. The configuration must say so in its annotation, so that
    /// the digest of the configuration covers the request.
    pub fn with_runtime_bundle_handoff(self, bundle: &OciBundle) -> Result<Self> {
        let attachments = self.add_extension_from_annotation(
            bundle,
            RUNTIME_BUNDLE_HANDOFF_EXTENSION,
            RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION,
            true,
        )?;
        attachments.check_handoff(bundle)?;
        Ok(attachments)
    }

    pub fn uses_runtime_bundle_handoff(&self) -> bool {
        self.extensions
            .contains_key(RUNTIME_BUNDLE_HANDOFF_EXTENSION)
    }

    pub(super) fn check_handoff(&self, bundle: &OciBundle) -> Result<()> {
        let Some(extension) = self.extensions.get(RUNTIME_BUNDLE_HANDOFF_EXTENSION) else {
            return Ok(());
        };
        let value = bundle
            .spec()
            .annotations()
            .as_ref()
            .and_then(|annotations| annotations.get(RUNTIME_BUNDLE_HANDOFF_EXTENSION));
        let agreed = extension.is_required()
            && extension.version() == RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION
            && value.is_some_and(|value| value == RUNTIME_BUNDLE_HANDOFF_MOVE_V1);
        if agreed {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "a bundle handoff must be required, of version {RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION}, with annotation {RUNTIME_BUNDLE_HANDOFF_EXTENSION}={RUNTIME_BUNDLE_HANDOFF_MOVE_V1}"
            )))
        }
    }
}
