//! Statistics of a container, read when they are asked for.

use std::time::{SystemTime, UNIX_EPOCH};

use a3sbox_oci::{ContainerStats, Error, ErrorCode};

use crate::error::RuntimeError;
use crate::owner::Container;

/// Reads what the kernel has counted. The cost does not depend on the number of containers.
pub(crate) fn stats(container: &Container) -> Result<ContainerStats, Error> {
    let cgroup = container.cgroup().ok_or_else(|| {
        Error::new(
            ErrorCode::FailedPrecondition,
            format!("container {} has no cgroup of its own", container.id()),
        )
    })?;
    let counted = cgroup.stats().map_err(RuntimeError::from)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(ContainerStats {
        target: container.target(),
        timestamp_unix_ns: now
            .ok()
            .and_then(|now| u64::try_from(now.as_nanos()).ok())
            .unwrap_or(1),
        cpu: counted.cpu,
        memory: counted.memory,
        process_count: counted.process_count,
        metrics: counted.metrics,
    })
}
