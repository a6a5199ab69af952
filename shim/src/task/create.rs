//! Task Create: options, policy, bundle, then the manager's `provision`.

use containerd_shim_protos::api::{CreateTaskRequest, CreateTaskResponse};
use ttrpc::{Code, Error, get_status};

use super::TaskService;
use crate::convert::{error, request};
use crate::options::{self, RuntimeOptions};
use crate::policy::{self, Policy};
use crate::{bundle, grouping};

impl TaskService {
    pub(super) async fn create_task(
        &self,
        request: CreateTaskRequest,
    ) -> ttrpc::Result<CreateTaskResponse> {
        // Everything that can be refused is refused here, before anything is recorded or mounted.
        let runtime_options = match request.options.as_ref() {
            Some(any) => options::parse(&any.type_url, &any.value)
                .map_err(|error| error::from_options(&error))?,
            None => RuntimeOptions::None,
        };
        let policy = Policy::load(&policy::base_path(), &runtime_options)
            .map_err(|error| error::from_policy(&error))?;
        if policy.state_root != self.state_root {
            return Err(Error::RpcStatus(get_status(
                Code::FAILED_PRECONDITION,
                format!(
                    "state_root {} of these options is not {} of the pod's shim",
                    policy.state_root.display(),
                    self.state_root.display()
                ),
            )));
        }
        let folder = std::path::Path::new(&request.bundle);
        let annotations =
            grouping::read_annotations(folder).map_err(|error| error::from_bundle(&error))?;
        let isolation = policy
            .isolation_for(&annotations)
            .map_err(|error| error::from_policy(&error))?;
        let provision = request::provision(
            &request,
            &request::CreateContext {
                namespace: &self.namespace,
                annotations: &annotations,
                isolation,
                runc: &policy.runc,
                default_engine_root: &self.engine_root,
            },
        )
        .map_err(|error| error::invalid(&error))?;
        bundle::leave_trace(folder, &self.state_root, &provision.engine)
            .map_err(|error| error::invalid(&error))?;
        let created = self
            .manager
            .provision(provision)
            .await
            .map_err(|error| error::status(&error))?;
        let mut response = CreateTaskResponse::new();
        response.pid = created.pid;
        Ok(response)
    }
}
