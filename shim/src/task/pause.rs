//! Task Pause and Resume: the freezer of the container's cgroup.

use containerd_shim_protos::api::{Empty, PauseRequest, ResumeRequest};

use super::TaskService;
use crate::convert::error;

impl TaskService {
    pub(super) async fn pause_task(&self, request: &PauseRequest) -> ttrpc::Result<Empty> {
        self.manager
            .pause(&self.key(&request.id))
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }

    pub(super) async fn resume_task(&self, request: &ResumeRequest) -> ttrpc::Result<Empty> {
        self.manager
            .resume(&self.key(&request.id))
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }
}
