//! What a cgroup has counted, in the terms of the runtime contract.

use std::collections::BTreeMap;
use std::path::Path;

use a3sbox_oci::{CpuStats, IO_READ_BYTES_METRIC, IO_WRITE_BYTES_METRIC, MemoryStats};

use super::CgroupError;
use super::files::{self, Value};

/// Counters of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupStats {
    pub(crate) cpu: CpuStats,
    pub(crate) memory: MemoryStats,
    pub(crate) process_count: u64,
    /// The whole picture, flat, under the kernel's names.
    pub(crate) metrics: BTreeMap<String, u64>,
}

/// The flat picture while it is filled.
#[derive(Debug, Default)]
pub(super) struct Metrics(BTreeMap<String, u64>);

impl Metrics {
    pub(super) fn insert(&mut self, name: impl Into<String>, value: u64) {
        self.0.insert(name.into(), value);
    }

    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub(super) fn or_zero(&self, name: &str) -> u64 {
        self.get(name).unwrap_or(0)
    }

    /// One file with one number; `max` becomes the number given.
    pub(super) fn value(
        &mut self,
        folder: &Path,
        file: &str,
        name: &str,
        max: u64,
    ) -> Result<(), CgroupError> {
        match files::read_value(&folder.join(file))? {
            Some(Value::Number(number)) => self.insert(name, number),
            Some(Value::Max) => self.insert(name, max),
            None => {}
        }
        Ok(())
    }

    /// Every line of a file of `<key> <number>` lines.
    pub(super) fn flat(&mut self, folder: &Path, file: &str) -> Result<(), CgroupError> {
        if let Some(text) = files::read(&folder.join(file))? {
            for (key, value) in files::flat(&text) {
                self.insert(format!("{file}.{key}"), value);
            }
        }
        Ok(())
    }

    /// Finishes: bytes of block devices are summed under their common names.
    pub(super) fn finish(
        mut self,
        cpu: CpuStats,
        memory: MemoryStats,
        process_count: u64,
        io: (u64, u64),
    ) -> CgroupStats {
        self.insert(IO_READ_BYTES_METRIC, io.0);
        self.insert(IO_WRITE_BYTES_METRIC, io.1);
        CgroupStats {
            cpu: bounded(cpu),
            memory: MemoryStats {
                peak_bytes: memory.peak_bytes.map(|peak| peak.max(memory.usage_bytes)),
                ..memory
            },
            process_count,
            metrics: self.0,
        }
    }
}

/// The parts of the processor time are counted apart from the whole, in coarser units, and can exceed it by a
/// little; they are scaled to fit, in their proportion.
fn bounded(cpu: CpuStats) -> CpuStats {
    let parts = u128::from(cpu.user_ns) + u128::from(cpu.system_ns);
    if parts <= u128::from(cpu.usage_ns) {
        return cpu;
    }
    let user = u128::from(cpu.user_ns) * u128::from(cpu.usage_ns) / parts;
    let user_ns = u64::try_from(user).unwrap_or(cpu.usage_ns);
    CpuStats {
        user_ns,
        system_ns: cpu.usage_ns.saturating_sub(user_ns),
        ..cpu
    }
}
