//! The dialogue of `start`: who calls, in which form it reads the answer, and the answer itself.
//!
//! | caller | tells itself by | reads |
//! |---|---|---|
//! | containerd 1.6 | nothing but flags | the plain address |
//! | 1.7, 2.0 to 2.2 | `MAX_SHIM_VERSION` in the environment | JSON with a version |
//! | 2.3 and later | a protobuf `BootstrapParams` on stdin | a protobuf `BootstrapResult` |
//!
//! Two callers of the middle row differ in the highest version they take; version 2 suits both.

use std::path::{Path, PathBuf};

use containerd_shim_protos::bootstrap_api::{BootstrapParams, BootstrapResult};
use protobuf::Message;
use protobuf::well_known_types::any::Any;
use serde::Serialize;

mod door;
mod launch;

pub(crate) use door::{ClosedDoor, Door};
pub(crate) use launch::{READY, is_served, launch, remove_stale_socket};

/// Largest input of `start` that is read, containerd's own bound.
pub(crate) const INPUT_MAX_BYTES: u64 = 10 << 20;
/// Version of the task service that the protobuf answer names.
const TASK_VERSION: i32 = 3;
/// The JSON answer's: the highest that containerd 1.7 takes.
const JSON_VERSION: i32 = 2;

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    PlainAddress,
    Json,
    Protobuf,
}

/// What the environment of the process says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) max_shim_version: bool,
    pub(crate) ttrpc_address: String,
    pub(crate) sched_core: bool,
}

impl Environment {
    pub(crate) fn of_process() -> Self {
        Self {
            max_shim_version: std::env::var_os("MAX_SHIM_VERSION").is_some(),
            ttrpc_address: std::env::var("TTRPC_ADDRESS").unwrap_or_default(),
            sched_core: std::env::var_os("SCHED_CORE").is_some_and(|value| !value.is_empty()),
        }
    }
}

/// One call of `start`, whichever containerd made it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StartCall {
    pub(crate) form: AnswerForm,
    pub(crate) id: String,
    pub(crate) namespace: String,
    /// containerd's own socket; it tells one containerd of a node from another.
    pub(crate) address: String,
    pub(crate) ttrpc_address: String,
    pub(crate) socket_dir: Option<PathBuf>,
    pub(crate) debug: bool,
    pub(crate) sched_core: bool,
    /// Runtime options as they came.
    pub(crate) options: Option<Any>,
    pub(crate) bundle: PathBuf,
}

impl StartCall {
    /// Tells the caller from its input and environment. Input that is neither form is ignored, as every
    /// version of the stock shim of 1.x did for types it did not know.
    pub(crate) fn read(
        args: &crate::args::Args,
        bundle: &Path,
        input: &[u8],
        environment: &Environment,
    ) -> Self {
        let mut call = Self {
            form: if environment.max_shim_version {
                AnswerForm::Json
            } else {
                AnswerForm::PlainAddress
            },
            id: args.id.clone(),
            namespace: args.namespace.clone(),
            address: args.address.clone(),
            ttrpc_address: environment.ttrpc_address.clone(),
            socket_dir: None,
            debug: args.debug,
            sched_core: environment.sched_core,
            options: None,
            bundle: bundle.to_owned(),
        };
        if input.is_empty() {
            return call;
        }
        // Both messages begin with a string, so that each parses as the other: the flags decide.
        if let Ok(params) = BootstrapParams::parse_from_bytes(input)
            && params.instance_id == args.id
            && params.namespace == args.namespace
        {
            const LOG_LEVEL_DEBUG: i32 = -4;
            call.form = AnswerForm::Protobuf;
            call.debug |= params.log_level.value() <= LOG_LEVEL_DEBUG;
            if !params.containerd_grpc_address.is_empty() {
                call.address.clone_from(&params.containerd_grpc_address);
            }
            if !params.containerd_ttrpc_address.is_empty() {
                call.ttrpc_address
                    .clone_from(&params.containerd_ttrpc_address);
            }
            call.socket_dir = params
                .socket_dir
                .filter(|folder| !folder.is_empty())
                .map(PathBuf::from);
            call.options = params
                .extensions
                .into_iter()
                .filter_map(|extension| extension.value.into_option())
                .find(|value| value.type_url.ends_with(".Options"));
            return call;
        }
        if let Ok(options) = Any::parse_from_bytes(input)
            && !options.type_url.is_empty()
        {
            call.options = Some(options);
        }
        call
    }

    /// The answer that this caller understands, and nothing beside it.
    pub(crate) fn answer(&self, address: &str) -> Vec<u8> {
        #[derive(Serialize)]
        struct Json<'a> {
            version: i32,
            address: &'a str,
            protocol: &'static str,
        }
        match self.form {
            AnswerForm::PlainAddress => address.as_bytes().to_vec(),
            AnswerForm::Json => serde_json::json!(Json {
                version: JSON_VERSION,
                address,
                protocol: "ttrpc",
            })
            .to_string()
            .into_bytes(),
            AnswerForm::Protobuf => {
                let mut result = BootstrapResult::new();
                result.version = TASK_VERSION;
                address.clone_into(&mut result.address);
                "ttrpc".clone_into(&mut result.protocol);
                // Encoding into memory fails on a size above 2 GiB alone.
                result.write_to_bytes().unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests;
