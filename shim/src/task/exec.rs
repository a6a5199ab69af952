//! Task Exec: declares a process; Start runs it.

use containerd_shim_protos::api::{Empty, ExecProcessRequest};

use super::TaskService;
use crate::convert::{error, request};

impl TaskService {
    pub(super) async fn add_exec(&self, request: &ExecProcessRequest) -> ttrpc::Result<Empty> {
        let key = self.key(&request.id);
        // The owner of an exec's streams is the container's, which its record has.
        let container = self
            .manager
            .state(&key, None)
            .await
            .map_err(|error| error::status(&error))?;
        let (process, stdio) =
            request::exec(request, &container.stdio).map_err(|error| error::invalid(&error))?;
        self.manager
            .exec_add(&key, &request.exec_id, process, stdio)
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }
}
