//! The durable, generation-fenced execution manager and its backends.
//!
//! [`LocalExecutionManager`] implements the contract's traits of `a3sbox-core` and the task face
//! ([`task::TaskManager`]) on records that survive a crash. What runs an execution is a
//! [`LocalExecutionBackend`]; the one of this crate speaks to an OCI runtime service.

#![forbid(unsafe_code)]

pub mod local_execution;
pub mod process;
pub mod snapshot;
pub mod store;
pub mod task;

pub use local_execution::oci_backend::{
    OCI_RUNTIME_BINDING_SCHEMA_VERSION, OciBundlePreparationContext, OciBundleProvider,
    OciLocalExecutionBackend, OciPreparedExecution, OciRuntimeBinding,
};
pub use local_execution::{
    LocalExecutionBackend, LocalExecutionBackendRouter, LocalExecutionHandle,
    LocalExecutionManager, LocalExecutionObservation, LocalExecutionTermination,
    OciMigrationPolicy,
};
pub use snapshot::SnapshotStore;
pub use store::{
    BoxRecord, BoxStateStore, GenerationStep, ManagedExecutionMetadata, ManagedExecutionOperation,
    ManagedExecutionReservation, ManagedExecutionState, ManagedExecutionStore,
    ManagedResourceUpdateCompletion, ManagedRestartCompletion, ManagedRuntimeRoute, OwnerLock,
    Ownership, RuntimeUpdate, StoreError,
};
