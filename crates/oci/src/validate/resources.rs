//! Limits of an update, as far as they cannot be right on any kernel.

use oci_spec::runtime::LinuxResources;

use super::refuse_nul;
use crate::error::{Error, Result};

/// The value that takes a memory limit away.
const UNLIMITED: i64 = -1;

pub(super) fn check_resources(resources: &LinuxResources) -> Result<()> {
    if let Some(memory) = resources.memory() {
        let limits = [
            ("limit", memory.limit()),
            ("reservation", memory.reservation()),
            ("swap", memory.swap()),
            ("kernel", memory.kernel()),
            ("kernelTCP", memory.kernel_tcp()),
        ];
        for (name, limit) in limits {
            if limit.is_some_and(|limit| limit < UNLIMITED) {
                return Err(Error::invalid(format!(
                    "memory {name} is below {UNLIMITED}"
                )));
            }
        }
    }
    if let Some(cpu) = resources.cpu() {
        for (name, set) in [("cpus", cpu.cpus()), ("mems", cpu.mems())] {
            if let Some(set) = set {
                check_cpu_set(name, set)?;
            }
        }
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        if limit.page_size().is_empty() || limit.page_size().contains(['/', '\0']) {
            return Err(Error::invalid(format!(
                "huge page size {:?} is malformed",
                limit.page_size()
            )));
        }
    }
    for device in resources.devices().iter().flatten() {
        if let Some(access) = device.access()
            && !access.chars().all(|c| matches!(c, 'r' | 'w' | 'm'))
        {
            return Err(Error::invalid(format!(
                "device access {access:?} has letters other than r, w and m"
            )));
        }
    }
    for (file, value) in resources.unified().iter().flatten() {
        // The key becomes a file name below the container's cgroup.
        if file.is_empty() || file.contains(['/', '\0']) {
            return Err(Error::invalid(format!(
                "unified key {file:?} is not a file name"
            )));
        }
        refuse_nul("unified value", value)?;
    }
    Ok(())
}

/// Lists of numbers and ranges, as in cpuset(7).
fn check_cpu_set(name: &str, set: &str) -> Result<()> {
    let well_formed = set
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, ',' | '-' | ' ' | '\n'));
    if well_formed {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "cpu {name} {set:?} is not a list of numbers and ranges"
        )))
    }
}
