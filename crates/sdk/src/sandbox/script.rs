//! Scripts: a whole source on an interpreter's standard input, and nowhere else.

use std::time::Duration;

use super::command::{CommandResult, CommandRunOptions};
use super::commands::Commands;
use super::validate;
use crate::client::{Result, invalid};

/// A shell that stops at the first failure and reads its program from standard input.
const DEFAULT_INTERPRETER: [&str; 2] = ["/bin/sh", "-se"];

/// Builds one run of a script; nothing happens before [`ScriptBuilder::run`].
#[derive(Debug, Clone)]
pub struct ScriptBuilder {
    commands: Commands,
    source: Vec<u8>,
    interpreter: Vec<String>,
    options: CommandRunOptions,
}

impl ScriptBuilder {
    pub(super) fn new(commands: Commands, source: Vec<u8>) -> Self {
        Self {
            commands,
            source,
            interpreter: DEFAULT_INTERPRETER.map(str::to_owned).to_vec(),
            options: CommandRunOptions::default(),
        }
    }

    /// The interpreter and its arguments; it must read its program from standard input.
    #[must_use]
    pub fn interpreter<I>(mut self, argv: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.interpreter = argv.into_iter().map(Into::into).collect();
        self
    }

    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.timeout(timeout);
        self
    }

    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options = self.options.env(key, value);
        self
    }

    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.options = self.options.cwd(cwd);
        self
    }

    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.options = self.options.user(user);
        self
    }

    pub async fn run(self) -> Result<CommandResult> {
        if self.source.is_empty() {
            return invalid("script must not be empty");
        }
        validate::argv("interpreter", &self.interpreter)?;
        self.commands
            .execute(self.interpreter, self.options.stdin(self.source))
            .await
    }
}
