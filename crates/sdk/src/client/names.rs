//! Names of volumes and networks: they become file names and parts of mount strings.

use super::error::{Result, invalid};

/// A file name on every filesystem that is in use.
const MAX_NAME_BYTES: usize = 255;

pub(super) fn check(what: &str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return invalid(format!("{what} name must not be blank"));
    }
    if name.len() > MAX_NAME_BYTES {
        return invalid(format!("{what} name has more than {MAX_NAME_BYTES} bytes"));
    }
    let odd = |c: char| matches!(c, '/' | '\\' | ':') || c.is_control();
    if name == "." || name == ".." || name.contains(odd) {
        return invalid(format!(
            "{what} name {name:?} must not be a path and has no '/', '\\', ':' or control character"
        ));
    }
    Ok(())
}
