//! The client library against a manager that records every call.

#![expect(
    clippy::unwrap_used,
    reason = "a test's helper fails the test by panicking"
)]

mod client;
mod commands;
mod creation;
mod events;
mod fake;
mod files;
mod handle;
#[cfg(feature = "local")]
mod local;
mod logs;
mod networks;
mod volumes;
mod walks;
