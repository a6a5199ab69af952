//! Task Pids: every process of the container.

use containerd_shim_protos::api::{PidsRequest, PidsResponse};

use super::TaskService;
use crate::convert::{error, response};

impl TaskService {
    pub(super) async fn list_pids(&self, request: &PidsRequest) -> ttrpc::Result<PidsResponse> {
        let pids = self
            .manager
            .pids(&self.key(&request.id))
            .await
            .map_err(|error| error::status(&error))?;
        Ok(response::pids(pids))
    }
}
