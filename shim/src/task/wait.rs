//! Task Wait: answers when the process has ended, and always the same afterwards.

use containerd_shim_protos::api::{WaitRequest, WaitResponse};

use super::TaskService;
use crate::convert::request::process;
use crate::convert::{error, response};

impl TaskService {
    pub(super) async fn wait_process(&self, request: &WaitRequest) -> ttrpc::Result<WaitResponse> {
        let exit = self
            .manager
            .wait(&self.key(&request.id), process(&request.exec_id))
            .await
            .map_err(|error| error::status(&error))?;
        if let Some(reason) = &exit.unknown_because {
            tracing::warn!(
                reason = reason.as_str(),
                "the exit status is unknown and is told as 255"
            );
        }
        Ok(response::waited(&exit))
    }
}
