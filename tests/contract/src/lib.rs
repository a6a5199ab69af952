#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "test code: what does not hold ends the test"
)]
//! The execution contract on the real runtime service, with `runc` and a busybox rootfs.
//!
//! ```text
//! suite ─► LocalExecutionManager ─► OciLocalExecutionBackend ─► Faulty ─┬► NativeRuntimeService, in process
//!                                                                       └► socket ─► owner process ─► the same
//! ```
//!
//! One suite, two places: [`for_each_behaviour`] names every case, and each test binary runs them in its own
//! place. What a case asserts is the effect: processes, cgroups, files that the container wrote. Answers that
//! are lost are lost by [`Faulty`], a decorator between backend and service; the service has no seam of its own.
//!
//! Prerequisites are root, `runc` in `PATH`, and a static busybox: `A3SBOX_TEST_BUSYBOX`, or what `hack/setup`
//! puts into its cache. A missing one fails the test with its name.

mod faults;
mod owner;
mod provider;
mod requests;
mod rootfs;
pub mod suite;
mod world;

pub use faults::{Faults, Faulty};
pub use owner::OwnerProcess;
pub use provider::{BusyboxProvider, Counts};
pub use requests::{command, kill_with, next, operation, request};
pub use world::{DEADLINE, Launched, World, eventually};
