//! How the standard streams of a process are attached.

use serde::{Deserialize, Serialize};

/// Where one standard stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum IoMode {
    /// The null device.
    Null,
    /// Whatever the runtime was given for it, for example by an attachment extension.
    Inherit,
    /// A pipe that `write_stdin` feeds.
    Pipe,
    /// Kept by the runtime for `read_output`.
    Capture,
    /// The process's pseudo-terminal.
    Terminal,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TerminalSize {
    pub width: u16,
    pub height: u16,
}

/// The standard streams of one process. `terminal` of the process, all three modes `Terminal` and a
/// size go together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIo {
    pub stdin: IoMode,
    pub stdout: IoMode,
    pub stderr: IoMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_size: Option<TerminalSize>,
}

impl Default for ProcessIo {
    fn default() -> Self {
        Self {
            stdin: IoMode::Null,
            stdout: IoMode::Capture,
            stderr: IoMode::Capture,
            terminal_size: None,
        }
    }
}

impl ProcessIo {
    /// All three streams on a pseudo-terminal of this size.
    pub const fn terminal(size: TerminalSize) -> Self {
        Self {
            stdin: IoMode::Terminal,
            stdout: IoMode::Terminal,
            stderr: IoMode::Terminal,
            terminal_size: Some(size),
        }
    }
}
