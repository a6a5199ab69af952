//! What the backend reads of a stored record, checked once per call.

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionManagerResult};
use a3sbox_oci::{ContainerId, ContainerTarget, IsolationRequest};

use super::error::internal;
use super::evidence::validate_binding;
use super::identity::{oci_isolation_request, runtime_container_id};
use super::{OciRuntimeBinding, OciRuntimeEndpoint};
use crate::{BoxRecord, ManagedExecutionMetadata, ManagedExecutionState};

/// A record whose identity, state and binding were found consistent.
#[derive(Debug)]
pub(super) struct Execution<'a> {
    pub(super) record: &'a BoxRecord,
    pub(super) metadata: &'a ManagedExecutionMetadata,
    pub(super) execution_id: ExecutionId,
    pub(super) container_id: ContainerId,
    pub(super) state: ManagedExecutionState,
}

impl<'a> Execution<'a> {
    pub(super) fn new(
        record: &'a BoxRecord,
        endpoint: &OciRuntimeEndpoint,
    ) -> ExecutionManagerResult<Self> {
        let metadata = record
            .managed_execution
            .as_ref()
            .ok_or_else(|| internal(format!("execution {} has no managed metadata", record.id)))?;
        let execution_id = ExecutionId::new(record.id.clone())?;
        let container_id = runtime_container_id(&execution_id)?;
        let state = ManagedExecutionState::from_status(&record.status)
            .map_err(|error| internal(format!("execution {execution_id}: {error}")))?;
        if let Some(binding) = &metadata.oci_runtime {
            validate_binding(binding, endpoint, &execution_id)?;
        }
        Ok(Self {
            record,
            metadata,
            execution_id,
            container_id,
            state,
        })
    }

    pub(super) fn generation(&self) -> ExecutionGeneration {
        self.metadata.generation
    }

    /// Seed of create and start: the operation id under which the execution was asked for.
    pub(super) fn creation_seed(&self) -> &str {
        self.metadata.operation_id.as_str()
    }

    pub(super) fn isolation(&self) -> IsolationRequest {
        oci_isolation_request(self.metadata.request.config.isolation)
    }

    pub(super) fn binding(&self) -> Option<&'a OciRuntimeBinding> {
        self.metadata.oci_runtime.as_ref()
    }

    /// The binding of a verb that makes no sense without a runtime.
    pub(super) fn require_binding(&self) -> ExecutionManagerResult<&'a OciRuntimeBinding> {
        self.binding().ok_or_else(|| {
            internal(format!(
                "execution {} has no runtime binding",
                self.execution_id
            ))
        })
    }

    /// The bound generation, else whatever the runtime has under the execution's id.
    pub(super) fn target(&self) -> ContainerTarget {
        self.binding().map_or_else(
            || ContainerTarget::current(self.container_id.clone()),
            |binding| binding.target.clone(),
        )
    }

    /// Starting for the first time or again: a created runtime is waiting to be started.
    pub(super) fn is_starting(&self) -> bool {
        matches!(
            self.state,
            ManagedExecutionState::Starting | ManagedExecutionState::RestartStarting
        )
    }
}
