//! Task Connect: the pids of shim and task. It also tells containerd that the shim is there, so that a
//! container which does not exist is no error.

use containerd_shim_protos::api::{ConnectRequest, ConnectResponse};

use super::TaskService;

impl TaskService {
    pub(super) async fn connect_task(
        &self,
        request: &ConnectRequest,
    ) -> ttrpc::Result<ConnectResponse> {
        let state = self.manager.state(&self.key(&request.id), None).await;
        let mut response = ConnectResponse::new();
        response.shim_pid = std::process::id();
        response.task_pid = state.map_or(0, |state| state.pid);
        Ok(response)
    }
}
