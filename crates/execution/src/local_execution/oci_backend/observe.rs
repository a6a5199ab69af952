//! Processes, statistics and events of one exact runtime generation.

use a3sbox_core::{
    ExecutionCpuStats, ExecutionEventBatch, ExecutionEventKind, ExecutionEventsRequest,
    ExecutionManagerResult, ExecutionMemoryStats, ExecutionProcessInfo, ExecutionProcessInventory,
    ExecutionRuntimeEvent, ExecutionStats,
};
use a3sbox_oci::{
    ContainerStats, ContainerTarget, EventsRequest, ProcessesRequest, RuntimeEvent,
    RuntimeEventKind, RuntimeOperation, StatsRequest,
};

use super::OciLocalExecutionBackend;
use super::capabilities::require;
use super::error::{internal, runtime_error_for};
use super::record::Execution;
use crate::BoxRecord;

/// Attribute that names an event kind which the product's vocabulary does not have.
const KIND_ATTRIBUTE: &str = "kind";

impl OciLocalExecutionBackend {
    pub(super) async fn processes_of(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        let execution = Execution::new(record, &self.endpoint)?;
        let target = &execution.require_binding()?.target;
        require(&self.client, &[RuntimeOperation::Processes]).await?;
        let answer = self
            .client
            .processes(ProcessesRequest {
                target: target.clone(),
            })
            .await
            .map_err(|error| runtime_error_for(&execution.execution_id, error))?;
        let mut processes = Vec::with_capacity(answer.len());
        for process in answer {
            require_target("process", target, &process.target.container)?;
            processes.push(ExecutionProcessInfo {
                process_id: process.target.process_id.to_string(),
                pid: process.pid,
                terminal: process.terminal,
            });
        }
        let generation = execution.generation();
        let inventory = ExecutionProcessInventory {
            execution_id: execution.execution_id,
            generation,
            processes,
        };
        inventory
            .validate()
            .map_err(|error| internal(error.to_string()))?;
        Ok(inventory)
    }

    pub(super) async fn stats_of(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<ExecutionStats> {
        let execution = Execution::new(record, &self.endpoint)?;
        let target = &execution.require_binding()?.target;
        require(&self.client, &[RuntimeOperation::Stats]).await?;
        let stats = self
            .client
            .stats(StatsRequest {
                target: target.clone(),
            })
            .await
            .map_err(|error| runtime_error_for(&execution.execution_id, error))?;
        require_target("stats", target, &stats.target)?;
        let stats = product_stats(&execution, stats);
        stats
            .validate()
            .map_err(|error| internal(error.to_string()))?;
        Ok(stats)
    }

    pub(super) async fn events_of(
        &self,
        record: &BoxRecord,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        request.validate()?;
        let execution = Execution::new(record, &self.endpoint)?;
        let target = &execution.require_binding()?.target;
        require(&self.client, &[RuntimeOperation::Events]).await?;
        let batch = self
            .client
            .events(EventsRequest {
                container: Some(target.clone()),
                after_sequence: request.after_sequence,
                limit: request.limit,
                wait_timeout_ms: request.wait_timeout_ms,
            })
            .await
            .map_err(|error| runtime_error_for(&execution.execution_id, error))?;
        if u32::try_from(batch.events.len()).map_or(true, |count| count > request.limit) {
            return Err(internal(
                "the runtime answered with more events than were asked for",
            ));
        }
        let mut events = Vec::with_capacity(batch.events.len());
        for event in batch.events {
            require_target("event", target, &event.container)?;
            events.push(product_event(event));
        }
        let generation = execution.generation();
        let batch = ExecutionEventBatch {
            execution_id: execution.execution_id,
            generation,
            events,
            next_sequence: batch.next_sequence,
        };
        batch
            .validate_after(request.after_sequence)
            .map_err(|error| internal(error.to_string()))?;
        Ok(batch)
    }
}

fn require_target(
    what: &str,
    expected: &ContainerTarget,
    answered: &ContainerTarget,
) -> ExecutionManagerResult<()> {
    if answered == expected {
        return Ok(());
    }
    Err(internal(format!(
        "the runtime returned an invalid {what} target: container {} instead of {}",
        answered.id, expected.id
    )))
}

fn product_stats(execution: &Execution<'_>, stats: ContainerStats) -> ExecutionStats {
    ExecutionStats {
        execution_id: execution.execution_id.clone(),
        generation: execution.generation(),
        timestamp_unix_ns: stats.timestamp_unix_ns,
        cpu: ExecutionCpuStats {
            usage_ns: stats.cpu.usage_ns,
            user_ns: stats.cpu.user_ns,
            system_ns: stats.cpu.system_ns,
            throttled_ns: stats.cpu.throttled_ns,
        },
        memory: ExecutionMemoryStats {
            usage_bytes: stats.memory.usage_bytes,
            limit_bytes: stats.memory.limit_bytes,
            peak_bytes: stats.memory.peak_bytes,
        },
        process_count: stats.process_count,
        metrics: stats.metrics,
    }
}

fn product_event(event: RuntimeEvent) -> ExecutionRuntimeEvent {
    let mut attributes = event.attributes;
    let kind = match event.kind {
        RuntimeEventKind::ContainerCreating => ExecutionEventKind::ContainerCreating,
        RuntimeEventKind::ContainerCreated => ExecutionEventKind::ContainerCreated,
        RuntimeEventKind::ContainerStarted => ExecutionEventKind::ContainerStarted,
        RuntimeEventKind::ContainerStopped => ExecutionEventKind::ContainerStopped,
        RuntimeEventKind::ContainerDeleted => ExecutionEventKind::ContainerDeleted,
        RuntimeEventKind::ContainerPaused => ExecutionEventKind::ContainerPaused,
        RuntimeEventKind::ContainerResumed => ExecutionEventKind::ContainerResumed,
        RuntimeEventKind::ResourcesUpdated => ExecutionEventKind::ResourcesUpdated,
        RuntimeEventKind::ProcessCreated => ExecutionEventKind::ProcessCreated,
        RuntimeEventKind::ProcessStarted => ExecutionEventKind::ProcessStarted,
        RuntimeEventKind::ProcessExited => ExecutionEventKind::ProcessExited,
        RuntimeEventKind::OutputDropped => ExecutionEventKind::OutputDropped,
        RuntimeEventKind::RuntimeWarning => ExecutionEventKind::RuntimeWarning,
        // The runtime may know more kinds than the product's vocabulary; none of them is lost.
        other => {
            if let Ok(serde_json::Value::String(name)) = serde_json::to_value(other) {
                attributes.entry(KIND_ATTRIBUTE.to_owned()).or_insert(name);
            }
            ExecutionEventKind::RuntimeWarning
        }
    };
    ExecutionRuntimeEvent {
        sequence: event.sequence,
        timestamp_unix_ns: event.timestamp_unix_ns,
        process_id: event.process_id.map(|id| id.to_string()),
        kind,
        attributes,
    }
}
