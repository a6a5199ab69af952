//! The durable link from a record to one exact runtime generation.

use a3sbox_core::{ExecutionId, ExecutionManagerError, ExecutionManagerResult};
use a3sbox_oci::{ContainerId, ContainerRecord, ContainerTarget, DriverKind, IsolationClass};
use serde::{Deserialize, Serialize};

use super::OciRuntimeEndpoint;
use super::endpoint::validate_endpoint;
use super::evidence::is_sha256_digest;
use super::identity::runtime_container_id;

/// Shape of [`OciRuntimeBinding`]; a binding of another shape is refused, never guessed.
pub const OCI_RUNTIME_BINDING_SCHEMA_VERSION: &str = "a3sbox.oci-runtime-binding.v1";

/// What a record remembers of its runtime: where it is served, which container and generation it is,
/// and the evidence that the container is the one that was asked for. All of it is constant for the
/// life of that generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OciRuntimeBinding {
    pub schema_version: String,
    pub endpoint: OciRuntimeEndpoint,
    pub target: ContainerTarget,
    pub driver: DriverKind,
    pub isolation: IsolationClass,
    pub config_digest: String,
    pub attachments_digest: String,
}

impl OciRuntimeBinding {
    /// Binds to the container that a runtime reported under the id that was expected.
    pub(super) fn from_record(
        endpoint: OciRuntimeEndpoint,
        expected_id: &ContainerId,
        record: &ContainerRecord,
    ) -> ExecutionManagerResult<Self> {
        if record.state.id() != expected_id.as_str() {
            return Err(internal(format!(
                "the runtime answered for container {} instead of {expected_id}",
                record.state.id()
            )));
        }
        let Some(attachments_digest) = record.attachments_digest.clone() else {
            return Err(internal(format!(
                "the runtime gave no attachment evidence for container {expected_id}"
            )));
        };
        let binding = Self {
            schema_version: OCI_RUNTIME_BINDING_SCHEMA_VERSION.to_owned(),
            endpoint,
            target: ContainerTarget::exact(expected_id.clone(), record.generation),
            driver: record.driver,
            isolation: record.isolation,
            config_digest: record.config_digest.clone(),
            attachments_digest,
        };
        binding.validate()?;
        Ok(binding)
    }

    /// Checks everything that can be checked without knowing the owner.
    ///
    /// # Errors
    /// `Internal`: a stored binding that fails is damaged.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        if self.schema_version != OCI_RUNTIME_BINDING_SCHEMA_VERSION {
            return Err(internal(format!(
                "unknown runtime binding schema {:?}",
                self.schema_version
            )));
        }
        validate_endpoint(&self.endpoint).map_err(|error| internal(error.to_string()))?;
        match self.target.generation {
            Some(generation) if generation.0 > 0 => {}
            _ => {
                return Err(internal(format!(
                    "the runtime binding of container {} names no generation",
                    self.target.id
                )));
            }
        }
        for (name, digest) in [
            ("config", &self.config_digest),
            ("attachments", &self.attachments_digest),
        ] {
            if !is_sha256_digest(digest) {
                return Err(internal(format!(
                    "the runtime binding has a malformed {name} digest"
                )));
            }
        }
        Ok(())
    }

    /// [`Self::validate`], and the container is the one of this execution.
    ///
    /// # Errors
    /// `Internal`, whose text contains `does not belong` when the owner is another execution.
    pub fn validate_for(&self, execution_id: &ExecutionId) -> ExecutionManagerResult<()> {
        self.validate()?;
        if self.target.id != runtime_container_id(execution_id)? {
            return Err(internal(format!(
                "runtime container {} does not belong to execution {execution_id}",
                self.target.id
            )));
        }
        Ok(())
    }

    /// A later answer of the runtime must be about the same container with the same evidence.
    pub(super) fn validate_record(&self, record: &ContainerRecord) -> ExecutionManagerResult<()> {
        let drift = if record.state.id() != self.target.id.as_str() {
            "id"
        } else if Some(record.generation) != self.target.generation {
            "generation"
        } else if record.driver != self.driver {
            "driver"
        } else if record.isolation != self.isolation {
            "isolation"
        } else if record.config_digest != self.config_digest {
            "config digest"
        } else if record.attachments_digest.as_deref() != Some(self.attachments_digest.as_str()) {
            "attachments digest"
        } else {
            return Ok(());
        };
        Err(internal(format!(
            "the runtime reported another {drift} for container {}",
            self.target.id
        )))
    }
}

fn internal(message: String) -> ExecutionManagerError {
    ExecutionManagerError::Internal(message)
}
