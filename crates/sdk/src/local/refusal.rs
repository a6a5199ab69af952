//! What the local manager does not run, said before anything is made or recorded.

use a3sbox_core::{ExecutionIsolation, ExecutionManagerError, ExecutionManagerResult};
use a3sbox_execution::BoxRecord;

use super::host::{require_controls, unavailable};
use super::mounts;
use crate::image::{Image, ImageStore};

/// Everything that can refuse an execution. Reads only.
pub(super) fn check(images: &ImageStore, record: &BoxRecord) -> ExecutionManagerResult<()> {
    if record.isolation == ExecutionIsolation::Microvm {
        return unavailable(
            "isolation microvm needs the microVM driver, which this version does not have; ask for \
             isolation sandbox",
        );
    }
    image(images, record)?;
    options(record)?;
    for entry in &record.volumes {
        mounts::volume(entry)?;
    }
    require_controls(record)
}

/// The image of a record, which must have been imported.
pub(super) fn image(images: &ImageStore, record: &BoxRecord) -> ExecutionManagerResult<Image> {
    match images.find(&record.image) {
        Ok(Some(image)) => Ok(image),
        Ok(None) => unavailable(&format!(
            "image {} is not in the local image store; import an OCI archive of it first \
             (import_image)",
            record.image
        )),
        Err(error) => unavailable(&format!("cannot read image {}: {error}", record.image)),
    }
}

/// Options that nobody here would honour are refused, not forgotten.
fn options(record: &BoxRecord) -> ExecutionManagerResult<()> {
    let platform = format!("linux/{}", crate::image::host_architecture());
    let refused = if record.init {
        Some("an init process of its own (policy.init)")
    } else if !record.devices.is_empty() {
        Some("host devices (policy.devices)")
    } else if record.gpus.is_some() {
        Some("GPUs (policy.gpus)")
    } else if record
        .platform
        .as_deref()
        .is_some_and(|asked| asked != platform && asked != "linux")
    {
        Some("another platform (policy.platform)")
    } else {
        None
    };
    match refused {
        None => Ok(()),
        Some(what) => Err(ExecutionManagerError::Unavailable(format!(
            "the local manager does not offer {what} to sandboxes"
        ))),
    }
}
