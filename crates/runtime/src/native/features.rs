//! What the service can do: the engine's own report, and the driver's verbs.

use std::collections::BTreeMap;
use std::sync::Arc;

use a3sbox_oci::{
    AttachmentCapabilities, CapabilityStatus, DriverCapability, DriverKind, DriverReadiness,
    ENGINE_EXTENSION, ENGINE_EXTENSION_VERSION, Error, HostPlatform, IsolationClass, OciFeatures,
    RUNTIME_FEATURES_SCHEMA, RuntimeFeatures, RuntimeInfo, RuntimeOperation, STDIO_EXTENSION,
    STDIO_EXTENSION_VERSION,
};

use super::checkpoint::is_in_path;
use super::{Driver, wanted};
use crate::native::engine::EngineError;
use crate::native::reaper::SpawnHold;

/// For an engine that has no `features` verb: what every OCI engine is.
const UNREPORTED: &str = r#"{"ociVersionMin":"1.0.0","ociVersionMax":"1.0.2-dev"}"#;

/// The attachments that a create may carry.
pub(crate) fn attachments() -> Result<AttachmentCapabilities, Error> {
    AttachmentCapabilities::base_v1()
        .with_extension(STDIO_EXTENSION, [STDIO_EXTENSION_VERSION])?
        .with_extension(ENGINE_EXTENSION, [ENGINE_EXTENSION_VERSION])
}

pub(crate) async fn features(driver: &Arc<Driver>) -> Result<RuntimeInfo, Error> {
    let options = driver.config.engine_for(None);
    let engine = wanted::engine_of(&options);
    let hold = SpawnHold::take();
    let reported = engine.features(&driver.config.root, &hold).await;
    drop(hold);
    let (oci, status, reason) = match reported {
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

/// Every verb but those that this driver or host does not have.
fn operations() -> Vec<RuntimeOperation> {
    let has_criu = is_in_path("criu");
    RuntimeOperation::ALL
        .iter()
        .copied()
        .filter(|operation| match operation {
            RuntimeOperation::File | RuntimeOperation::Filesystem => false,
            RuntimeOperation::Checkpoint | RuntimeOperation::Restore => has_criu,
            _ => true,
        })
        .collect()
}
