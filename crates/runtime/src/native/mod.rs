//! The native driver: one verb per file, on an OCI engine's command line.

pub(crate) mod adopt;
pub(crate) mod bundle;
pub(crate) mod cgroup;
pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod engine;
pub(crate) mod exec;
pub(crate) mod exit;
pub(crate) mod features;
pub(crate) mod files;
pub(crate) mod hooks;
pub(crate) mod identity;
pub(crate) mod kill;
pub(crate) mod leftover;
pub(crate) mod oom;
pub(crate) mod pause;
pub(crate) mod processes;
pub(crate) mod reaper;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod update;
pub(crate) mod wanted;

use std::future::Future;
use std::sync::Arc;

use a3sbox_oci::{Error, ErrorCode};

use crate::config::RuntimeConfig;
use crate::events::EventLog;
use crate::owner::Registry;

/// What all verbs of one service share.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) config: RuntimeConfig,
    pub(crate) registry: Registry,
    pub(crate) events: Arc<EventLog>,
    pub(crate) boot_id: String,
}

/// Runs a verb to its end, also when the caller hangs up: an effect that began is recorded.
pub(crate) async fn to_the_end<T: Send + 'static>(
    verb: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(verb).await {
        Ok(result) => result,
        Err(error) => Err(Error::new(
            ErrorCode::Internal,
            format!("a runtime verb did not end: {error}"),
        )),
    }
}
