//! Messages as JSON, and how bulk bytes go beside them.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::frame::{Frame, FrameSize};
use crate::capability::RuntimeOperation;
use crate::error::{Error, Result};
use crate::limits::{SDK_PROTOCOL_VERSION_MAX, SDK_PROTOCOL_VERSION_MIN};

/// A frame that is ready to be written.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) json: Vec<u8>,
    pub(super) segments: Vec<Vec<u8>>,
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
    fn new(bytes: Vec<u8>, segments: Vec<u32>) -> Result<Self> {
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

/// A message that arrived, taken apart as far as the connection needs it.
#[derive(Debug)]
pub(super) enum Incoming {
    Hello { min: u16, max: u16 },
    Welcome { protocol: u16 },
    Reject(Error),
    Request { protocol: u16, id: u64, body: Body },
    Cancel { protocol: u16, id: u64 },
    Response { protocol: u16, id: u64, body: Body },
}

/// The inner part of a request or response, not looked at yet.
#[derive(Debug)]
pub(super) struct Body {
    json: Box<RawValue>,
    tail: Tail,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Hello,
    Welcome,
    Reject,
    Request,
    Cancel,
    Response,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: Kind,
    protocol: Option<u16>,
    protocol_min: Option<u16>,
    protocol_max: Option<u16>,
    request_id: Option<u64>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    error: Option<Error>,
    #[serde(default)]
    segments: Vec<u32>,
}

/// Takes a frame apart; a frame that is not a message is an error of the connection.
pub(super) fn decode(frame: Frame) -> Result<Incoming> {
    let Frame { json, tail } = frame;
    let envelope: Envelope<'_> = serde_json::from_slice(&json)
        .map_err(|error| Error::internal(format!("a frame is not a message: {error}")))?;
    let tail = Tail::new(tail, envelope.segments)?;
    let body = |json: Option<&RawValue>| {
        let json = json.ok_or_else(missing)?.to_owned();
        Ok::<_, Error>(Body { json, tail })
    };
    let protocol = envelope.protocol.ok_or_else(missing);
    let id = envelope.request_id.ok_or_else(missing);
    Ok(match envelope.kind {
        Kind::Hello => Incoming::Hello {
            min: envelope.protocol_min.ok_or_else(missing)?,
            max: envelope.protocol_max.ok_or_else(missing)?,
        },
        Kind::Welcome => Incoming::Welcome {
            protocol: protocol?,
        },
        Kind::Reject => Incoming::Reject(envelope.error.ok_or_else(missing)?),
        Kind::Request => Incoming::Request {
            protocol: protocol?,
            id: id?,
            body: body(envelope.request)?,
        },
        Kind::Cancel => Incoming::Cancel {
            protocol: protocol?,
            id: id?,
        },
        Kind::Response => Incoming::Response {
            protocol: protocol?,
            id: id?,
            body: body(envelope.result)?,
        },
    })
}

fn missing() -> Error {
    Error::internal("a message lacks a field of its type")
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Ok,
    Error,
}

#[derive(Deserialize)]
struct WireRequest<'a> {
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireResult<'a> {
    status: Status,
    #[serde(borrow, default)]
    response: Option<WireResponse<'a>>,
    #[serde(default)]
    error: Option<Error>,
}

#[derive(Deserialize)]
struct WireResponse<'a> {
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// A unit travels as null, which reads as an absent value.
fn text(value: Option<&RawValue>) -> &str {
    value.map_or("null", RawValue::get)
}

impl Body {
    /// The operation of a request; a label that is not known is `Unsupported`.
    pub(super) fn operation(&self) -> Result<RuntimeOperation> {
        let wire = self.wire_request()?;
        RuntimeOperation::from_label(&wire.operation).ok_or_else(|| {
            Error::new(
                crate::error::ErrorCode::Unsupported,
                format!("operation {:?} is not known", wire.operation),
            )
        })
    }

    fn wire_request(&self) -> Result<WireRequest<'_>> {
        serde_json::from_str(self.json.get())
            .map_err(|error| Error::invalid(format!("a request is malformed: {error}")))
    }

    /// The request itself.
    pub(super) fn request<B: DeserializeOwned + Bulk>(mut self) -> Result<B> {
        let wire = self.wire_request()?;
        let mut body: B = serde_json::from_str(text(wire.request))
            .map_err(|error| Error::invalid(format!("a request is malformed: {error}")))?;
        body.attach(&mut self.tail)?;
        self.tail.finish()?;
        Ok(body)
    }

    /// The answer to a request of `operation`, or the error that the service answered.
    pub(super) fn answer<B: DeserializeOwned + Bulk>(
        mut self,
        operation: RuntimeOperation,
    ) -> Result<B> {
        let malformed = |error: String| {
            Error::internal(format!("an answer is malformed: {error}"))
                .for_operation(operation.label())
        };
        let wire: WireResult<'_> =
            serde_json::from_str(self.json.get()).map_err(|error| malformed(error.to_string()))?;
        match (wire.status, wire.response, wire.error) {
            (Status::Error, _, Some(error)) => Err(error),
            (Status::Ok, Some(response), _) if response.operation == operation.label() => {
                let mut body: B = serde_json::from_str(text(response.response))
                    .map_err(|error| malformed(error.to_string()))?;
                body.attach(&mut self.tail)
                    .and_then(|()| self.tail.finish())
                    .map_err(|error| malformed(error.message))?;
                Ok(body)
            }
            (Status::Ok, Some(response), _) => Err(malformed(format!(
                "it is of operation {:?}",
                response.operation
            ))),
            (Status::Ok, None, _) | (Status::Error, _, None) => {
                Err(malformed("it has neither value nor error".to_owned()))
            }
        }
    }
}
