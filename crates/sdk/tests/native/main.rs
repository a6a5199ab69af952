//! `from_home` on the real thing: an image archive, the native driver, runc. As root.
//!
//! A missing prerequisite fails the test and names itself; nothing is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod files;
mod images;
mod processes;
mod support;
mod walk;
