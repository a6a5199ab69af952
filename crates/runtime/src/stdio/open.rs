//! From the names of the streams to open ones, before the engine is called.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use a3sbox_oci::{OutputStream, ProcessIo, StdioUris};

use super::binary::{LogSubject, Logger, LoggerInput};
use super::capture::Overflow;
use super::console::ConsoleSocket;
use super::error::StdioError;
use super::fd::{Watched, chown, null_device, pipe};
use super::fifo::{self, InputPath, OutputFifo, Writer};
use super::file::LogFile;
use super::modes;
use super::piped::{PipeOwner, piped_input, piped_output};
use super::pump::Sink;
use super::stdin::InputSource;
use super::streams::{PendingConsole, Prepared, Streams};
use super::uri::{self, BinaryUri, StreamUri};

/// What the streams of a process are made from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StdioSpec<'a> {
    /// containerd's names.
    Uris(&'a StdioUris),
    /// The modes of the runtime contract.
    Io {
        io: &'a ProcessIo,
        overflow: Overflow,
    },
}

/// Whose streams they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StdioOwner<'a> {
    /// Container id, or exec id of an exec: what a logging binary gets as `CONTAINER_ID`.
    pub(crate) id: &'a str,
    pub(crate) namespace: &'a str,
    /// Output to fifos goes through a pump instead of directly. Needed by an added process, whose children may
    /// outlive it and would hold the client's fifo open past its delete; and by a process that changes its
    /// security label (`process.selinuxLabel`), which may use pipes of ours but not containerd's fifos.
    pub(crate) pumped: bool,
}

/// What the engine process gets.
#[derive(Debug)]
pub(crate) enum ChildStdio {
    /// Its 0, 1 and 2, blocking. Ours must be closed after the spawn, else the streams never end.
    Files(ChildFiles),
    /// The socket for `--console-socket`; then [`Streams::attach_console`].
    Console(ConsoleSocket),
}

