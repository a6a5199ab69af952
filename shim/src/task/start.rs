//! Task Start: of the init process, or of an exec that was added.

use containerd_shim_protos::api::{StartRequest, StartResponse};

use super::TaskService;
use crate::convert::error;
use crate::convert::request::process;

impl TaskService {
    pub(super) async fn start_process(
        &self,
        request: &StartRequest,
    ) -> ttrpc::Result<StartResponse> {
        let key = self.key(&request.id);
        let pid = match process(&request.exec_id) {
            None => self.manager.release(&key).await,
            Some(exec_id) => self.manager.exec_start(&key, exec_id).await,
        }
        .map_err(|error| error::status(&error))?;
        let mut response = StartResponse::new();
        response.pid = pid;
        Ok(response)
    }
}
