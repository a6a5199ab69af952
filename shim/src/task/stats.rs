//! Task Stats: the cgroup's figures as the metrics message of this host's cgroup version.

use containerd_shim_protos::api::{StatsRequest, StatsResponse};

use super::TaskService;
use crate::convert::{error, metrics};

impl TaskService {
    pub(super) async fn read_stats(&self, request: &StatsRequest) -> ttrpc::Result<StatsResponse> {
        let stats = self
            .manager
            .stats(&self.key(&request.id))
            .await
            .map_err(|error| error::status(&error))?;
        let mut response = StatsResponse::new();
        response.stats = Some(metrics::metrics(&stats)).into();
        Ok(response)
    }
}
