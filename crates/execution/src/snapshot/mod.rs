//! Filesystem snapshots on this host: published folders with a manifest each.

mod copy;
mod error;
mod store;

pub use error::{SnapshotError, SnapshotResult};
pub use store::SnapshotStore;
