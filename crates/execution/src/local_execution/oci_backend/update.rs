//! Live resource updates: only what the caller named is sent.

use a3sbox_core::{ExecutionManagerResult, ExecutionResourceUpdate, OperationId};
use a3sbox_oci::oci_spec::OciSpecError;
use a3sbox_oci::oci_spec::runtime::{
    LinuxCpu, LinuxCpuBuilder, LinuxMemory, LinuxMemoryBuilder, LinuxPids, LinuxPidsBuilder,
    LinuxResources, LinuxResourcesBuilder,
};
use a3sbox_oci::{RuntimeOperation, UpdateRequest};

use super::OciLocalExecutionBackend;
use super::capabilities::require;
use super::error::{internal, invalid, runtime_error_for};
use super::evidence::validate_running;
use super::identity::operation_context;
use super::record::Execution;
use crate::BoxRecord;

/// The kernel's own period, in microseconds, where nobody chose one.
const DEFAULT_CPU_PERIOD: u64 = 100_000;
const UPDATE: &str = "update";

impl OciLocalExecutionBackend {
    pub(super) async fn preflight_update(
        &self,
        record: &BoxRecord,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        Execution::new(record, &self.endpoint)?;
        require(&self.client, &[RuntimeOperation::Update]).await?;
        compile_resource_update(record, update).map(|_| ())
    }

    pub(super) async fn update_execution(
        &self,
        record: &BoxRecord,
        operation_id: &OperationId,
        update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        let execution = Execution::new(record, &self.endpoint)?;
        let binding = execution.require_binding()?;
        require(&self.client, &[RuntimeOperation::Update]).await?;
        let resources = compile_resource_update(record, update)?;
        // The content is not part of the name: the same id with other content must meet the first one.
        let context = operation_context(
            operation_id.as_str(),
            execution.generation(),
            UPDATE,
            &binding.target,
        )?;
        let request = UpdateRequest {
            context,
            target: binding.target.clone(),
            resources,
        };
        let container = self
            .client
            .update(request)
            .await
            .map_err(|error| runtime_error_for(&execution.execution_id, error))?;
        validate_running(binding, &container, false)
    }
}

/// The OCI form of an update. The memory limit and devices are never part of it.
pub(super) fn compile_resource_update(
    record: &BoxRecord,
    update: &ExecutionResourceUpdate,
) -> ExecutionManagerResult<LinuxResources> {
    update.validate()?;
    let mut builder = LinuxResourcesBuilder::default();
    if let Some(memory) = memory(update)? {
        builder = builder.memory(memory);
    }
    if let Some(cpu) = cpu(record, update)? {
        builder = builder.cpu(cpu);
    }
    if let Some(pids) = pids(update)? {
        builder = builder.pids(pids);
    }
    builder.build().map_err(|error| unbuildable(&error))
}

fn memory(update: &ExecutionResourceUpdate) -> ExecutionManagerResult<Option<LinuxMemory>> {
    if update.memory_reservation.is_none() && update.memory_swap.is_none() {
        return Ok(None);
    }
    let mut builder = LinuxMemoryBuilder::default();
    if let Some(reservation) = update.memory_reservation {
        builder = builder.reservation(signed("memory_reservation", reservation)?);
    }
    if let Some(swap) = update.memory_swap {
        builder = builder.swap(swap);
    }
    builder
        .build()
        .map(Some)
        .map_err(|error| unbuildable(&error))
}

fn cpu(
    record: &BoxRecord,
    update: &ExecutionResourceUpdate,
) -> ExecutionManagerResult<Option<LinuxCpu>> {
    let names_bandwidth = update.cpu_quota.is_some() || update.cpu_period.is_some();
    if !names_bandwidth && update.cpu_shares.is_none() && update.cpuset_cpus.is_none() {
        return Ok(None);
    }
    let mut builder = LinuxCpuBuilder::default();
    if names_bandwidth {
        let (quota, period) = bandwidth(record, update)?;
        builder = builder.quota(quota).period(period);
    }
    if let Some(shares) = update.cpu_shares {
        builder = builder.shares(shares);
    }
    if let Some(cpus) = &update.cpuset_cpus {
        builder = builder.cpus(cpus.clone());
    }
    builder
        .build()
        .map(Some)
        .map_err(|error| unbuildable(&error))
}

/// Quota and period travel together, so what one of them leaves open comes from the record: the value
/// set before, else the whole of its processors.
fn bandwidth(
    record: &BoxRecord,
    update: &ExecutionResourceUpdate,
) -> ExecutionManagerResult<(i64, u64)> {
    let limits = &record.resource_limits;
    let period = update
        .cpu_period
        .or(limits.cpu_period)
        .unwrap_or(DEFAULT_CPU_PERIOD);
    if let Some(quota) = update.cpu_quota.or(limits.cpu_quota) {
        return Ok((quota, period));
    }
    let metadata = record
        .managed_execution
        .as_ref()
        .ok_or_else(|| internal(format!("execution {} has no managed metadata", record.id)))?;
    let quota = u64::from(metadata.request.config.resources.vcpus)
        .checked_mul(period)
        .and_then(|quota| i64::try_from(quota).ok())
        .ok_or_else(|| invalid(format!("CPU period {period} is too long")))?;
    Ok((quota, period))
}

fn pids(update: &ExecutionResourceUpdate) -> ExecutionManagerResult<Option<LinuxPids>> {
    let Some(limit) = update.pids_limit else {
        return Ok(None);
    };
    let pids = LinuxPidsBuilder::default()
        .limit(signed("pids_limit", limit)?)
        .build();
    pids.map(Some).map_err(|error| unbuildable(&error))
}

fn signed(name: &str, value: u64) -> ExecutionManagerResult<i64> {
    i64::try_from(value).map_err(|_| invalid(format!("{name} {value} is too large")))
}

fn unbuildable(error: &OciSpecError) -> a3sbox_core::ExecutionManagerError {
    internal(format!("cannot build the resource update: {error}"))
}
