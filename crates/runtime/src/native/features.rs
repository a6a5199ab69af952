//! What the service can do: the engine's own report, and the driver's verbs.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use a3sbox_oci::{
    AttachmentCapabilities, CapabilityStatus, DriverCapability, DriverKind, DriverReadiness,
    ENGINE_EXTENSION, ENGINE_EXTENSION_VERSION, Error, HostPlatform, IsolationClass, OciFeatures,
    RUNTIME_FEATURES_SCHEMA, RuntimeFeatures, RuntimeInfo, RuntimeOperation, STDIO_EXTENSION,
    STDIO_EXTENSION_VERSION,
};
use sha2::{Digest as _, Sha256};

use super::checkpoint::is_in_path;
use super::{Driver, wanted};
use crate::native::engine::{Engine, EngineError};
use crate::native::reaper::SpawnHold;

/// For an engine that has no `features` verb: what every OCI engine is.
const UNREPORTED: &str = r#"{"ociVersionMin":"1.0.0","ociVersionMax":"1.0.2-dev"}"#;

/// The longest report that is read back.
const MAX_REPORT_BYTES: u64 = 256 * 1024;

/// The attachments that a create may carry.
pub(crate) fn attachments() -> Result<AttachmentCapabilities, Error> {
    AttachmentCapabilities::base_v1()
        .with_extension(STDIO_EXTENSION, [STDIO_EXTENSION_VERSION])?
        .with_extension(ENGINE_EXTENSION, [ENGINE_EXTENSION_VERSION])
}

pub(crate) async fn features(driver: &Arc<Driver>) -> Result<RuntimeInfo, Error> {
    let options = driver.config.engine_for(None);
    let engine = wanted::engine_of(&options);
    let (oci, status, reason) = match report_of(&engine, driver).await {
        Ok(json) => (
            serde_json::from_slice(&json).ok(),
            CapabilityStatus::Available,
            None,
        ),
        Err(error @ (EngineError::Missing { .. } | EngineError::Spawn { .. })) => {
            (None, CapabilityStatus::Unavailable, Some(error.to_string()))
        }
        Err(error) => {
            tracing::debug!(error = %error, "the engine reports no features");
            (None, CapabilityStatus::Available, None)
        }
    };
    let oci: OciFeatures = match oci {
        Some(oci) => oci,
        None => serde_json::from_str(UNREPORTED).map_err(|error| {
            Error::new(
                a3sbox_oci::ErrorCode::Internal,
                format!("features are malformed: {error}"),
            )
        })?,
    };
    Ok(RuntimeInfo {
        oci,
        drivers: RuntimeFeatures {
            schema_version: RUNTIME_FEATURES_SCHEMA.to_owned(),
            platform: HostPlatform::current(),
            architecture: std::env::consts::ARCH.to_owned(),
            drivers: vec![DriverCapability {
                driver: DriverKind::NativeLinux,
                status,
                readiness: DriverReadiness::Supported,
                isolation_classes: vec![IsolationClass::SharedHostKernel],
                reason,
                evidence: BTreeMap::from([(
                    "engine".to_owned(),
                    engine.binary.display().to_string(),
                )]),
            }],
        },
        operations: operations(),
        attachments: attachments()?,
    })
}

/// The engine's report, asked once per engine binary and kept beside the engine's folder: a process per
/// create would be a third of its cost.
async fn report_of(engine: &Engine, driver: &Arc<Driver>) -> Result<Vec<u8>, EngineError> {
    let kept = report_file(engine);
    let known = kept.as_deref().and_then(|path| {
        a3sbox_durable::record::read(path, MAX_REPORT_BYTES)
            .ok()
            .flatten()
    });
    if let Some(json) = known {
        return Ok(json);
    }
    let hold = SpawnHold::take();
    let json = engine.features(&driver.config.root, &hold).await?;
    drop(hold);
    if let Some(path) = kept {
        let stored = path
            .parent()
            .map_or(Ok(()), a3sbox_durable::folder::create_all)
            .and_then(|()| a3sbox_durable::replace(&path, &json));
        if let Err(error) = stored {
            tracing::debug!(error = %error, "the engine's report is not kept");
        }
    }
    Ok(json)
}

/// Where the report of exactly this binary is kept; another one, also at the same path, has another name.
fn report_file(engine: &Engine) -> Option<PathBuf> {
    let metadata = std::fs::metadata(&engine.binary).ok()?;
    let identity = format!(
        "{}:{}:{}:{}:{}",
        engine.binary.display(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let digest = Sha256::digest(identity.as_bytes());
    let name = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let folder = engine.root.file_name()?.to_string_lossy();
    // Beside the engine's folder: in it, the engine takes everything for a container.
    Some(
        engine
            .root
            .with_file_name(format!("{folder}-features-{name}.json")),
    )
}

/// Every verb but those that this driver or host does not have.
fn operations() -> Vec<RuntimeOperation> {
    let has_criu = is_in_path("criu");
    RuntimeOperation::ALL
        .iter()
        .copied()
        .filter(|operation| match operation {
            RuntimeOperation::Checkpoint | RuntimeOperation::Restore => has_criu,
            _ => true,
        })
        .collect()
}
