//! Task Shutdown: ends the shim when it serves nobody; a no-op otherwise, as in the stock shim.

use containerd_shim_protos::api::Empty;

use super::TaskService;

impl TaskService {
    pub(super) async fn shut_down(&self) -> ttrpc::Result<Empty> {
        if self.manager.live() == 0 && !self.lifecycle.is_creating() {
            self.lifecycle.try_end();
        }
        Ok(Empty::new())
    }
}
