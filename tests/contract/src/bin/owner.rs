//! Serves the native runtime on a socket: `a3sbox-contract-owner ROOT SOCKET`.

use std::error::Error;
use std::path::PathBuf;

use a3sbox_oci::{LocalIpcEndpoint, LocalIpcListener, PeerPolicy};
use a3sbox_runtime::{NativeRuntimeService, RuntimeConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(socket)) = (arguments.next(), arguments.next()) else {
        return Err("usage: a3sbox-contract-owner ROOT SOCKET".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut config = RuntimeConfig::new(root);
        config.sweep_orphans = true;
        // Containers are adopted before anybody can ask for one.
        let service = NativeRuntimeService::open(config).await?;
        let endpoint = LocalIpcEndpoint::unix_socket(socket)?;
        let listener = LocalIpcListener::bind(&endpoint, PeerPolicy::SameUser).await?;
        listener.serve(service).await?;
        Ok(())
    })
}
