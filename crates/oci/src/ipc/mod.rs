//! The contract over one ordered byte stream.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::{Error, Result};
use crate::service::OciRuntimeService;

/// Serves one accepted stream until the peer closes it; a clean end of stream is `Ok`.
pub async fn serve_transport_connection<T>(service: Arc<dyn OciRuntimeService>, io: T) -> Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    drop((service, io));
    Err(Error::unsupported("serve"))
}
