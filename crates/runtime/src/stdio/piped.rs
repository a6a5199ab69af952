//! Pipes between a container and a pump of ours.

use std::os::fd::{AsFd, OwnedFd};

use a3sbox_oci::StdioUris;

use super::error::StdioError;
use super::fd::{Watched, chown, pipe};
use super::pump::{Sink, Source};
use super::stdin::{InputSink, InputSource};
use super::streams::Streams;

/// Who owns the container's ends, so that it may open them by name (`/dev/stdout`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PipeOwner {
    uid: u32,
    gid: u32,
}

impl From<&StdioUris> for PipeOwner {
    fn from(uris: &StdioUris) -> Self {
        Self {
            uid: uris.uid,
            gid: uris.gid,
        }
    }
}

/// A pipe whose reading end is pumped into `sink`; returns the container's end.
pub(super) fn piped_output(
    streams: &Streams,
    sink: Sink,
    owner: PipeOwner,
) -> Result<OwnedFd, StdioError> {
    let failed = StdioError::prepare;
    let (reader, writer) = pipe().map_err(failed("a pipe"))?;
    chown(writer.as_fd(), owner.uid, owner.gid).map_err(failed("the owner of a stream"))?;
    let reader = Watched::readable(reader).map_err(failed("a pipe"))?;
    let source = match sink {
        Sink::Log(..) => Source::PipeUntilExit(reader),
        Sink::Fd(_) | Sink::File(_) | Sink::Discard => Source::Pipe(reader),
    };
    streams.pump_output(source, sink);
    Ok(writer)
}

/// A pipe that input is pumped into; returns the container's end.
pub(super) fn piped_input(
    streams: &Streams,
    source: InputSource,
    owner: PipeOwner,
) -> Result<OwnedFd, StdioError> {
    let failed = StdioError::prepare;
    let (reader, writer) = pipe().map_err(failed("a pipe"))?;
    chown(reader.as_fd(), owner.uid, owner.gid).map_err(failed("the owner of a stream"))?;
    let writer = Watched::writable(writer).map_err(failed("a pipe"))?;
    streams.pump_input(source, InputSink::Pipe(writer));
    Ok(reader)
}