/// The standard streams of a process without a terminal.
#[derive(Debug)]
pub(crate) struct ChildFiles {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Opens the streams of a process that is about to be created. Waits for the clients of its outputs and for a
/// logging binary, each at most its deadline. On an error nothing is left.
pub(crate) async fn open(
    spec: StdioSpec<'_>,
    owner: &StdioOwner<'_>,
) -> Result<(Streams, ChildStdio), StdioError> {
    match spec {
        StdioSpec::Uris(uris) => {
            let owner = &StdioOwner {
                id: uris.subject.as_deref().unwrap_or(owner.id),
                ..*owner
            };
            if uris.terminal {
                open_terminal_uris(uris, owner).await
            } else {
                open_file_uris(uris, owner).await
            }
        }
        StdioSpec::Io { io, overflow } => modes::open(io, overflow),
    }
}

impl Streams {
    /// The streams of a process that outlived the shim which opened them: the reading ends of its fifos are
    /// held again. Its stdin, terminal and pumped output ended with that shim; a fifo that has gone meanwhile
    /// is passed over.
    pub(crate) fn adopt(uris: Option<&StdioUris>) -> Self {
        let streams = Self::new(Prepared::default());
        let Some(uris) = uris.filter(|uris| !uris.terminal) else {
            return streams;
        };
        for (name, stream) in [(&uris.stdout, "stdout"), (&uris.stderr, "stderr")] {
            let Some(Ok(StreamUri::Fifo(path))) = name.as_deref().map(uri::parse) else {
                continue;
            };
            match fifo::reopen_reader(&path, stream) {
                Ok(Some(reader)) => streams.hold(|held| held.readers.push(reader)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "an output of an adopted process has gone"),
            }
        }
        streams
    }
}

async fn open_file_uris(
    uris: &StdioUris,
    owner: &StdioOwner<'_>,
) -> Result<(Streams, ChildStdio), StdioError> {
    // All names are read before anything is opened: a bad one has no effect.
    let stdin = parse_input(uris.stdin.as_deref())?;
    let stdout = uris.stdout.as_deref().map(uri::parse).transpose()?;
    let stderr = uris.stderr.as_deref().map(uri::parse).transpose()?;

    let streams = Streams::new(Prepared::default());
    let opened = async {
        let stdin = match stdin {
            Some(path) => stream_input(&streams, &path, uris)?,
            None => null_device().map_err(StdioError::prepare("the null device"))?,
        };
        let (stdout, stderr) = match (stdout, stderr) {
            (Some(StreamUri::Binary(out)), Some(StreamUri::Binary(err))) if out == err => {
                logger_pair(&streams, &out, uris, owner).await?
            }
            (stdout, stderr) => {
                let shared_file = match (&stdout, &stderr) {
                    (Some(StreamUri::File(out)), Some(StreamUri::File(err))) if out == err => {
                        Some(LogFile::open(out, "stdout")?)
                    }
                    _ => None,
                };
                let output = |uri, stream| {
                    let file = shared_file.clone();
                    stream_output(&streams, uri, stream, file, uris, owner)
                };
                (
                    output(stdout, OutputStream::Stdout).await?,
                    output(stderr, OutputStream::Stderr).await?,
                )
            }
        };
        Ok(ChildFiles {
            stdin,
            stdout,
            stderr,
        })
    };
    match opened.await {
        Ok(files) => Ok((streams, ChildStdio::Files(files))),
        Err(error) => {
            streams.close().await;
            Err(error)
        }
    }
}

/// The container's end of one output.
async fn stream_output(
    streams: &Streams,
    uri: Option<StreamUri>,
    stream: OutputStream,
    shared_file: Option<LogFile>,
    uris: &StdioUris,
    owner: &StdioOwner<'_>,
) -> Result<OwnedFd, StdioError> {
    let name = stream_name(stream);
    match uri {
        None => null_device().map_err(StdioError::prepare("the null device")),
        Some(StreamUri::Fifo(path)) if owner.pumped => {
            let sink = fifo_sink(streams, &path, name).await?;
            piped_output(streams, sink, PipeOwner::from(uris))
        }
        Some(StreamUri::Fifo(path)) => {
            let reader_is_there = fifo::await_reader(&path).await;
            let OutputFifo { writer, reader } = fifo::open_output(&path, name, Writer::Container)?;
            drop(reader_is_there);
            chown(writer.as_fd(), uris.uid, uris.gid)
                .map_err(StdioError::prepare("the owner of a stream"))?;
            streams.hold(|held| held.readers.extend(reader));
            Ok(writer)
        }
        Some(StreamUri::File(path)) => {
            let file = match shared_file {
                Some(file) => file,
                None => LogFile::open(&path, name)?,
            };
            piped_output(streams, Sink::File(file), PipeOwner::from(uris))
        }
        Some(StreamUri::Binary(binary)) => {
            let (stdout, stderr) = logger_pair(streams, &binary, uris, owner).await?;
            Ok(if stream == OutputStream::Stdout {
                stdout
            } else {
                stderr
            })
        }
    }
}

/// One logging binary for both streams; returns the container's two ends.
async fn logger_pair(
    streams: &Streams,
    binary: &BinaryUri,
    uris: &StdioUris,
    owner: &StdioOwner<'_>,
) -> Result<(OwnedFd, OwnedFd), StdioError> {
    let failed = StdioError::prepare;
    let (out_reader, out_writer) = pipe().map_err(failed("a pipe"))?;
    let (err_reader, err_writer) = pipe().map_err(failed("a pipe"))?;
    for writer in [&out_writer, &err_writer] {
        chown(writer.as_fd(), uris.uid, uris.gid).map_err(failed("the owner of a stream"))?;
    }
    let ends = vec![
        out_reader.try_clone().map_err(failed("a pipe"))?,
        err_reader.try_clone().map_err(failed("a pipe"))?,
    ];
    let input = LoggerInput {
        stdout: out_reader,
        stderr: err_reader,
    };
    let logger = Logger::start(binary, subject(owner), input).await?;
    logger
        .stand_in(ends, streams.phase())
        .map_err(failed("the logging binary"))?;
    streams.hold(|held| held.loggers.push(logger));
    Ok((out_writer, err_writer))
}

/// The container's end of stdin.
fn stream_input(streams: &Streams, path: &Path, uris: &StdioUris) -> Result<OwnedFd, StdioError> {
    match fifo::open_input(path)? {
        InputPath::Other(file) => Ok(file),
        InputPath::Fifo(fifo) => {
            let fifo = Watched::readable(fifo).map_err(StdioError::prepare("stdin"))?;
            piped_input(streams, InputSource::Fifo(fifo), PipeOwner::from(uris))
        }
    }
}

async fn open_terminal_uris(
    uris: &StdioUris,
    owner: &StdioOwner<'_>,
) -> Result<(Streams, ChildStdio), StdioError> {
    let stdin = parse_input(uris.stdin.as_deref())?;
    let stdout = uris.stdout.as_deref().map(uri::parse).transpose()?;
    let streams = Streams::new(Prepared {
        terminal: true,
        ..Prepared::default()
    });
    let opened = async {
        let input = match stdin.as_deref().map(fifo::open_input).transpose()? {
            Some(InputPath::Fifo(fd) | InputPath::Other(fd)) => Some(InputSource::Fifo(
                Watched::readable(fd).map_err(StdioError::prepare("stdin"))?,
            )),
            None => None,
        };
        let output = match stdout {
            None => Sink::Discard,
            Some(StreamUri::Fifo(path)) => fifo_sink(&streams, &path, "stdout").await?,
            Some(StreamUri::File(path)) => Sink::File(LogFile::open(&path, "stdout")?),
            Some(StreamUri::Binary(binary)) => {
                let (stdout, _) = logger_pair(&streams, &binary, uris, owner).await?;
                Sink::Fd(Watched::writable(stdout).map_err(StdioError::prepare("a pipe"))?)
            }
        };
        let socket = ConsoleSocket::bind()?;
        streams.hold(|held| {
            held.console = Some(PendingConsole {
                input,
                output,
                size: None,
            });
        });
        Ok(socket)
    };
    match opened.await {
        Ok(socket) => Ok((streams, ChildStdio::Console(socket))),
        Err(error) => {
            streams.close().await;
            Err(error)
        }
    }
}

/// A fifo, or what else is at that path, as the end of a pump.
async fn fifo_sink(
    streams: &Streams,
    path: &Path,
    stream: &'static str,
) -> Result<Sink, StdioError> {
    let reader_is_there = fifo::await_reader(path).await;
    let OutputFifo { writer, reader } = fifo::open_output(path, stream, Writer::Pump)?;
    drop(reader_is_there);
    if reader.is_none() {
        return LogFile::open(path, stream).map(Sink::File);
    }
    streams.hold(|held| held.readers.extend(reader));
    let writer = Watched::writable(writer).map_err(StdioError::prepare("a fifo"))?;
    Ok(Sink::Fd(writer))
}

/// stdin is a path; there is no program that writes it.
fn parse_input(name: Option<&str>) -> Result<Option<PathBuf>, StdioError> {
    match name.map(uri::parse).transpose()? {
        None => Ok(None),
        Some(StreamUri::Fifo(path) | StreamUri::File(path)) => Ok(Some(path)),
        Some(StreamUri::Binary(_)) => Err(StdioError::UnknownScheme {
            scheme: "binary".to_owned(),
        }),
    }
}

fn subject<'a>(owner: &StdioOwner<'a>) -> LogSubject<'a> {
    LogSubject {
        id: owner.id,
        namespace: owner.namespace,
    }
}

fn stream_name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    }
}
