//! Looking at a live sandbox, and changing its limits.

use a3sbox_core::{
    ExecutionEventBatch, ExecutionEventsRequest, ExecutionGeneration, ExecutionProcessInventory,
    ExecutionResourceUpdate, ExecutionState, ExecutionStats, OperationId,
};

use super::handle::Sandbox;
use crate::client::Result;

impl Sandbox {
    /// The processes that are known by an id.
    pub async fn processes(&self) -> Result<ExecutionProcessInventory> {
        let generation = self.alive("the list of processes")?;
        self.shared
            .client
            .list_execution_processes(&self.shared.execution_id, generation)
            .await
    }

    /// One sample of resource use.
    pub async fn runtime_stats(&self) -> Result<ExecutionStats> {
        let generation = self.alive("a sample of resource use")?;
        self.shared
            .client
            .execution_stats(&self.shared.execution_id, generation)
            .await
    }

    /// Events after a cursor.
    pub async fn events(&self, request: ExecutionEventsRequest) -> Result<ExecutionEventBatch> {
        let generation = self.alive("reading events")?;
        self.shared
            .client
            .execution_events(&self.shared.execution_id, generation, request)
            .await
    }

    /// Changes limits; not done again under an operation id that has completed.
    pub async fn update_resources(
        &self,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> Result<()> {
        let shared = &self.shared;
        let generation = shared.running("a change of limits")?;
        let lease = shared
            .client
            .update_execution_resources(&shared.execution_id, generation, operation_id, update)
            .await?;
        shared.learn(lease.generation, ExecutionState::Running);
        Ok(())
    }

    pub(super) fn alive(&self, verb: &str) -> Result<ExecutionGeneration> {
        self.shared
            .in_state(verb, &[ExecutionState::Running, ExecutionState::Paused])
    }
}
