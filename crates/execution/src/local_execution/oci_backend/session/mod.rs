//! Sessions: commands and terminals inside a running execution.
//!
//! A command's identity is its request id, so a repeat after a lost answer meets the process that the
//! first one started. Nothing is resent here; only the timeout repeats the identical exec, to be sure
//! that the process it is about to kill is its own.

mod command;
mod executable;
mod input;
mod launch;
mod output;
mod process;
mod watchdog;

use a3sbox_core::exec::{ExecRequest as BoxExecRequest, MAX_ONE_SHOT_OUTPUT_BYTES};
use a3sbox_core::pty::PtyRequest;
use a3sbox_core::{
    ExecChunk, ExecEvent, ExecOutput, ExecutionManagerResult, ExecutionProcess,
    ExecutionProcessStream, StreamType,
};

use self::command::SessionCommand;
use self::process::OciProcess;
use super::OciLocalExecutionBackend;
use super::error::internal;
use crate::BoxRecord;

/// How long a command's end may wait for the last of its standard input to be answered.
const STDIN_END_GRACE: std::time::Duration = std::time::Duration::from_secs(1);

impl OciLocalExecutionBackend {
    /// Runs a command to its end and keeps the head of each stream.
    pub(super) async fn execute_captured(
        &self,
        record: &BoxRecord,
        request: BoxExecRequest,
    ) -> ExecutionManagerResult<ExecOutput> {
        let command = SessionCommand::one_shot(request)?;
        let stdin = command.stdin.clone();
        let mut process = self.launch(record, command).await?;
        let input = process.oci_input();
        let feed = async move {
            match stdin {
                Some(data) => input.feed_once(&data).await,
                None => Ok(()),
            }
        };
        tokio::pin!(feed);
        let collect = collect(&mut process);
        tokio::pin!(collect);
        // A command may fill its output before it has read its input, so both go on together.
        tokio::select! {
            biased;
            fed = &mut feed => {
                fed?;
                collect.await
            }
            output = &mut collect => {
                let output = output?;
                if let Ok(fed) = tokio::time::timeout(STDIN_END_GRACE, feed).await {
                    fed?;
                }
                Ok(output)
            }
        }
    }

    pub(super) async fn start_streaming(
        &self,
        record: &BoxRecord,
        request: BoxExecRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        let command = SessionCommand::streaming(request)?;
        let stdin = command.stdin.clone();
        let keeps_stdin = command.keeps_stdin;
        let process = self.launch(record, command).await?;
        let input = process.oci_input();
        match stdin {
            Some(data) if keeps_stdin => input.feed(&data).await?,
            Some(data) => input.feed_once(&data).await?,
            None => {}
        }
        Ok(Box::new(process))
    }

    pub(super) async fn start_terminal(
        &self,
        record: &BoxRecord,
        request: PtyRequest,
    ) -> ExecutionManagerResult<ExecutionProcess> {
        let process = self
            .launch(record, SessionCommand::terminal(request)?)
            .await?;
        Ok(Box::new(process))
    }
}

async fn collect(process: &mut OciProcess) -> ExecutionManagerResult<ExecOutput> {
    let mut output = ExecOutput {
        stdout: Vec::new(),
        stderr: Vec::new(),
        exit_code: 0,
        truncated: false,
    };
    while let Some(event) = process.next_event().await? {
        match event {
            // The notice is the runtime's own word about the command: it is never cut off.
            ExecEvent::Chunk(notice) if process.has_timed_out() => {
                output.stderr.extend_from_slice(&notice.data);
            }
            ExecEvent::Chunk(chunk) => keep(&mut output, &chunk),
            ExecEvent::FlushAck => {}
            ExecEvent::Exit(exit) => {
                output.exit_code = exit.exit_code;
                return Ok(output);
            }
        }
    }
    Err(internal("a command's events ended without an exit"))
}

/// Appends what still fits; the rest is dropped and said to be.
fn keep(output: &mut ExecOutput, chunk: &ExecChunk) {
    let kept = match chunk.stream {
        StreamType::Stdout => &mut output.stdout,
        StreamType::Stderr => &mut output.stderr,
    };
    let room = MAX_ONE_SHOT_OUTPUT_BYTES.saturating_sub(kept.len());
    let fitting = room.min(chunk.data.len());
    kept.extend_from_slice(&chunk.data[..fitting]);
    output.truncated |= fitting < chunk.data.len();
}
