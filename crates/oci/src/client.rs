//! The one way to call a runtime, wherever it runs.

use std::fmt;
use std::sync::Arc;

use crate::capability::{RuntimeInfo, RuntimeOperation};
use crate::endpoint::LocalIpcEndpoint;
use crate::error::Result;
use crate::ids::{ContainerTarget, OperationContext};
use crate::ipc::RuntimeTransportClient;
use crate::request::{DeleteMode, DeleteRequest, RunRequest, StartRequest, WaitRequest};
use crate::response::ExitStatus;
use crate::service::OciRuntimeService;
use crate::validate::ValidateRequest as _;
use crate::verbs::for_each_verb;

/// A handle on a runtime service. Cheap to clone; it checks each request and adds nothing else: no
/// cache, no retry, no reordering.
#[derive(Clone)]
pub struct RuntimeClient {
    service: Arc<dyn OciRuntimeService>,
}

impl fmt::Debug for RuntimeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeClient").finish_non_exhaustive()
    }
}

macro_rules! forward_verbs {
    ($($method:ident($request:ty) -> $answer:ty, $operation:ident;)*) => {
        impl RuntimeClient {
            $(
                #[doc = concat!("Checks the request, then [`OciRuntimeService::", stringify!($method), "`].")]
                pub async fn $method(&self, request: $request) -> Result<$answer> {
                    request
                        .validate()
                        .map_err(|error| error.for_operation(RuntimeOperation::$operation.label()))?;
                    self.service.$method(request).await
                }
            )*
        }
    };
}

for_each_verb!(forward_verbs);

impl RuntimeClient {
    /// A client of a service in this process.
    pub fn new(service: impl OciRuntimeService + 'static) -> Self {
        Self::from_arc(Arc::new(service))
    }

    /// A client of a shared service in this process.
    pub const fn from_arc(service: Arc<dyn OciRuntimeService>) -> Self {
        Self { service }
    }

    /// A client of a service behind a local socket. It opens exactly one stream; when that breaks, the next
    /// call opens another.
    pub async fn connect(endpoint: &LocalIpcEndpoint) -> Result<Self> {
        RuntimeTransportClient::connect(endpoint)
            .await
            .map(Self::new)
    }

    pub async fn features(&self) -> Result<RuntimeInfo> {
        self.service.features().await
    }

    /// Create, start, wait, and delete by force. A container that was created is deleted also when a
    /// later step fails; the first error is the one that is returned.
    pub async fn run(&self, request: RunRequest) -> Result<ExitStatus> {
        request
            .validate()
            .map_err(|error| error.for_operation("run"))?;
        let RunRequest {
            create,
            start_context,
            delete_context,
        } = request;
        let id = create.id.clone();
        let created = self.service.create(create).await?;
        let target = ContainerTarget::exact(id, created.generation);
        let outcome = self.start_and_wait(start_context, &target).await;
        let deleted = self
            .service
            .delete(DeleteRequest {
                context: delete_context,
                target,
                mode: DeleteMode::Force,
            })
            .await;
        let status = outcome?;
        deleted?;
        Ok(status)
    }

    async fn start_and_wait(
        &self,
        context: OperationContext,
        target: &ContainerTarget,
    ) -> Result<ExitStatus> {
        self.service
            .start(StartRequest {
                context,
                target: target.clone(),
            })
            .await?;
        self.service
            .wait(WaitRequest {
                target: target.clone(),
                timeout_ms: None,
            })
            .await
    }
}

#[cfg(test)]
mod tests;
