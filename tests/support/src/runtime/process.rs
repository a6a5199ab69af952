//! Processes beside the init process: each has written its output before it is asked for it.

use a3sbox_oci::{
    CloseStdinRequest, ContainerId, Error, ErrorCode, ExecRequest, ExitStatus, OutputChunk,
    OutputStream, ProcessRecord, ProcessTarget, ReadOutputRequest, ResizeRequest, Result,
    RuntimeOperation, SignalProcessRequest, WaitProcessRequest, WriteStdinRequest,
};

use super::State;
use super::container::still_running;

const EXIT_CODE: i32 = 23;
const FIRST_PID: u32 = 9000;

#[derive(Debug, Clone)]
pub(super) struct FakeProcess {
    request: ExecRequest,
    pid: u32,
    output: Vec<OutputChunk>,
    exit: Option<ExitStatus>,
}

impl FakeProcess {
    fn new(request: ExecRequest, pid: u32, output_before: usize) -> Self {
        let mut process = Self {
            request,
            pid,
            output: Vec::new(),
            exit: None,
        };
        if output_before > 0 {
            process.write(OutputStream::Stdout, &vec![b'x'; output_before]);
        }
        if process.is_terminal() {
            process.write(OutputStream::Stdout, b"fake tty\n");
        } else {
            process.write(OutputStream::Stdout, b"fake stdout\n");
            process.write(OutputStream::Stderr, b"fake stderr\n");
        }
        process
    }

    pub(super) fn container_id(&self) -> &ContainerId {
        &self.request.container.id
    }

    pub(super) fn record(&self) -> ProcessRecord {
        ProcessRecord {
            target: ProcessTarget {
                container: self.request.container.clone(),
                process_id: self.request.process_id.clone(),
            },
            pid: Some(self.pid),
            terminal: self.is_terminal(),
        }
    }

    fn is_terminal(&self) -> bool {
        self.request.process.terminal().unwrap_or_default()
    }

    fn write(&mut self, stream: OutputStream, data: &[u8]) {
        let length = u64::try_from(data.len()).expect("a small chunk");
        let sequence = self.cursor() + length;
        self.output.push(OutputChunk {
            sequence,
            stream,
            data: data.to_vec(),
            eof: false,
        });
    }

    fn cursor(&self) -> u64 {
        self.output.last().map_or(0, |chunk| chunk.sequence)
    }

    fn end(&mut self, exit: ExitStatus) {
        self.exit = Some(exit);
        let streams = if self.is_terminal() {
            &[OutputStream::Stdout][..]
        } else {
            &[OutputStream::Stdout, OutputStream::Stderr]
        };
        for stream in streams {
            if !self
                .output
                .iter()
                .any(|chunk| chunk.eof && chunk.stream == *stream)
            {
                let sequence = self.cursor() + 1;
                self.output.push(OutputChunk {
                    sequence,
                    stream: *stream,
                    data: Vec::new(),
                    eof: true,
                });
            }
        }
    }
}

impl State {
    pub(super) fn exec(&mut self, request: ExecRequest) -> Result<ProcessRecord> {
        self.recorded.execs.push(request.clone());
        self.container(&request.container)?.require_running()?;
        if let Some(existing) = self.processes.get(&request.process_id) {
            if existing.request == request {
                return Ok(existing.record());
            }
            return Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "process {} was started by a different request",
                    request.process_id
                ),
            ));
        }
        let started = u32::try_from(self.processes.len()).expect("a small number of processes");
        let mut process = FakeProcess::new(
            request.clone(),
            FIRST_PID + started,
            self.switches.output_before,
        );
        if !self.switches.holds_processes {
            process.end(ExitStatus::exited(EXIT_CODE)?);
        }
        let record = process.record();
        self.processes.insert(request.process_id, process);
        self.answer(RuntimeOperation::Exec, record)
    }

    fn process(&mut self, target: &ProcessTarget) -> Result<&mut FakeProcess> {
        self.container(&target.container)?;
        let process = self.processes.get_mut(&target.process_id).ok_or_else(|| {
            Error::new(
                ErrorCode::NotFound,
                format!("no process {}", target.process_id),
            )
        })?;
        if process.request.container != target.container {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "process {} is of another container generation",
                    target.process_id
                ),
            ));
        }
        Ok(process)
    }

    pub(super) fn read_output(&mut self, request: ReadOutputRequest) -> Result<Vec<OutputChunk>> {
        let process = request.process.clone();
        let (after, limit) = (request.after_sequence, request.max_bytes);
        self.recorded.output_reads.push(request);
        let mut room = usize::try_from(limit).expect("a small limit");
        let mut chunks = Vec::new();
        for chunk in self
            .process(&process)?
            .output
            .iter()
            .filter(|chunk| chunk.sequence > after)
        {
            if chunk.data.len() > room {
                break;
            }
            room -= chunk.data.len();
            chunks.push(chunk.clone());
        }
        Ok(chunks)
    }

    pub(super) fn write_stdin(&mut self, request: WriteStdinRequest) -> Result<()> {
        self.recorded.stdin_writes.push(request.clone());
        self.process(&request.process)?;
        self.stdin.admit(&request.context, &request)?;
        self.answer(RuntimeOperation::WriteStdin, ())
    }

    pub(super) fn close_stdin(&mut self, request: CloseStdinRequest) -> Result<()> {
        self.process(&request.process)?;
        self.recorded.stdin_closes.push(request);
        Ok(())
    }

    pub(super) fn resize(&mut self, request: ResizeRequest) -> Result<()> {
        self.process(&request.process)?;
        self.recorded.resizes.push(request);
        Ok(())
    }

    pub(super) fn signal_process(&mut self, request: SignalProcessRequest) -> Result<()> {
        let process = request.process.clone();
        let signal = request.signal.get();
        self.recorded.process_signals.push(request);
        let exit = ExitStatus::signaled(signal, false)?;
        self.process(&process)?.end(exit);
        Ok(())
    }

    pub(super) fn wait_process(&mut self, request: WaitProcessRequest) -> Result<ExitStatus> {
        let target = request.process.clone();
        self.recorded.process_waits.push(request);
        let process = self.process(&target)?;
        process
            .exit
            .clone()
            .ok_or_else(|| still_running(&target.process_id))
    }
}
