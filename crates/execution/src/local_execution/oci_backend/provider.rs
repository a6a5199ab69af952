//! Who turns a record into an OCI bundle, and takes it away again.

use a3sbox_core::ExecutionManagerResult;
use async_trait::async_trait;

use super::{OciBundlePreparationContext, OciPreparedExecution, OciRuntimeBinding};
use crate::BoxRecord;

/// Prepares bundles and follows the logs of what runs from them.
///
/// Every method may be called again for the same record and must then leave the same result. Errors
/// reach the manager's caller as they are.
#[async_trait]
pub trait OciBundleProvider: Send + Sync {
    /// Refuses, without an effect, what `prepare` could not honour.
    fn preflight(
        &self,
        record: &BoxRecord,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<()> {
        let _ = (record, context);
        Ok(())
    }

    /// Makes the bundle. Called at most once per start attempt, never when a runtime already exists.
    async fn prepare(
        &self,
        record: &BoxRecord,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution>;

    /// The container's output must reach its log from now on; called before the process is released.
    async fn ensure_log_projection(
        &self,
        record: &BoxRecord,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        let _ = (record, binding);
        Ok(())
    }

    /// The container ended and its owner saw it: everything it wrote must be in the log.
    async fn wait_log_projection_drained(
        &self,
        record: &BoxRecord,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        let _ = (record, binding);
        Ok(())
    }

    /// The container's owner was lost: the log ends where it ends.
    async fn wait_log_projection_stopped_after_owner_loss(
        &self,
        record: &BoxRecord,
        binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        let _ = (record, binding);
        Ok(())
    }

    /// Takes away what `prepare` made. No runtime uses it any more.
    async fn cleanup(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let _ = record;
        Ok(())
    }
}
