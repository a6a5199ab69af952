//! Task Checkpoint: the engine's CRIU image of a running container.

use containerd_shim_protos::api::{CheckpointTaskRequest, Empty};

use super::TaskService;
use crate::convert::{error, request};

impl TaskService {
    pub(super) async fn checkpoint_task(
        &self,
        request: &CheckpointTaskRequest,
    ) -> ttrpc::Result<Empty> {
        let checkpoint = request::checkpoint(request).map_err(|error| error::invalid(&error))?;
        self.manager
            .checkpoint(&self.key(&request.id), checkpoint)
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }
}
