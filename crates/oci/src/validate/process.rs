//! The process of a configuration or of an exec.

use oci_spec::runtime::Process;

use super::refuse_nul;
use crate::error::{Error, Result};

/// What every process needs: a command, an absolute working directory, and no NUL.
pub(super) fn check_process(process: &Process) -> Result<()> {
    let args = process.args().as_deref().unwrap_or_default();
    let Some(command) = args.first() else {
        return Err(Error::invalid("process has no arguments"));
    };
    if command.is_empty() {
        return Err(Error::invalid("process has an empty command"));
    }
    for arg in args {
        refuse_nul("process argument", arg)?;
    }
    let cwd = process.cwd();
    if !cwd.has_root() {
        return Err(Error::invalid(format!(
            "process working directory {} is not absolute",
            cwd.display()
        )));
    }
    if cwd.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Error::invalid(
            "process working directory contains a NUL byte",
        ));
    }
    for variable in process.env().iter().flatten() {
        refuse_nul("process environment", variable)?;
    }
    Ok(())
}

/// An exec is built by a program of ours, so its environment is held to `NAME=VALUE`. Values are not
/// named in the error: they may be secret.
pub(super) fn check_environment(process: &Process) -> Result<()> {
    for (index, variable) in process.env().iter().flatten().enumerate() {
        match variable.split_once('=') {
            Some((name, _)) if !name.is_empty() => {}
            _ => {
                return Err(Error::invalid(format!(
                    "process environment entry {index} is not NAME=VALUE"
                )));
            }
        }
    }
    Ok(())
}
