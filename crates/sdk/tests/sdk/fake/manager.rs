//! The fake's side of [`ExecutionManager`].

use std::collections::BTreeMap;

use a3sbox_core::log::LogEntry;
use a3sbox_core::*;
use async_trait::async_trait;

use super::{Call, Fake, SIZE};

#[async_trait]
impl ExecutionManager for Fake {
    async fn create(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionReservation> {
        let seen = serde_json::to_value(&request).unwrap();
        self.call(Call::Create(operation_id.to_string(), seen), |state| {
            state.create(request, ExecutionState::Created);
            let lease = state.lease();
            Ok(ExecutionReservation {
                execution_id: lease.execution_id,
                generation: lease.generation,
                plan: lease.plan,
                resources: lease.resources,
                created_at: lease.started_at,
            })
        })
    }

    async fn start(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::Start(id.to_string(), generation.get());
        self.fenced(call, id, generation, |state| {
            state.execution(id)?.state = ExecutionState::Running;
            Ok(state.lease())
        })
    }

    async fn create_and_start(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let seen = serde_json::to_value(&request).unwrap();
        self.call(
            Call::CreateAndStart(operation_id.to_string(), seen),
            |state| {
                state.create(request, ExecutionState::Running);
                Ok(state.lease())
            },
        )
    }

    async fn inspect(&self, id: &ExecutionId) -> ExecutionManagerResult<ExecutionStatus> {
        self.call(Call::Inspect, |state| {
            let execution = state.execution(id)?;
            Ok(ExecutionStatus {
                execution_id: id.clone(),
                generation: execution.generation,
                state: execution.state,
                plan: resolve_execution(&execution.config).unwrap(),
            })
        })
    }

    async fn read_logs(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<Vec<LogEntry>> {
        self.fenced(Call::ReadLogs(generation.get()), id, generation, |state| {
            Ok(state.log.clone())
        })
    }

    async fn list_processes(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionProcessInventory> {
        self.fenced(
            Call::ListProcesses(generation.get()),
            id,
            generation,
            |_| {
                Ok(ExecutionProcessInventory {
                    execution_id: id.clone(),
                    generation,
                    processes: vec![],
                })
            },
        )
    }

    async fn stats(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionStats> {
        self.fenced(Call::Stats(generation.get()), id, generation, |_| {
            Ok(ExecutionStats {
                execution_id: id.clone(),
                generation,
                timestamp_unix_ns: 1,
                cpu: ExecutionCpuStats::default(),
                memory: ExecutionMemoryStats::default(),
                process_count: 1,
                metrics: BTreeMap::new(),
            })
        })
    }

    async fn events(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        request: ExecutionEventsRequest,
    ) -> ExecutionManagerResult<ExecutionEventBatch> {
        let call = Call::Events(generation.get(), request);
        self.fenced(call, id, generation, |state| {
            if state.batches.is_empty() {
                return Err(ExecutionManagerError::Unavailable("no more batches".into()));
            }
            Ok(state.batches.remove(0))
        })
    }

    async fn update_resources(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        update: ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::UpdateResources(generation.get(), operation_id.to_string(), update);
        self.fenced(call, id, generation, |state| Ok(state.lease()))
    }

    async fn create_filesystem_snapshot(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<ExecutionSnapshot> {
        let call = Call::Snapshot(generation.get(), snapshot_id.to_string());
        self.fenced(call, id, generation, |state| {
            state.snapshots.insert(snapshot_id.to_string(), SIZE);
            let restored = state.execution(id)?.state;
            Ok(ExecutionSnapshot {
                snapshot_id: snapshot_id.clone(),
                size_bytes: SIZE,
                state: restored,
                lease: state.advance(restored),
            })
        })
    }

    async fn filesystem_snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        self.call(Call::SnapshotSize(snapshot_id.to_string()), |state| {
            Ok(state.snapshots.get(snapshot_id.as_str()).copied())
        })
    }

    async fn delete_filesystem_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<bool> {
        self.call(Call::DeleteSnapshot(snapshot_id.to_string()), |state| {
            Ok(state.snapshots.remove(snapshot_id.as_str()).is_some())
        })
    }

    async fn pause(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        keep_memory: bool,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::Pause(generation.get(), keep_memory);
        self.fenced(call, id, generation, |state| {
            Ok(state.advance(ExecutionState::Paused))
        })
    }

    async fn resume(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.fenced(Call::Resume(generation.get()), id, generation, |state| {
            Ok(state.advance(ExecutionState::Running))
        })
    }

    async fn restart_with_options(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> ExecutionManagerResult<ExecutionLease> {
        let call = Call::Restart(generation.get(), operation_id.to_string(), options);
        self.call(call, |state| {
            let current = state.execution(id)?.generation;
            if let Some(led_to) = state.restarts.get(operation_id.as_str()) {
                let generation = *led_to;
                return Ok(ExecutionLease {
                    generation,
                    ..state.lease()
                });
            }
            Fence::new(id, current).admit(generation)?;
            let lease = state.advance(ExecutionState::Running);
            state
                .restarts
                .insert(operation_id.to_string(), lease.generation);
            Ok(lease)
        })
    }

    async fn kill(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.fenced(Call::Kill(generation.get()), id, generation, |state| {
            let remove = state.remove_on_kill;
            let execution = state.execution(id)?;
            execution.removed = remove;
            if execution.state == ExecutionState::Stopped {
                return Ok(KillOutcome::AlreadyStopped);
            }
            execution.state = ExecutionState::Stopped;
            Ok(KillOutcome::Killed)
        })
    }

    async fn remove(
        &self,
        id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<bool> {
        self.fenced(Call::Remove(generation.get()), id, generation, |state| {
            let answer = state.remove_answers;
            state.execution(id)?.removed = true;
            Ok(answer)
        })
    }

    async fn reconcile(
        &self,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ReconcileOutcome> {
        self.call(Call::Reconcile(operation_id.to_string()), |_| {
            Ok(ReconcileOutcome::Absent)
        })
    }
}
