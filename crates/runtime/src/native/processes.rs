//! The processes of a container: those that the service was asked to run, and all that there are.

use std::collections::HashMap;

use a3sbox_oci::{Error, ProcessId, ProcessRecord, RuntimePid};

use super::exec;
use crate::error::RuntimeError;
use crate::owner::Container;

/// Init and the added processes that run.
pub(crate) fn processes(container: &Container) -> Vec<ProcessRecord> {
    container
        .init()
        .map(|slot| (ProcessId::init(), slot))
        .into_iter()
        .chain(container.execs())
        .filter(|(_, slot)| !slot.has_ended())
        .map(|(id, slot)| exec::record(container, &id, &slot))
        .collect()
}

/// Every process in the container's cgroup.
pub(crate) fn pids(container: &Container) -> Result<Vec<RuntimePid>, Error> {
    let known: HashMap<u32, ProcessId> = processes(container)
        .into_iter()
        .filter_map(|process| Some((process.pid?, process.target.process_id)))
        .collect();
    let members = match container.cgroup() {
        Some(cgroup) => cgroup.pids().map_err(RuntimeError::from)?,
        None => known.keys().copied().collect(),
    };
    let mut pids: Vec<_> = members
        .into_iter()
        .map(|pid| RuntimePid {
            pid,
            process_id: known.get(&pid).cloned(),
        })
        .collect();
    pids.sort_by_key(|entry| entry.pid);
    Ok(pids)
}
