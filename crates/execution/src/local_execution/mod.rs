//! The execution manager: durable claims around the effects of a backend, one verb per file.
//!
//! Every mutating verb checks the caller's generation, claims a transitional state durably, lets the
//! backend act outside any lock, and completes the claim durably before it answers. An effect that began
//! is finished by a task of its own when the caller hangs up. What a crash or an error leaves between claim
//! and completion is settled by looking at the backend (file `settle.rs`), from `reconcile`, `inspect` and the
//! verb itself.

pub mod backend;
pub mod oci_backend;
pub mod router;

mod active;
mod capture;
mod claims;
mod create;
mod decide;
mod evidence;
mod inspect;
mod kill;
mod logs;
mod manager;
mod observe;
mod owner;
mod pause;
mod reconcile;
mod record;
mod remove;
mod restart;
mod resume;
mod session;
mod settle;
mod snapshot;
mod span;
mod start;
mod update;
mod verbs;

#[cfg(test)]
mod router_tests;
#[cfg(test)]
mod tests;

pub use backend::{
    LocalExecutionBackend, LocalExecutionHandle, LocalExecutionObservation,
    LocalExecutionTermination,
};
pub use manager::LocalExecutionManager;
pub use router::{LocalExecutionBackendRouter, OciMigrationPolicy};

#[cfg_attr(
    not(test),
    expect(
        unused_imports,
        reason = "the suites below this module name it through the module"
    )
)]
pub(crate) use crate::store::RuntimeUpdate;
pub(crate) use capture::SnapshotSource;
#[cfg(test)]
pub(crate) use decide::{Recorded, Sight, decide};
pub(crate) use oci_backend::kill_signal;
pub(crate) use record::build_managed_record;
