//! The client library of a3sbox.
//!
//! [`client`] speaks to an execution manager and keeps named volumes and networks; [`sandbox`] is the
//! handle that a program holds on one running sandbox. Requests, ids, generations and answers pass
//! through unchanged, and nothing is retried. Feature `local` (on by default) adds the manager that runs in
//! the client's own process.

#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "local")]
mod local;
pub mod sandbox;

pub use client::*;
pub use sandbox::*;
