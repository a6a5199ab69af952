//! A process as its caller holds it.

use std::sync::Arc;

use a3sbox_core::{
    ExecChunk, ExecEvent, ExecExit, ExecutionManagerResult, ExecutionProcessInput,
    ExecutionProcessStream, StreamType,
};
use a3sbox_oci::{ExitStatus, ProcessTarget, RuntimeClient};
use async_trait::async_trait;

use super::super::evidence::exit_code;
use super::input::OciProcessInput;
use super::output::{Output, ProcessOutput};
use super::watchdog::Watchdog;

/// Last words of a command that ran out of its time; callers know the text.
const TIMEOUT_NOTICE: &[u8] = b"\nProcess killed: timeout exceeded";
const TIMEOUT_EXIT_CODE: i32 = 137;

#[derive(Debug)]
pub(super) struct OciProcess {
    output: ProcessOutput,
    input: Arc<OciProcessInput>,
    watchdog: Option<Watchdog>,
    terminal: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Reading,
    /// The notice was given, the exit is still to be.
    TimedOut(ExecExit),
    Done,
}

impl OciProcess {
    pub(super) fn new(
        client: RuntimeClient,
        process: ProcessTarget,
        terminal: bool,
        input: Arc<OciProcessInput>,
        watchdog: Option<Watchdog>,
    ) -> Self {
        Self {
            output: ProcessOutput::new(client, process, terminal),
            input,
            watchdog,
            terminal,
            phase: Phase::Reading,
        }
    }

    pub(super) fn oci_input(&self) -> Arc<OciProcessInput> {
        Arc::clone(&self.input)
    }

    pub(super) const fn has_timed_out(&self) -> bool {
        matches!(self.phase, Phase::TimedOut(_))
    }

    fn end(&mut self, status: &ExitStatus) -> ExecutionManagerResult<ExecEvent> {
        let timed_out = self.watchdog.take().is_some_and(|watchdog| {
            watchdog.disarm();
            watchdog.ended(status)
        });
        if timed_out {
            let exit = ExecExit {
                exit_code: TIMEOUT_EXIT_CODE,
                oom_killed: false,
            };
            self.phase = Phase::TimedOut(exit);
            let stream = if self.terminal {
                StreamType::Stdout
            } else {
                StreamType::Stderr
            };
            return Ok(ExecEvent::Chunk(ExecChunk {
                stream,
                data: TIMEOUT_NOTICE.to_vec(),
            }));
        }
        self.phase = Phase::Done;
        let exit = ExecExit {
            exit_code: exit_code(status)?,
            oom_killed: status.oom_killed,
        };
        Ok(ExecEvent::Exit(exit))
    }
}

#[async_trait]
impl ExecutionProcessStream for OciProcess {
    fn input(&self) -> Arc<dyn ExecutionProcessInput> {
        self.oci_input()
    }

    async fn next_event(&mut self) -> ExecutionManagerResult<Option<ExecEvent>> {
        match &self.phase {
            Phase::Done => return Ok(None),
            Phase::TimedOut(exit) => {
                let exit = exit.clone();
                self.phase = Phase::Done;
                return Ok(Some(ExecEvent::Exit(exit)));
            }
            Phase::Reading => {}
        }
        let watchdog = self.watchdog.as_ref();
        let is_over = || watchdog.is_some_and(Watchdog::is_over);
        match self.output.next(is_over).await? {
            Output::Chunk(chunk) => Ok(Some(ExecEvent::Chunk(chunk))),
            Output::Exit(status) => self.end(&status).map(Some),
        }
    }
}
