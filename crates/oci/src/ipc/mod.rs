//! The contract over one ordered byte stream, between processes of a host or between host and guest.
//!
//! # Frame
//!
//! ```text
//! 0        4        8            8 + J            8 + J + T
//! | J (be) | T (be) | J bytes JSON | T bytes binary |       1 <= J,  J + T <= 64 MiB
//! ```
//!
//! Bulk bytes (stdin, output, file content) are not in the JSON: they follow it as the binary tail, cut by
//! the message's `segments`, a list of lengths in the order of the fields that they belong to. Sizes are
//! checked before anything is allocated, and memory grows with what has arrived, not with what was announced.
//!
//! # Messages
//!
//! | from | message |
//! |---|---|
//! | client | `{"type":"hello","protocol_min":3,"protocol_max":4}`, once, first |
//! | server | `{"type":"welcome","protocol":N}` with the highest common version, or `{"type":"reject","error":E}` |
//! | client | `{"type":"request","protocol":N,"request_id":I,"request":{"operation":"kill","request":{..}},"segments":[..]}` |
//! | client | `{"type":"cancel","protocol":N,"request_id":I}`: nobody waits for this answer |
//! | server | `{"type":"response","protocol":N,"request_id":I,"result":R,"segments":[..]}` |
//!
//! `R` is `{"status":"ok","response":{"operation":"kill","response":{..}}}` or `{"status":"error","error":E}`.
//!
//! Request ids start at 1 and are not used again. Every request gets exactly one answer, in any order: a
//! `wait` blocks nobody. A cancel is a hint: reading calls end early, an effect that began is finished. A
//! second hello, a request before the hello, id 0, an id in flight, or a frame that is not a message ends the
//! connection; a request that is malformed inside its envelope gets an error as its answer.
//!
//! # Bounds (see `limits.rs`)
//!
//! Client and server keep the same bounds on calls and on waits in flight; a client that exceeds them is not
//! read from. The server holds a bounded number of request bytes, promises a bounded number of output bytes
//! (a read beyond it is given fewer bytes than it asked for, which the contract allows) and runs few calls
//! with large answers at a time. Answers have a bound by their verb on both sides, and the first frame of
//! either side a small one. A peer that stops reading or writing inside a frame is given up after
//! `STALL_DEADLINE`.

mod call;
mod client;
mod codec;
mod frame;
mod incoming;
mod link;
mod listener;
mod peer;
mod running;
mod server;

pub use client::RuntimeTransportClient;
pub use listener::LocalIpcListener;
pub use peer::{PeerCredentials, PeerPolicy};
pub use server::serve_transport_connection;

#[cfg(test)]
mod tests;
