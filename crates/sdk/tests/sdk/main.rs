//! The client library against a manager that records every call.

mod client;
mod commands;
mod creation;
mod events;
mod fake;
mod files;
mod handle;
mod logs;
mod networks;
mod volumes;
mod walks;
