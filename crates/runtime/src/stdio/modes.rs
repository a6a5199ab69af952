//! The streams of the contract's own modes: captured, written through the service, or none.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use a3sbox_oci::{IoMode, OutputStream, ProcessIo};

use super::capture::{OutputLog, Overflow};
use super::console::ConsoleSocket;
use super::error::StdioError;
use super::fd::null_device;
use super::open::{ChildFiles, ChildStdio};
use super::piped::{PipeOwner, piped_input, piped_output};
use super::pump::Sink;
use super::stdin::{self, InputSource};
use super::streams::{PendingConsole, Prepared, Streams};

/// Opens the streams of a process by modes. Must be called where a tokio runtime is.
pub(super) fn open(
    io: &ProcessIo,
    overflow: Overflow,
) -> Result<(Streams, ChildStdio), StdioError> {
    let failed = StdioError::prepare;
    if io.stdin == IoMode::Terminal {
        let (queue, source) = stdin::queue();
        let log = Arc::new(OutputLog::new(vec![OutputStream::Stdout], overflow));
        let streams = Streams::new(Prepared {
            input: Some(queue),
            output: Some(Arc::clone(&log)),
            terminal: true,
        });
        let socket = ConsoleSocket::bind()?;
        streams.hold(|held| {
            held.console = Some(PendingConsole {
                input: Some(InputSource::Queue(source)),
                output: Sink::Log(log, OutputStream::Stdout),
                size: io.terminal_size,
            });
        });
        return Ok((streams, ChildStdio::Console(socket)));
    }

    let captured: Vec<OutputStream> = [
        (io.stdout, OutputStream::Stdout),
        (io.stderr, OutputStream::Stderr),
    ]
    .into_iter()
    .filter(|(mode, _)| is_captured(*mode))
    .map(|(_, stream)| stream)
    .collect();
    let log = (!captured.is_empty()).then(|| Arc::new(OutputLog::new(captured, overflow)));
    let (queue, source) = match io.stdin {
        IoMode::Pipe | IoMode::Capture => {
            let (queue, source) = stdin::queue();
            (Some(queue), Some(source))
        }
        _ => (None, None),
    };
    let streams = Streams::new(Prepared {
        input: queue,
        output: log.clone(),
        terminal: false,
    });

    let stdin = match (source, io.stdin) {
        (Some(source), _) => {
            piped_input(&streams, InputSource::Queue(source), PipeOwner::default())?
        }
        (None, IoMode::Inherit) => inherited(rustix::stdio::stdin())?,
        (None, _) => null_device().map_err(failed("the null device"))?,
    };
    let output = |mode, stream| match (&log, mode) {
        (Some(log), mode) if is_captured(mode) => {
            let sink = Sink::Log(Arc::clone(log), stream);
            piped_output(&streams, sink, PipeOwner::default())
        }
        (_, IoMode::Inherit) if stream == OutputStream::Stdout => {
            inherited(rustix::stdio::stdout())
        }
        (_, IoMode::Inherit) => inherited(rustix::stdio::stderr()),
        _ => null_device().map_err(failed("the null device")),
    };
    let files = ChildFiles {
        stdin,
        stdout: output(io.stdout, OutputStream::Stdout)?,
        stderr: output(io.stderr, OutputStream::Stderr)?,
    };
    Ok((streams, ChildStdio::Files(files)))
}

/// A pipe for output is read through the service, as captured output is.
fn is_captured(mode: IoMode) -> bool {
    matches!(mode, IoMode::Capture | IoMode::Pipe)
}

fn inherited(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, StdioError> {
    fd.try_clone_to_owned()
        .map_err(StdioError::prepare("an inherited stream"))
}
