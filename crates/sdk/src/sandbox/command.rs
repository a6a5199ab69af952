//! A command, its options and its result.

use std::collections::BTreeMap;
use std::time::Duration;

use a3sbox_core::{ExecOutput, ExecRequest};
use uuid::Uuid;

use super::validate;
use crate::client::{Result, invalid};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxCommand {
    /// A line for `/bin/sh -lc`.
    Shell(String),
    /// A program and its arguments, as they are.
    Argv(Vec<String>),
}

impl SandboxCommand {
    pub fn shell(command: impl Into<String>) -> Self {
        Self::Shell(command.into())
    }

    pub fn argv<I>(argv: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self::Argv(argv.into_iter().map(Into::into).collect())
    }

    pub(super) fn into_argv(self) -> Result<Vec<String>> {
        match self {
            Self::Shell(command) if command.trim().is_empty() => {
                invalid("shell command must not be blank")
            }
            Self::Shell(command) => Ok(vec!["/bin/sh".to_owned(), "-lc".to_owned(), command]),
            Self::Argv(argv) => {
                validate::argv("command", &argv)?;
                Ok(argv)
            }
        }
    }
}

impl From<&str> for SandboxCommand {
    fn from(command: &str) -> Self {
        Self::Shell(command.to_owned())
    }
}

impl From<String> for SandboxCommand {
    fn from(command: String) -> Self {
        Self::Shell(command)
    }
}

impl From<Vec<String>> for SandboxCommand {
    fn from(argv: Vec<String>) -> Self {
        Self::Argv(argv)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandRunOptions {
    /// The backend's own when none; not zero.
    pub timeout: Option<Duration>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
    /// `root`, `1000` or `1000:1000`.
    pub user: Option<String>,
    pub stdin: Option<Vec<u8>>,
}

impl CommandRunOptions {
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.envs.insert(key.into(), value.into());
        self
    }

    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// The request for one run of `argv`, under an id of its own.
    pub(super) fn into_request(self, argv: Vec<String>) -> Result<ExecRequest> {
        for key in self.envs.keys() {
            validate::env_key(key)?;
        }
        let timeout_ns = match self.timeout {
            None => 0,
            Some(Duration::ZERO) => return invalid("command timeout must be greater than 0"),
            Some(timeout) => u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        Ok(ExecRequest {
            request_id: Some(format!("sdk-command-{}", Uuid::new_v4())),
            cmd: argv,
            timeout_ns,
            env: self
                .envs
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
            working_dir: self.cwd,
            rootfs: None,
            stdin: self.stdin,
            stdin_streaming: false,
            user: self.user,
            streaming: false,
        })
    }
}

/// How a command ended. A failure of the command is a result, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// As UTF-8; what is none is replaced.
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    /// Output above the backend's bound was dropped.
    pub truncated: bool,
}

impl From<ExecOutput> for CommandResult {
    fn from(output: ExecOutput) -> Self {
        Self {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            exit_code: output.exit_code,
            truncated: output.truncated,
        }
    }
}
