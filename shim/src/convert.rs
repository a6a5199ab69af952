//! The only place that sees containerd's types beside ours, and the only one that knows the number 255.

pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod metrics;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod status;

use protobuf::well_known_types::any::Any;

/// A message in the `Any` that Go's typeurl makes: the bare name of the type, without a host.
pub(crate) fn any(type_name: &str, message: &impl protobuf::Message) -> Any {
    let mut any = Any::new();
    type_name.clone_into(&mut any.type_url);
    // Encoding into memory fails on a size above 2 GiB alone, which none of ours reaches.
    any.value = message.write_to_bytes().unwrap_or_default();
    any
}
