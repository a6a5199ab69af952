#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "test code: a panic is what it looks for"
)]
//! Fuzz targets, and a driver that needs nothing but a stable toolchain.
//!
//! A target is a function of bytes that returns, whatever they are; what must hold besides is asserted in it.
//! A driver with coverage feedback can call the same functions. The one here mutates inputs that are valid, which
//! is how deep places are reached without feedback: `hack/fuzz --seconds 60 frames`.

mod driver;
mod frames;
mod journal;
mod record;
mod spec;

pub use driver::{Limit, Report, run};

/// One thing to fuzz.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Valid inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub run: fn(&[u8]),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish()
    }
}

/// Every target.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "frames",
        seeds: frames::requests,
        run: frames::serve,
    },
    Target {
        name: "answers",
        seeds: frames::answers,
        run: frames::call,
    },
    Target {
        name: "record",
        seeds: record::seeds,
        run: record::load,
    },
    Target {
        name: "journal",
        seeds: journal::seeds,
        run: journal::open,
    },
    Target {
        name: "spec",
        seeds: spec::specs,
        run: spec::bundle,
    },
    Target {
        name: "annotations",
        seeds: spec::annotations,
        run: spec::annotation,
    },
];
