//! Task Update: new resource limits for a container that exists.

use containerd_shim_protos::api::{Empty, UpdateTaskRequest};

use super::TaskService;
use crate::convert::{error, request};

impl TaskService {
    pub(super) async fn update_task(&self, request: &UpdateTaskRequest) -> ttrpc::Result<Empty> {
        let resources = request::resources(request.resources.as_ref())
            .map_err(|error| error::invalid(&error))?;
        self.manager
            .update(&self.key(&request.id), resources)
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }
}
