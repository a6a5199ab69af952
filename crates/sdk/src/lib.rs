//! The client library of a3sbox.
//!
//! [`client`] speaks to an execution manager and keeps named volumes and networks; [`sandbox`] is the
//! handle that a program holds on one running sandbox. Requests, ids, generations and answers pass
//! through unchanged, and nothing is retried.

#![forbid(unsafe_code)]

pub mod client;
pub mod sandbox;

pub use client::*;
pub use sandbox::*;
