//! Fifos, and whatever else stands at a plain path.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};

use super::error::StdioError;

/// A path that was opened for output.
#[derive(Debug)]
pub(super) struct OutputFifo {
    /// What is written to. Blocking when it is for the container.
    pub(super) writer: OwnedFd,
    /// The reading end that is held so that a client may come and go without a SIGPIPE for the
    /// writers. `None` when the path is not a fifo.
    pub(super) reader: Option<OwnedFd>,
}

/// Who writes to an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// The container itself: it must get a descriptor that blocks.
    Container,
    /// A pump of ours.
    Pump,
}

/// How long a client may take to open the reading end of an output.
const READER_DEADLINE: Duration = Duration::from_millis(300);
/// Pauses between looks whether it has: the first, and the longest.
const READER_FIRST_LOOK: Duration = Duration::from_micros(500);
const READER_LAST_LOOK: Duration = Duration::from_millis(20);

/// A writing end that keeps a client's reading end from seeing an end before the true writer comes.
#[derive(Debug)]
pub(super) struct ReaderIsThere {
    _writer: Option<OwnedFd>,
}

/// Waits until somebody reads the fifo at this path, at most [`READER_DEADLINE`]: keep the answer until it is
/// opened for output.
///
/// A client's open may still be under way when the process starts. If the process ended first, that open
/// would wait for a writer that never comes, and what was written would be lost with the last descriptor.
/// Without a client in time the process runs all the same: one that is not read must not keep it from that.
pub(super) async fn await_reader(path: &Path) -> ReaderIsThere {
    let give_up_at = Instant::now() + READER_DEADLINE;
    let mut pause = READER_FIRST_LOOK;
    loop {
        let attempt = find(path).and_then(|(found, is_fifo)| {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK;
            is_fifo.then(|| reopen(&found, flags)).transpose()
        });
        match attempt {
            Ok(writer) => return ReaderIsThere { _writer: writer },
            Err(error) if is_unread(&error) && Instant::now() < give_up_at => {}
            // The open for output meets the same fault and tells it, or nobody reads.
            Err(_) => return ReaderIsThere { _writer: None },
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(READER_LAST_LOOK);
    }
}

fn is_unread(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

/// Opens a path for output. Never blocks: the reading end comes first, so the writing end has a reader.
pub(super) fn open_output(
    path: &Path,
    stream: &'static str,
    writer: Writer,
) -> Result<OutputFifo, StdioError> {
    let attempt = || {
        let (found, is_fifo) = find(path)?;
        if !is_fifo {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY;
            let writer = reopen(&found, flags)?;
            return Ok(OutputFifo {
                writer,
                reader: None,
            });
        }
        let reader = reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let flags = match writer {
            Writer::Container => OFlags::WRONLY,
            Writer::Pump => OFlags::WRONLY | OFlags::NONBLOCK,
        };
        let writer = reopen(&found, flags)?;
        Ok(OutputFifo {
            writer,
            reader: Some(reader),
        })
    };
    attempt().map_err(open_error(path, stream))
}

/// The reading end of an output fifo again, after the shim that held it ended.
pub(super) fn reopen_reader(
    path: &Path,
    stream: &'static str,
) -> Result<Option<OwnedFd>, StdioError> {
    let attempt = || {
        let (found, is_fifo) = find(path)?;
        is_fifo
            .then(|| reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK))
            .transpose()
    };
    attempt().map_err(open_error(path, stream))
}

/// A path that was opened for input.
#[derive(Debug)]
pub(super) enum InputPath {
    /// A fifo with a writing end of ours in the same descriptor: it never ends by itself, because a
    /// client that closes its end has only detached.
    Fifo(OwnedFd),
    /// Anything else is the process's own stdin.
    Other(OwnedFd),
}

/// Opens a path for input. Never blocks.
pub(super) fn open_input(path: &Path) -> Result<InputPath, StdioError> {
    let attempt = || {
        let (found, is_fifo) = find(path)?;
        if is_fifo {
            reopen(&found, OFlags::RDWR | OFlags::NONBLOCK).map(InputPath::Fifo)
        } else {
            reopen(&found, OFlags::RDONLY | OFlags::NOCTTY).map(InputPath::Other)
        }
    };
    attempt().map_err(open_error(path, "stdin"))
}

/// The object at a path, not yet opened, and whether it is a fifo.
fn find(path: &Path) -> io::Result<(OwnedFd, bool)> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    let is_fifo = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
    Ok((found, is_fifo))
}

/// Opens the very object that was found, also when its name has changed hands since.
fn reopen(found: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(rustix::fs::open(
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn open_error(path: &Path, stream: &'static str) -> impl FnOnce(io::Error) -> StdioError {
    let path = PathBuf::from(path);
    move |source| StdioError::Open {
        stream,
        path,
        source,
    }
}
