//! What is accepted, checked by the client before a request leaves and by the serving side before it is
//! acted on. Every failure is `InvalidArgument`. The checks are pure and cheap: only a create looks at its
//! configuration again.

mod files;
pub(crate) mod io;
mod process;
mod requests;
mod resources;
pub(crate) mod spec;

use crate::error::{Error, Result};

/// A request that can say whether it is well formed.
pub trait ValidateRequest {
    fn validate(&self) -> Result<()>;
}

fn refuse_nul(what: &str, text: &str) -> Result<()> {
    if text.as_bytes().contains(&0) {
        return Err(Error::invalid(format!("{what} contains a NUL byte")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
