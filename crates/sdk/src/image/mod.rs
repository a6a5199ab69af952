//! The images of the local manager: OCI archives, imported by name, unpacked once.
//!
//! ```text
//! images/.lock                     one import at a time
//! images/.import-<uuid>/           an import under way; swept by the next one
//! images/names/<digest>.json       an imported image: its name, its config, which rootfs
//! images/rootfs/<chain id>/        the layers laid over each other, owned by the sandboxes' ids
//! ```
//!
//! A rootfs is named by what is in it (the OCI chain id), appears whole, by a rename, and is never changed:
//! sandboxes have it as the lower layer of an overlay. Everything in an archive is foreign: each blob is
//! checked against its digest, each layer against the one that the config states, and no name leads out of
//! the folder that is unpacked into.

mod archive;
mod document;
mod error;
mod layer;
mod name;
mod store;
mod tree;

pub(crate) use document::{ProcessDefaults, host_architecture};
pub use store::ImageSummary;
pub(crate) use store::{Image, ImageStore};
