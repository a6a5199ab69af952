//! The captured output of a process, read with one cursor over both streams, and then its exit.

use std::collections::VecDeque;
use std::time::Duration;

use a3sbox_core::{ExecChunk, ExecutionManagerResult, StreamType};
use a3sbox_oci::{
    ErrorCode, ExitStatus, OutputChunk, OutputStream, ProcessTarget, ReadOutputRequest,
    RuntimeClient, WaitProcessRequest,
};

use super::super::error::{internal, runtime_error};

/// Most bytes of one read.
const READ_BYTES: u32 = 1024 * 1024;
/// How long the runtime may hold a read that has nothing to give.
const READ_WAIT_MS: u64 = 250;
/// Sleep between two empty answers. The runtime need not wait at all, and a loop without a timer would
/// starve everything else on this thread.
const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(50);

/// Reads on demand only: nothing is asked of the runtime between two calls of [`Self::next`]. A call
/// that is dropped loses nothing, since the cursor moves with what was taken over.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    client: RuntimeClient,
    process: ProcessTarget,
    terminal: bool,
    cursor: u64,
    stdout_ended: bool,
    stderr_ended: bool,
    unread: VecDeque<ExecChunk>,
    exit: Option<ExitStatus>,
}

/// What comes next from a process.
#[derive(Debug)]
pub(super) enum Output {
    Chunk(ExecChunk),
    Exit(ExitStatus),
}

impl ProcessOutput {
    pub(super) fn new(client: RuntimeClient, process: ProcessTarget, terminal: bool) -> Self {
        Self {
            client,
            process,
            terminal,
            cursor: 0,
            stdout_ended: false,
            // A terminal has one stream.
            stderr_ended: terminal,
            unread: VecDeque::new(),
            exit: None,
        }
    }

    /// The next chunk, or the exit once every stream has ended. `is_over` says that the process's time
    /// is over: then an exit is not held up by a stream that some descendant keeps open.
    pub(super) async fn next(
        &mut self,
        is_over: impl Fn() -> bool + Send,
    ) -> ExecutionManagerResult<Output> {
        let mut pause = POLL_MIN;
        loop {
            if let Some(chunk) = self.unread.pop_front() {
                return Ok(Output::Chunk(chunk));
            }
            if !self.has_ended() && self.read().await? {
                pause = POLL_MIN;
                continue;
            }
            if self.exit.is_none() {
                self.exit = self.poll_exit().await?;
            }
            if let Some(exit) = &self.exit
                && (self.has_ended() || is_over())
            {
                return Ok(Output::Exit(exit.clone()));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    const fn has_ended(&self) -> bool {
        self.stdout_ended && self.stderr_ended
    }

    /// Takes over what the runtime has after the cursor; true when there was something.
    async fn read(&mut self) -> ExecutionManagerResult<bool> {
        let request = ReadOutputRequest {
            process: self.process.clone(),
            after_sequence: self.cursor,
            max_bytes: READ_BYTES,
            // Once the process has ended, streams that are still open are polled.
            wait_timeout_ms: Some(if self.exit.is_some() { 0 } else { READ_WAIT_MS }),
        };
        let chunks = self
            .client
            .read_output(request)
            .await
            .map_err(runtime_error)?;
        let took = !chunks.is_empty();
        for chunk in chunks {
            self.take(chunk)?;
        }
        Ok(took)
    }

    fn take(&mut self, chunk: OutputChunk) -> ExecutionManagerResult<()> {
        let (stream, ended) = match chunk.stream {
            OutputStream::Stdout => (StreamType::Stdout, &mut self.stdout_ended),
            OutputStream::Stderr => (StreamType::Stderr, &mut self.stderr_ended),
        };
        if *ended {
            return Err(internal(format!(
                "the runtime gave output of {} after the end of {:?}{}",
                self.process.process_id,
                chunk.stream,
                if self.terminal { " on a terminal" } else { "" }
            )));
        }
        // The end of a stream takes one unit of the cursor.
        let length = match (chunk.eof, chunk.data.len()) {
            (true, 0) => Some(1),
            (false, length) if length > 0 => u64::try_from(length).ok(),
            _ => None,
        };
        let follows = length.and_then(|length| self.cursor.checked_add(length));
        if follows != Some(chunk.sequence) {
            return Err(internal(format!(
                "the output of {} is not contiguous: sequence {} after {}",
                self.process.process_id, chunk.sequence, self.cursor
            )));
        }
        self.cursor = chunk.sequence;
        if chunk.eof {
            *ended = true;
        } else {
            self.unread.push_back(ExecChunk {
                stream,
                data: chunk.data,
            });
        }
        Ok(())
    }

    async fn poll_exit(&self) -> ExecutionManagerResult<Option<ExitStatus>> {
        let request = WaitProcessRequest {
            process: self.process.clone(),
            timeout_ms: Some(0),
        };
        match self.client.wait_process(request).await {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.code == ErrorCode::DeadlineExceeded => Ok(None),
            Err(error) => Err(runtime_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use a3sbox_oci::{ContainerId, ContainerTarget, ProcessId};
    use a3sbox_testkit::{GENERATION, RecordingRuntime, RuntimeReport};

    use super::*;

    fn output(terminal: bool) -> ProcessOutput {
        let client = RuntimeClient::from_arc(RecordingRuntime::new(RuntimeReport::default()));
        let container = ContainerTarget::exact(ContainerId::new("read").unwrap(), GENERATION);
        let process_id = ProcessId::new("process").unwrap();
        ProcessOutput::new(
            client,
            ProcessTarget {
                container,
                process_id,
            },
            terminal,
        )
    }

    fn chunk(sequence: u64, stream: OutputStream, data: &str) -> OutputChunk {
        OutputChunk {
            sequence,
            stream,
            data: data.into(),
            eof: data.is_empty(),
        }
    }

    #[test]
    fn one_cursor_runs_over_both_streams_and_their_ends() {
        let mut output = output(false);
        output.take(chunk(3, OutputStream::Stdout, "abc")).unwrap();
        output.take(chunk(5, OutputStream::Stderr, "de")).unwrap();
        output.take(chunk(6, OutputStream::Stdout, "")).unwrap();
        assert!(!output.has_ended());
        output.take(chunk(7, OutputStream::Stderr, "")).unwrap();
        assert!(output.has_ended());
        assert_eq!(output.unread.len(), 2);
    }

    #[test]
    fn a_gap_a_repeat_or_output_after_the_end_is_refused() {
        use OutputStream::{Stderr, Stdout};

        for (terminal, chunks) in [
            (false, vec![chunk(4, Stdout, "abc")]),
            (
                false,
                vec![chunk(3, Stdout, "abc"), chunk(3, Stdout, "abc")],
            ),
            (false, vec![chunk(1, Stdout, ""), chunk(2, Stdout, "a")]),
            (
                false,
                vec![OutputChunk {
                    eof: true,
                    ..chunk(3, Stdout, "abc")
                }],
            ),
            (
                false,
                vec![OutputChunk {
                    eof: false,
                    ..chunk(1, Stdout, "")
                }],
            ),
            (true, vec![chunk(1, Stderr, "a")]),
        ] {
            let mut output = output(terminal);
            let taken: Result<Vec<()>, _> =
                chunks.into_iter().map(|chunk| output.take(chunk)).collect();
            taken.unwrap_err();
        }
    }
}
