//! The verbs on a process's streams. They live in this process, so their operations do too.

use std::sync::Arc;
use std::time::Duration;

use a3sbox_oci::{
    CloseStdinRequest, Error, ErrorCode, OutputChunk, ReadOutputRequest, ResizeRequest,
    WriteStdinRequest,
};

use super::to_the_end;
use crate::error::RuntimeError;
use crate::owner::{Container, ProcessSlot, operation};
use crate::stdio::Streams;

fn streams(slot: &ProcessSlot) -> Result<&Streams, Error> {
    slot.streams().ok_or_else(|| {
        Error::new(
            ErrorCode::Unavailable,
            "the streams of the process ended with the service that ran it",
        )
    })
}

pub(crate) async fn read_output(
    container: &Container,
    request: ReadOutputRequest,
) -> Result<Vec<OutputChunk>, Error> {
    let slot = container.process(&request.process)?;
    slot.touch();
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(usize::MAX);
    let wait = request.wait_timeout_ms.map(Duration::from_millis);
    Ok(streams(&slot)?
        .read_output(request.after_sequence, max_bytes, wait)
        .await?)
}

pub(crate) async fn write_stdin(
    container: Arc<Container>,
    request: WriteStdinRequest,
) -> Result<(), Error> {
    let slot = container.process(&request.process)?;
    let operation = operation(
        &request.context,
        "write-stdin",
        &(&request.process, &request.data),
    )?;
    to_the_end(async move {
        // Writes of one process go in one after the other, so that a repeated one finds the first.
        let _turn = slot.stream_turn().await?;
        if slot.has_streamed(&operation)? {
            return Ok(());
        }
        streams(&slot)?
            .write_stdin(request.data)
            .await
            .map_err(RuntimeError::from)?;
        slot.remember_written(operation);
        Ok(())
    })
    .await
}

pub(crate) fn close_stdin(container: &Container, request: &CloseStdinRequest) -> Result<(), Error> {
    let slot = container.process(&request.process)?;
    let operation = operation(&request.context, "close-stdin", &request.process)?;
    if slot.has_streamed(&operation)? {
        return Ok(());
    }
    streams(&slot)?.close_stdin();
    slot.remember_streamed(operation);
    Ok(())
}

pub(crate) fn resize(container: &Container, request: &ResizeRequest) -> Result<(), Error> {
    let slot = container.process(&request.process)?;
    let operation = operation(
        &request.context,
        "resize",
        &(&request.process, request.size),
    )?;
    // A late repetition must not undo a newer size.
    if slot.has_streamed(&operation)? {
        return Ok(());
    }
    streams(&slot)?.resize(request.size)?;
    slot.remember_streamed(operation);
    Ok(())
}
