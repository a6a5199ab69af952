#![forbid(unsafe_code)]
//! Doubles for the tests of this workspace; a dev-dependency only, and it sees `core` and `oci` alone,
//! so that a double can never drag in an implementation.
//!
//! - [`RecordingRuntime`]: a runtime service in memory that records every request and can be told to
//!   lose answers, drift, or hold processes.
//! - [`OwnerRuntime`]: a runtime service whose state is a file, for tests in which the process that
//!   serves it dies.

mod owner_runtime;
mod runtime;

pub use owner_runtime::OwnerRuntime;
pub use runtime::{
    ATTACHMENTS_DIGEST, CONFIG_DIGEST, GENERATION, Recorded, RecordingRuntime, RuntimeReport,
};
