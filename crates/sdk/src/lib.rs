//! The client library of a3sbox.
//!
//! [`client`] speaks to an execution manager and keeps named volumes and networks; [`sandbox`] is the
//! handle that a program holds on one running sandbox. Requests, ids, generations and answers pass
//! through unchanged, and nothing is retried. Feature `local` (on by default) adds the manager that runs in
//! the client's own process: images from OCI archives, the native driver, runc. The README says what such a
//! sandbox is and where its limits are.
//!
//! ```no_run
//! # async fn example() -> a3sbox_sdk::Result<()> {
//! use a3sbox_core::ExecutionIsolation;
//!
//! let client = a3sbox_sdk::A3sBoxClient::from_home("/var/lib/a3sbox");
//! let image = client.import_image("busybox.tar").await?;
//! let sandbox = client.sandbox(&image.name).isolation(ExecutionIsolation::Sandbox).start().await?;
//! println!("{}", sandbox.commands.run("uname -a").await?.stdout);
//! sandbox.kill().await
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "local")]
mod image;
#[cfg(feature = "local")]
mod local;
pub mod sandbox;

pub use client::*;
#[cfg(feature = "local")]
pub use image::ImageSummary;
pub use sandbox::*;
