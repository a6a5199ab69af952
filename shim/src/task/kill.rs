//! Task Kill: delivers a signal.

use containerd_shim_protos::api::{Empty, KillRequest};

use super::TaskService;
use crate::convert::{error, request};

impl TaskService {
    pub(super) async fn kill_process(&self, request: &KillRequest) -> ttrpc::Result<Empty> {
        let signal = request::signal(request.signal).map_err(|error| error::invalid(&error))?;
        self.manager
            .signal(
                &self.key(&request.id),
                request::process(&request.exec_id),
                signal,
                request.all,
            )
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }
}
