//! Every bound of the shared vocabulary, in one place.

/// Longest filesystem snapshot id, in bytes; the shortest is one byte.
pub const MAX_SNAPSHOT_ID_BYTES: usize = 128;

/// Time given to a one-shot command that names none: five seconds.
pub const DEFAULT_EXEC_TIMEOUT_NS: u64 = 5_000_000_000;

/// Most bytes kept per stream of a one-shot command.
pub const MAX_ONE_SHOT_OUTPUT_BYTES: usize = 1024 * 1024;

/// Most bytes carried per stream of a streamed command.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// Most decoded bytes that a bounded file transfer may ask for: half of a 16 MiB frame.
pub const MAX_BOUNDED_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Largest payload of one terminal frame.
pub const MAX_FRAME_PAYLOAD: usize = 64 * 1024;

/// Most events in one answer.
pub const MAX_EXECUTION_EVENT_BATCH_ITEMS: u32 = 4096;

/// Longest name of a metric, in bytes.
pub const MAX_METRIC_NAME_BYTES: usize = 256;

/// Virtual CPUs of an execution that asks for none.
pub const DEFAULT_VCPUS: u32 = 2;

/// Most virtual CPUs of one execution.
pub const MAX_VCPUS: u32 = 255;

/// Highest CPU number that a cpuset may name: the kernel's own ceiling on x86-64 (`CONFIG_NR_CPUS`).
pub const MAX_CPU_NUMBER: u32 = 8191;

/// Smallest and largest value of `cpu_shares` that the kernel accepts.
pub const CPU_SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

/// Size at which a log file is rotated when its configuration names none.
pub const DEFAULT_LOG_MAX_SIZE_BYTES: u64 = 10 * 1024 * 1024;

/// Number of log files kept when the configuration names none.
pub const DEFAULT_LOG_MAX_FILES: u32 = 3;
