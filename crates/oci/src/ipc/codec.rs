//! Messages that are sent, as JSON, and how bulk bytes go beside them.

use serde::Serialize;

use super::frame::FrameSize;
use crate::capability::RuntimeOperation;
use crate::error::{Error, Result};
use crate::limits::{SDK_PROTOCOL_VERSION_MAX, SDK_PROTOCOL_VERSION_MIN};

/// A frame that is ready to be written.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) json: Vec<u8>,
    pub(super) segments: Vec<Vec<u8>>,
}

impl Encoded {
    /// Bytes of the frame without its header.
    pub(super) fn size(&self) -> usize {
        self.json.len() + self.segments.iter().map(Vec::len).sum::<usize>()
    }
}

/// A type with bytes that travel beside its JSON.
pub(super) trait Bulk {
    /// Moves the bytes out, in a fixed order.
    fn detach(&mut self, segments: &mut Vec<Vec<u8>>) {
        let _ = segments;
    }

    /// Moves the same bytes in again.
    fn attach(&mut self, tail: &mut Tail) -> Result<()> {
        let _ = tail;
        Ok(())
    }
}

/// The binary tail of an arrived frame, given out piece by piece.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    position: usize,
    segments: std::vec::IntoIter<u32>,
}

impl Tail {
    pub(super) fn new(bytes: Vec<u8>, segments: Vec<u32>) -> Result<Self> {
        let announced = segments
            .iter()
            .try_fold(0_usize, |sum, length| {
                sum.checked_add(usize::try_from(*length).ok()?)
            })
            .unwrap_or(usize::MAX);
        if announced != bytes.len() {
            return Err(Error::internal(
                "the segments of a frame do not fill its binary tail",
            ));
        }
        Ok(Self {
            bytes,
            position: 0,
            segments: segments.into_iter(),
        })
    }

    /// The next segment; without a copy when it is the only one.
    pub(super) fn take(&mut self) -> Result<Vec<u8>> {
        let length = self
            .segments
            .next()
            .and_then(|length| usize::try_from(length).ok())
            .ok_or_else(|| Error::invalid("a message has fewer segments than it needs"))?;
        if self.position == 0 && length == self.bytes.len() {
            return Ok(std::mem::take(&mut self.bytes));
        }
        let end = self.position + length;
        let segment = self.bytes[self.position..end].to_vec();
        self.position = end;
        Ok(segment)
    }

    pub(super) fn finish(mut self) -> Result<()> {
        match self.segments.next() {
            None => Ok(()),
            Some(_) => Err(Error::invalid("a message has more segments than it needs")),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Message<'a, B> {
    Hello {
        protocol_min: u16,
        protocol_max: u16,
    },
    Welcome {
        protocol: u16,
    },
    Reject {
        error: &'a Error,
    },
    Request {
        protocol: u16,
        request_id: u64,
        request: RequestBody<'a, B>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        segments: Vec<u32>,
    },
    Cancel {
        protocol: u16,
        request_id: u64,
    },
    Response {
        protocol: u16,
        request_id: u64,
        result: ResultBody<'a, B>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        segments: Vec<u32>,
    },
}

#[derive(Serialize)]
struct RequestBody<'a, B> {
    operation: RuntimeOperation,
    request: &'a B,
}

#[derive(Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
enum ResultBody<'a, B> {
    Ok { response: ResponseBody<'a, B> },
    Error { error: &'a Error },
}

#[derive(Serialize)]
struct ResponseBody<'a, B> {
    operation: RuntimeOperation,
    response: &'a B,
}

fn encode<B: Serialize>(message: &Message<'_, B>, segments: Vec<Vec<u8>>) -> Result<Encoded> {
    let json = serde_json::to_vec(message)
        .map_err(|error| Error::internal(format!("cannot encode a message: {error}")))?;
    FrameSize::check(json.len(), &segments)?;
    Ok(Encoded { json, segments })
}

fn lengths(segments: &[Vec<u8>]) -> Result<Vec<u32>> {
    segments
        .iter()
        .map(|segment| {
            u32::try_from(segment.len())
                .map_err(|_| Error::exhausted("a segment is larger than any frame"))
        })
        .collect()
}

pub(super) fn hello() -> Result<Encoded> {
    let message = Message::Hello {
        protocol_min: SDK_PROTOCOL_VERSION_MIN,
        protocol_max: SDK_PROTOCOL_VERSION_MAX,
    };
    encode::<()>(&message, Vec::new())
}

pub(super) fn welcome(protocol: u16) -> Result<Encoded> {
    encode::<()>(&Message::Welcome { protocol }, Vec::new())
}

pub(super) fn reject(error: &Error) -> Result<Encoded> {
    encode::<()>(&Message::Reject { error }, Vec::new())
}

pub(super) fn cancel(protocol: u16, request_id: u64) -> Result<Encoded> {
    let message = Message::Cancel {
        protocol,
        request_id,
    };
    encode::<()>(&message, Vec::new())
}

pub(super) fn request<B: Serialize + Bulk>(
    protocol: u16,
    request_id: u64,
    operation: RuntimeOperation,
    mut body: B,
) -> Result<Encoded> {
    let mut segments = Vec::new();
    body.detach(&mut segments);
    let message = Message::Request {
        protocol,
        request_id,
        request: RequestBody {
            operation,
            request: &body,
        },
        segments: lengths(&segments)?,
    };
    encode(&message, segments)
}

pub(super) fn answer<B: Serialize + Bulk>(
    protocol: u16,
    request_id: u64,
    operation: RuntimeOperation,
    mut body: B,
) -> Result<Encoded> {
    let mut segments = Vec::new();
    body.detach(&mut segments);
    let message = Message::Response {
        protocol,
        request_id,
        result: ResultBody::Ok {
            response: ResponseBody {
                operation,
                response: &body,
            },
        },
        segments: lengths(&segments)?,
    };
    encode(&message, segments)
}

pub(super) fn failure(protocol: u16, request_id: u64, error: &Error) -> Result<Encoded> {
    let message = Message::Response {
        protocol,
        request_id,
        result: ResultBody::Error { error },
        segments: Vec::new(),
    };
    encode::<()>(&message, Vec::new())
}
