//! Standard streams.

use super::refuse_nul;
use crate::error::{Error, Result};
use crate::extension::StdioUris;
use crate::limits::MAX_STDIO_URI_BYTES;
use crate::request::{IoMode, ProcessIo, TerminalSize};

/// A terminal process has all three modes `Terminal` and a size; any other has none of that.
pub(crate) fn check_process_io(io: &ProcessIo, terminal: bool) -> Result<()> {
    let modes = [io.stdin, io.stdout, io.stderr];
    let on_terminal = modes
        .iter()
        .filter(|mode| **mode == IoMode::Terminal)
        .count();
    if terminal {
        if on_terminal != modes.len() {
            return Err(Error::invalid(
                "a terminal process needs mode terminal on all three streams",
            ));
        }
        let size = io
            .terminal_size
            .ok_or_else(|| Error::invalid("a terminal process needs a terminal size"))?;
        return check_terminal_size(size);
    }
    if on_terminal != 0 {
        return Err(Error::invalid(
            "mode terminal needs a process with a terminal",
        ));
    }
    if io.terminal_size.is_some() {
        return Err(Error::invalid(
            "a terminal size needs a process with a terminal",
        ));
    }
    Ok(())
}

pub(super) fn check_terminal_size(size: TerminalSize) -> Result<()> {
    if size.width == 0 || size.height == 0 {
        return Err(Error::invalid(format!(
            "terminal size {}x{} has a zero",
            size.width, size.height
        )));
    }
    Ok(())
}

pub(super) fn check_stdio(stdio: &StdioUris, terminal: bool) -> Result<()> {
    if stdio.terminal != terminal {
        return Err(Error::invalid(
            "the streams and the process disagree about the terminal",
        ));
    }
    let streams = [
        ("stdin", &stdio.stdin),
        ("stdout", &stdio.stdout),
        ("stderr", &stdio.stderr),
    ];
    for (name, uri) in streams {
        let Some(uri) = uri else { continue };
        if uri.is_empty() || uri.len() > MAX_STDIO_URI_BYTES {
            return Err(Error::invalid(format!(
                "{name} must have 1 to {MAX_STDIO_URI_BYTES} bytes"
            )));
        }
        refuse_nul(name, uri)?;
    }
    Ok(())
}
