//! `-info`: what this runtime is, for `ctr info` and for containerd's check of features.

use containerd_shim_protos::types::introspection::{RuntimeInfo, RuntimeVersion};
use protobuf::Message;
use protobuf::well_known_types::any::Any;

use crate::engine;
use crate::logging::chain;
use crate::options::{self, RuntimeOptions};
use crate::policy::{self, Policy};

/// Name under which containerds know this runtime.
pub(crate) const RUNTIME_NAME: &str = "io.containerd.a3sbox.v2";
/// Type of the features document of OCI runtimes, as containerd's typeurl registers it.
const FEATURES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";
/// Engine when the options name none.
const DEFAULT_ENGINE: &str = "runc";

/// The answer to the options that came on stdin: an encoded `RuntimeInfo`.
pub(crate) fn info(input: &[u8]) -> Result<Vec<u8>, String> {
    let sent = match Any::parse_from_bytes(input) {
        Ok(any) if !any.type_url.is_empty() => Some(any),
        Ok(_) => None,
        Err(error) => return Err(format!("malformed runtime options: {error}")),
    };
    let options = match &sent {
        Some(any) => options::parse(&any.type_url, &any.value).map_err(|error| chain(&error))?,
        None => RuntimeOptions::None,
    };
    let policy = Policy::load(&policy::base_path(), &options).map_err(|error| chain(&error))?;
    let binary = policy.runc.binary_name.as_deref().unwrap_or(DEFAULT_ENGINE);

    let mut version = RuntimeVersion::new();
    env!("CARGO_PKG_VERSION").clone_into(&mut version.version);
    let mut info = RuntimeInfo::new();
    RUNTIME_NAME.clone_into(&mut info.name);
    info.version = Some(version).into();
    info.options = sent.into();
    if let Some(features) = engine::features(binary) {
        let mut any = Any::new();
        FEATURES_TYPE.clone_into(&mut any.type_url);
        any.value = features;
        info.features = Some(any).into();
    }
    info.write_to_bytes().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_the_runtime_and_gives_the_options_back() {
        let mut any = Any::new();
        any.type_url = "containerd.runc.v1.Options".into();
        let answer = info(&any.write_to_bytes().unwrap()).unwrap();
        let info = RuntimeInfo::parse_from_bytes(&answer).unwrap();
        assert_eq!(info.name, RUNTIME_NAME);
        assert_eq!(info.version.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(info.options.type_url, any.type_url);
    }

    #[test]
    fn unknown_options_are_refused() {
        let mut any = Any::new();
        any.type_url = "example.Options".into();
        assert!(info(&any.write_to_bytes().unwrap()).is_err());
    }
}
