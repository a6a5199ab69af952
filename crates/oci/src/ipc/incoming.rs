//! Messages that arrive, taken apart in two steps: what the connection needs, then what the call needs.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::codec::{Bulk, Tail};
use super::frame::Frame;
use crate::capability::RuntimeOperation;
use crate::error::{Error, ErrorCode, Result};

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
    size: usize,
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
    let size = json.len() + tail.len();
    let envelope: Envelope<'_> = serde_json::from_slice(&json)
        .map_err(|error| Error::internal(format!("a frame is not a message: {error}")))?;
    let tail = Tail::new(tail, envelope.segments)?;
    let body = |json: Option<&RawValue>| {
        let json = json.ok_or_else(missing)?.to_owned();
        Ok::<_, Error>(Body { json, tail, size })
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
    /// Bytes of the whole frame that it came in.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// The operation of a request; a label that is not known is `Unsupported`.
    pub(super) fn operation(&self) -> Result<RuntimeOperation> {
        let wire = self.wire_request()?;
        RuntimeOperation::from_label(&wire.operation).ok_or_else(|| {
            Error::new(
                ErrorCode::Unsupported,
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
