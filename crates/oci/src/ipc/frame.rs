//! Frames: lengths, JSON, binary tail. Nothing here knows what a message means.

use std::io;
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter,
};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::limits::{MAX_FRAME_BYTES, MAX_HELLO_BYTES, STALL_DEADLINE};

const HEADER_BYTES: usize = 8;
/// Small frames cost one read and one write; larger parts bypass these buffers.
const BUFFER_BYTES: usize = 8 * 1024;
/// Step by which the memory of an arriving frame grows at first.
const FIRST_STEP: usize = 64 * 1024;

/// A frame that arrived.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) json: Vec<u8>,
    pub(super) tail: Vec<u8>,
}

/// The announced size of a frame, within the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameSize {
    json: usize,
    tail: usize,
}

impl FrameSize {
    fn new(json: usize, tail: usize) -> Result<Self> {
        if json == 0 {
            return Err(Error::internal("a frame has no message"));
        }
        match json.checked_add(tail) {
            Some(total) if total <= MAX_FRAME_BYTES => Ok(Self { json, tail }),
            _ => Err(Error::exhausted(format!(
                "a frame of {json} and {tail} bytes is larger than {MAX_FRAME_BYTES}"
            ))),
        }
    }

    /// Checks a frame that is to be sent.
    pub(super) fn check(json: usize, segments: &[Vec<u8>]) -> Result<Self> {
        let tail = segments.iter().map(Vec::len).sum();
        Self::new(json, tail)
    }

    pub(super) const fn total(self) -> usize {
        self.json + self.tail
    }

    fn decode(header: [u8; HEADER_BYTES]) -> Result<Self> {
        let [a, b, c, d, e, f, g, h] = header;
        let widen = |bytes| usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
        Self::new(widen([a, b, c, d]), widen([e, f, g, h]))
    }

    fn encode(self) -> [u8; HEADER_BYTES] {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both are at most MAX_FRAME_BYTES"
        )]
        let (json, tail) = (self.json as u32, self.tail as u32);
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&json.to_be_bytes());
        header[4..].copy_from_slice(&tail.to_be_bytes());
        header
    }
}

