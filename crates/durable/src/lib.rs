//! The one way a3sbox writes state.
//!
//! - [`record`]: replaces a file as a whole. After it returned, the new contents survive a crash; when it
//!   failed or was interrupted, the old contents are untouched.
//! - [`journal`]: an append-only file of checksummed lines. A line that a crash tore is cut off on open.
//! - [`mod@sweep`]: removes what interrupted replacements left behind.
//! - [`lock`]: advisory locks on files, for transactions and for ownership.
//!
//! Nothing here retries or hides an error: every step that can fail is named in [`DurableError`] together
//! with the path, and the caller decides.
#![forbid(unsafe_code)]

pub mod error;
pub mod folder;
pub mod journal;
pub mod lock;
pub mod record;
pub mod sweep;

pub use error::{DurableError, DurableResult, Step};
pub use journal::{Journal, JournalLimits};
pub use lock::FileLock;
pub use record::{remove, replace};
pub use sweep::sweep;
