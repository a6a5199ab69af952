//! Task State: what is recorded of one process.

use containerd_shim_protos::api::{StateRequest, StateResponse};

use super::TaskService;
use crate::convert::request::process;
use crate::convert::{error, response};

impl TaskService {
    pub(super) async fn state_of(&self, request: &StateRequest) -> ttrpc::Result<StateResponse> {
        let exec_id = process(&request.exec_id);
        let state = self
            .manager
            .state(&self.key(&request.id), exec_id)
            .await
            .map_err(|error| error::status(&error))?;
        Ok(response::state(exec_id.unwrap_or(&request.id), state))
    }
}
