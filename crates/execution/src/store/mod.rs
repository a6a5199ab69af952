//! Durable records of executions: one folder each, replaced as a whole, changed by compare-and-set.

mod box_state;
mod error;
mod index;
mod layout;
mod managed;
mod name;
mod operation;
mod record;
mod schema;
mod state;
mod update;

#[cfg(test)]
pub(crate) mod test_fixture;

pub use box_state::BoxStateStore;
pub use error::{StoreError, StoreResult};
pub use managed::{ManagedExecutionReservation, ManagedExecutionStore, OwnerLock, Ownership};
pub use operation::{
    ManagedExecutionOperation, ManagedResourceUpdateCompletion, ManagedRestartCompletion,
};
pub use record::{BoxRecord, ManagedExecutionMetadata, ManagedRuntimeRoute};
pub use state::{GenerationStep, IllegalTransition, ManagedExecutionState, UnknownStatus};
pub use update::RuntimeUpdate;

pub(crate) use error::{error_chain, with_remedy};
pub(crate) use name::folder_name;
pub(crate) use update::merge_resource_update;
