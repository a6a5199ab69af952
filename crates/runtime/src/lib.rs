//! The real runtime service: [`NativeRuntimeService`] implements the contract of `a3sbox-oci` with an OCI
//! engine (`runc` by default) on the node's kernel.
//!
//! ```text
//! OciRuntimeService ─► service ─► native/<verb> ─► engine: one process per verb
//!                                     │        ├─► reaper: exits by pidfd, orphans swept
//!                                     │        ├─► stdio: fifo, binary, file, terminal, capture
//!                                     │        └─► cgroup: pids, statistics, freezer, out of memory
//!                                     └─► owner: record and journal of each container, whose turn it is
//! ```
//!
//! A container's folder is `<root>/<container id>/`: `record.json` says what was asked for, `journal.log`
//! what became of it. A later process reads both and goes on; see [`NativeRuntimeService::open`].

mod config;
mod error;
mod events;
mod journal;
mod native;
mod owner;
mod service;
mod stdio;
mod sys;

pub use config::RuntimeConfig;
pub use native::reaper::SpawnHold;
pub use service::NativeRuntimeService;
pub use sys::{become_subreaper, is_subreaper};
