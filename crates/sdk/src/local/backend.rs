//! What the local manager runs on until there is an image store: nothing, and it says so.
//!
//! A request is refused in `preflight`, before anything is recorded. The other verbs can only meet a
//! record that another program left in the same folder.

use a3sbox_core::{ExecutionIsolation, ExecutionManagerError, ExecutionManagerResult, KillOutcome};
use a3sbox_execution::{
    BoxRecord, LocalExecutionBackend, LocalExecutionHandle, LocalExecutionObservation,
};
use async_trait::async_trait;

pub(super) struct MissingBackend;

#[async_trait]
impl LocalExecutionBackend for MissingBackend {
    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        missing(record)
    }

    async fn start(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        missing(record)
    }

    async fn inspect(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        missing(record)
    }

    async fn pause(
        &self,
        record: &BoxRecord,
        _keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        missing(record)
    }

    async fn resume(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        missing(record)
    }

    async fn kill(&self, record: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        missing(record)
    }
}

fn missing<T>(record: &BoxRecord) -> ExecutionManagerResult<T> {
    let reason = match record.isolation {
        ExecutionIsolation::Microvm => {
            "isolation microvm needs the microVM driver, which this version does not have"
        }
        ExecutionIsolation::Sandbox => {
            "isolation sandbox needs a local image store to make a root filesystem from, which this \
             version does not have; run containers through containerd instead"
        }
    };
    Err(ExecutionManagerError::Unavailable(reason.to_owned()))
}
