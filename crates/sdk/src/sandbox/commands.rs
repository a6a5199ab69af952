//! Running commands in a sandbox.

use std::sync::Arc;

use super::command::{CommandResult, CommandRunOptions, SandboxCommand};
use super::script::ScriptBuilder;
use super::shared::Shared;
use crate::client::Result;

/// Commands of one sandbox.
#[derive(Debug, Clone)]
pub struct Commands {
    shared: Arc<Shared>,
}

impl Commands {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub async fn run(&self, command: impl Into<SandboxCommand>) -> Result<CommandResult> {
        self.run_with_options(command, CommandRunOptions::default())
            .await
    }

    /// Runs one command to its end. It is not run again when the call fails.
    pub async fn run_with_options(
        &self,
        command: impl Into<SandboxCommand>,
        options: CommandRunOptions,
    ) -> Result<CommandResult> {
        let argv = command.into().into_argv()?;
        self.execute(argv, options).await
    }

    /// A script that is given to an interpreter on its standard input.
    pub fn script(&self, source: impl AsRef<[u8]>) -> ScriptBuilder {
        ScriptBuilder::new(self.clone(), source.as_ref().to_vec())
    }

    pub(super) async fn execute(
        &self,
        argv: Vec<String>,
        options: CommandRunOptions,
    ) -> Result<CommandResult> {
        let request = options.into_request(argv)?;
        let generation = self.shared.running("a command")?;
        let output = self
            .shared
            .client
            .execute_execution(&self.shared.execution_id, generation, request)
            .await?;
        Ok(output.into())
    }
}