/// Reads frames. A read that is dropped in the middle leaves the stream unusable.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    io: BufReader<R>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(io: R) -> Self {
        Self {
            io: BufReader::with_capacity(BUFFER_BYTES, io),
        }
    }

    /// The size of the next frame, however long it takes to begin; `None` when the peer closed the stream
    /// between two frames.
    pub(super) async fn next_size(&mut self) -> Result<Option<FrameSize>> {
        let mut header = [0; HEADER_BYTES];
        let begun = match self.io.read(&mut header).await {
            Ok(count) => count,
            // The peer closed with answers of ours unread: for a stream without a frame begun that is
            // as clean as an end of stream.
            Err(error) if is_closed(&error) => 0,
            Err(error) => return Err(read_error(&error)),
        };
        if begun == 0 {
            return Ok(None);
        }
        stall(self.io.read_exact(&mut header[begun..]))
            .await?
            .map_err(|error| read_error(&error))?;
        FrameSize::decode(header).map(Some)
    }

    /// The frame whose size was read.
    pub(super) async fn body(&mut self, size: FrameSize) -> Result<Frame> {
        let json = self.part(size.json).await?;
        let tail = self.part(size.tail).await?;
        Ok(Frame { json, tail })
    }

    /// The first frame of the peer, which is small.
    pub(super) async fn first(&mut self) -> Result<Option<Frame>> {
        match self.next_size().await? {
            Some(size) if size.total() > MAX_HELLO_BYTES => Err(Error::exhausted(format!(
                "a first frame is limited to {MAX_HELLO_BYTES} bytes, it has {}",
                size.total()
            ))),
            Some(size) => self.body(size).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Frame>> {
        match self.next_size().await? {
            Some(size) => self.body(size).await.map(Some),
            None => Ok(None),
        }
    }

    async fn part(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut part = Vec::new();
        while part.len() < length {
            let missing = length - part.len();
            if part.len() == part.capacity() {
                part.reserve_exact(missing.min(part.len().max(FIRST_STEP)));
            }
            let mut limited = (&mut self.io).take(missing as u64);
            let count = stall(limited.read_buf(&mut part))
                .await?
                .map_err(|error| read_error(&error))?;
            if count == 0 {
                return Err(Error::unavailable("the stream ended inside a frame"));
            }
        }
        Ok(part)
    }
}

/// Writes frames; what is small is gathered until [`Self::flush`].
#[derive(Debug)]
pub(super) struct FrameWriter<W> {
    io: BufWriter<W>,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(super) fn new(io: W) -> Self {
        Self {
            io: BufWriter::with_capacity(BUFFER_BYTES, io),
        }
    }

    /// Writes one frame; the size was checked when it was encoded.
    pub(super) async fn write(&mut self, json: &[u8], segments: &[Vec<u8>]) -> WriteResult {
        let size = FrameSize::check(json.len(), segments)?;
        self.write_all(&size.encode()).await?;
        self.write_all(json).await?;
        for segment in segments {
            self.write_all(segment).await?;
        }
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> WriteResult {
        Ok(stall(self.io.flush()).await??)
    }

    /// Ends the stream in this direction.
    pub(super) async fn shutdown(&mut self) -> WriteResult {
        Ok(stall(self.io.shutdown()).await??)
    }

    /// The deadline is on progress, not on the whole: a slow peer that reads is not given up.
    async fn write_all(&mut self, mut bytes: &[u8]) -> WriteResult {
        while !bytes.is_empty() {
            let count = stall(self.io.write(bytes)).await??;
            if count == 0 {
                return Err(WriteFailure::PeerClosed);
            }
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

pub(super) type WriteResult = std::result::Result<(), WriteFailure>;

/// Why a frame was not written. That the peer left is an ordinary end for the serving side and a broken
/// stream for the client.
#[derive(Debug)]
pub(super) enum WriteFailure {
    PeerClosed,
    Failed(Error),
}

impl From<io::Error> for WriteFailure {
    fn from(error: io::Error) -> Self {
        if is_closed(&error) {
            Self::PeerClosed
        } else {
            Self::Failed(Error::unavailable(format!(
                "cannot write to the stream: {error}"
            )))
        }
    }
}

impl From<Error> for WriteFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<WriteFailure> for Error {
    fn from(failure: WriteFailure) -> Self {
        match failure {
            WriteFailure::PeerClosed => Self::unavailable("the peer closed the stream"),
            WriteFailure::Failed(error) => error,
        }
    }
}

async fn stall<T>(step: impl Future<Output = T>) -> Result<T> {
    within(STALL_DEADLINE, "the peer stopped inside a frame", step).await
}

/// Bounds a wait on the peer.
pub(super) async fn within<T>(
    deadline: Duration,
    what: &str,
    step: impl Future<Output = T>,
) -> Result<T> {
    timeout(deadline, step)
        .await
        .map_err(|_| Error::unavailable(format!("{what} for {} s", deadline.as_secs())))
}

/// The peer is gone, in the ways that a local stream says so.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
    )
}

fn read_error(error: &io::Error) -> Error {
    Error::unavailable(format!("cannot read from the stream: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[tokio::test]
    async fn a_frame_goes_through_with_its_tail() {
        let (near, far) = tokio::io::duplex(64);
        let send = async {
            let mut writer = FrameWriter::new(near);
            writer
                .write(b"{}", &[vec![1; 100_000], vec![], vec![2; 3]])
                .await
                .unwrap();
            writer.write(b"[]", &[]).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let receive = async {
            let mut reader = FrameReader::new(far);
            let first = reader.next().await.unwrap().unwrap();
            assert_eq!(first.json, b"{}");
            assert_eq!(first.tail.len(), 100_003);
            assert_eq!(first.tail[99_999..], [1, 2, 2, 2]);
            let second = reader.next().await.unwrap().unwrap();
            assert_eq!((second.json.as_slice(), second.tail.len()), (&b"[]"[..], 0));
            assert!(reader.next().await.unwrap().is_none());
        };
        tokio::join!(send, receive);
    }

    #[tokio::test]
    async fn sizes_are_checked_before_anything_is_read() {
        let over = u32::try_from(MAX_FRAME_BYTES).unwrap();
        for (json, tail, code) in [
            (0, 5, ErrorCode::Internal),
            (over + 1, 0, ErrorCode::ResourceExhausted),
            (over, 1, ErrorCode::ResourceExhausted),
            (u32::MAX, u32::MAX, ErrorCode::ResourceExhausted),
        ] {
            let header = [json.to_be_bytes(), tail.to_be_bytes()].concat();
            let error = FrameReader::new(header.as_slice())
                .next()
                .await
                .unwrap_err();
            assert_eq!(error.code, code);
        }
        assert!(FrameSize::check(MAX_FRAME_BYTES, &[]).is_ok());
        assert!(FrameSize::check(MAX_FRAME_BYTES, &[vec![0]]).is_err());
    }

    #[tokio::test]
    async fn an_end_inside_a_frame_is_not_a_clean_end() {
        for cut in 1..13 {
            let mut bytes = Vec::new();
            FrameWriter::new(&mut bytes).flush().await.unwrap();
            bytes.extend_from_slice(&[0, 0, 0, 2, 0, 0, 0, 3]);
            bytes.extend_from_slice(b"{}abc");
            let error = FrameReader::new(&bytes[..cut]).next().await.unwrap_err();
            assert_eq!(error.code, ErrorCode::Unavailable, "cut at {cut}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_inside_a_frame_is_given_up() {
        let (mut near, far) = tokio::io::duplex(64);
        near.write_all(&[0, 0, 0, 2, 0]).await.unwrap();
        let error = FrameReader::new(far).next().await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unavailable);
    }
}
