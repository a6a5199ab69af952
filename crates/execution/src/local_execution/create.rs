//! Create: everything that can refuse comes before the one durable write.

use a3sbox_core::{
    CreateExecutionRequest, ExecutionId, ExecutionManagerResult, ExecutionReservation, OperationId,
};
use chrono::Utc;

use super::evidence::reservation;
use super::manager::LocalExecutionManager;
use super::record::build_managed_record;

impl LocalExecutionManager {
    pub(super) async fn create_execution(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionReservation> {
        let execution_id = ExecutionId::new(uuid::Uuid::new_v4().to_string())?;
        let mut record = build_managed_record(
            &self.home_dir,
            &execution_id,
            operation_id.clone(),
            request,
            Utc::now(),
        )?;
        if self.store.find_operation(operation_id)?.is_some() {
            // The backend may be away by now; the reservation stands, if the intent is the same.
            return reservation(self.reserve(record).await?.record());
        }
        let route = self.backend.route_for_create(&record)?;
        record.metadata_mut()?.runtime_route = route;
        self.backend.preflight(&record).await?;
        reservation(self.reserve(record).await?.record())
    }
}
