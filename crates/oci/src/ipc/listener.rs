//! A listening Unix socket that serves a runtime to the users that may call it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::peer::{PeerCredentials, PeerPolicy};
use super::server::serve_transport_connection;
use crate::endpoint::LocalIpcEndpoint;
use crate::error::{Error, Result};
use crate::limits::MAX_CONNECTIONS;
use crate::service::OciRuntimeService;

/// Only the owner may connect; the credentials of each peer are checked as well.
const SOCKET_MODE: u32 = 0o600;

/// A bound socket. Its file stays when the listener ends, as an address that refuses.
#[derive(Debug)]
pub struct LocalIpcListener {
    listener: UnixListener,
    path: PathBuf,
    policy: PeerPolicy,
    own_uid: u32,
}

impl LocalIpcListener {
    /// Binds the socket of an endpoint. The file of a listener that is gone is replaced; one that still
    /// accepts is left alone, and the error is `Unavailable`. The caller makes sure that nobody else binds
    /// the same path at the same time.
    pub async fn bind(endpoint: &LocalIpcEndpoint, policy: PeerPolicy) -> Result<Self> {
        let path = endpoint
            .as_unix_socket()
            .ok_or_else(|| Error::unavailable("named pipes do not exist on this platform"))?;
        let failed = |error: io::Error| {
            Error::unavailable(format!("cannot bind {}: {error}", path.display()))
        };
        let own_uid = PeerCredentials::own()?.uid;
        remove_stale(path).await.map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))
            .map_err(failed)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            policy,
            own_uid,
        })
    }

    /// Serves every admitted connection. Ends with an error when the socket fails; dropping the future
    /// ends all connections.
    pub async fn serve(self, service: Arc<dyn OciRuntimeService>) -> Result<()> {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return Err(Error::internal("the bound on connections was closed"));
            };
            let (stream, _) = self.listener.accept().await.map_err(|error| {
                Error::unavailable(format!("cannot accept on {}: {error}", self.path.display()))
            })?;
            while connections.try_join_next().is_some() {}
            if let Err(error) = self.admit(&stream) {
                tracing::warn!(%error, socket = %self.path.display(), "refused a connection");
                continue;
            }
            let service = Arc::clone(&service);
            connections.spawn(async move {
                let _place = place;
                if let Err(error) = serve_transport_connection(service, stream).await {
                    tracing::debug!(%error, "runtime connection ended");
                }
            });
        }
    }

    fn admit(&self, stream: &UnixStream) -> Result<()> {
        self.policy
            .check(PeerCredentials::of(stream)?, self.own_uid)
    }
}

/// Removes a socket file that refuses connections.
async fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
