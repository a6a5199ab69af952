//! Between the runtime's values and the task face's.

use a3sbox_oci::oci_spec::runtime::{LinuxNamespaceType, Process, Spec};
use a3sbox_oci::{ContainerRecord, ExitStatus, IoMode, ProcessIo, TerminalSize};

use crate::process::pid_start_time;
use crate::task::{TaskEnd, TaskError, TaskInit, TaskResult, instant};

/// A terminal for which nobody gave a size.
const DEFAULT_TERMINAL: TerminalSize = TerminalSize {
    width: 80,
    height: 24,
};
/// Added to a signal's number for an exit status.
const SIGNAL_EXIT_BASE: u32 = 128;

pub(super) fn init_of(container: &ContainerRecord) -> TaskInit {
    let pid = container
        .state
        .pid()
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid > 0);
    TaskInit {
        pid,
        pid_start_time: pid.and_then(pid_start_time),
    }
}

pub(super) fn end_of(status: &ExitStatus) -> TaskResult<TaskEnd> {
    let code = match (status.exit_code, status.signal) {
        (Some(code), None) => u32::try_from(code).ok(),
        (None, Some(signal)) => u32::try_from(signal)
            .ok()
            .and_then(|signal| signal.checked_add(SIGNAL_EXIT_BASE)),
        _ => None,
    };
    let status_code = code.ok_or_else(|| {
        TaskError::Internal(format!(
            "the runtime reported an impossible exit status {status:?}"
        ))
    })?;
    Ok(TaskEnd::Seen {
        status: status_code,
        oom_killed: status.oom_killed,
        exited_at: instant(status.exited_at_unix_ns),
    })
}

/// Streams with URIs are opened by the runtime; the modes say only whether there is a terminal.
pub(super) fn io_of(process: &Process, is_terminal: bool, size: Option<TerminalSize>) -> ProcessIo {
    let mode = if is_terminal {
        IoMode::Terminal
    } else {
        IoMode::Null
    };
    let console = process.console_size().and_then(|size| {
        let width = u16::try_from(size.width())
            .ok()
            .filter(|width| *width > 0)?;
        let height = u16::try_from(size.height())
            .ok()
            .filter(|height| *height > 0)?;
        Some(TerminalSize { width, height })
    });
    ProcessIo {
        stdin: mode,
        stdout: mode,
        stderr: mode,
        terminal_size: is_terminal.then(|| size.or(console).unwrap_or(DEFAULT_TERMINAL)),
    }
}

/// Without one, the container's processes outlive its init process.
pub(super) fn has_own_pid_namespace(spec: &Spec) -> bool {
    spec.linux()
        .as_ref()
        .and_then(|linux| linux.namespaces().as_ref())
        .is_some_and(|namespaces| {
            namespaces.iter().any(|namespace| {
                namespace.typ() == LinuxNamespaceType::Pid && namespace.path().is_none()
            })
        })
}
