//! Task Delete: takes an ended process, or the whole container, away.

use containerd_shim_protos::api::{DeleteRequest, DeleteResponse};

use super::TaskService;
use crate::convert::request::process;
use crate::convert::{error, response};

impl TaskService {
    pub(super) async fn delete_process(
        &self,
        request: &DeleteRequest,
    ) -> ttrpc::Result<DeleteResponse> {
        let deleted = self
            .manager
            .delete(&self.key(&request.id), process(&request.exec_id))
            .await
            .map_err(|error| error::status(&error))?;
        let unknown = deleted
            .exit
            .as_ref()
            .and_then(|exit| exit.unknown_because.as_deref());
        if let Some(reason) = unknown {
            tracing::warn!(reason, "the exit status is unknown and is told as 255");
        }
        Ok(response::deleted(&deleted))
    }
}
