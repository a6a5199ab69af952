//! What the transport needs to know of each verb: its bulk bytes, how long its answer may take, whether it
//! changes something, and how large its answer may get.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::{Bulk, Tail};
use crate::capability::RuntimeInfo;
use crate::error::{Error, Result};
use crate::ids::OperationContext;
use crate::limits::{MAX_EVENTS_ANSWER_BYTES, MAX_FRAME_BYTES, MAX_SMALL_ANSWER_BYTES};
use crate::request::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, CreateRequest,
    DeleteProcessRequest, DeleteRequest, EventsRequest, ExecRequest, FileOp, FileRequest,
    FilesystemOp, FilesystemRequest, KillRequest, ListRequest, PidsRequest, ProcessesRequest,
    ReadOutputRequest, ResizeRequest, RestoreRequest, SignalProcessRequest, StartRequest,
    StateRequest, StatsRequest, UpdateRequest, WaitProcessRequest, WaitRequest, WriteStdinRequest,
};
use crate::response::{
    ContainerRecord, ContainerStats, EventBatch, ExitStatus, FileResponse, FilesystemResponse,
    OutputChunk, ProcessRecord, RuntimePid,
};
use crate::validate::ValidateRequest;

/// How long the answer may take by the request's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as the verb needs.
    Prompt,
    /// The request asks the service to wait up to this long.
    UpTo(Duration),
    /// The request asks the service to wait without limit.
    Forever,
}

impl Patience {
    fn of(timeout_ms: Option<u64>, without: Self) -> Self {
        match timeout_ms {
            None => without,
            Some(0) => Self::Prompt,
            Some(ms) => Self::UpTo(Duration::from_millis(ms)),
        }
    }
}

/// How large the answer may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerSize {
    Small,
    /// A number of events.
    Events,
    /// Output up to this many bytes.
    Output(u32),
    /// Bounded by the frame only.
    Large,
}

impl AnswerSize {
    /// The bound on the frame. Output comes in chunks, whose number no request bounds.
    pub(super) const fn limit(self) -> usize {
        match self {
            Self::Small => MAX_SMALL_ANSWER_BYTES,
            Self::Events => MAX_EVENTS_ANSWER_BYTES,
            Self::Output(_) | Self::Large => MAX_FRAME_BYTES,
        }
    }
}

/// A request as the transport sees it.
pub(super) trait WireRequest:
    ValidateRequest + Bulk + Serialize + DeserializeOwned + Send + 'static
{
    fn patience(&self) -> Patience {
        Patience::Prompt
    }

    /// The context of a request that changes something: its effect is finished even when nobody waits.
    fn context(&self) -> Option<&OperationContext> {
        None
    }

    fn answer_size(&self) -> AnswerSize {
        AnswerSize::Small
    }

    /// Asks for less output.
    fn limit_output(&mut self, bytes: u32) {
        let _ = bytes;
    }
}

/// The request of `features`, which has no fields.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FeaturesRequest;

impl ValidateRequest for FeaturesRequest {
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

impl WireRequest for FeaturesRequest {}

macro_rules! changes_something {
    ($($request:ty),* $(,)?) => {
        $(impl WireRequest for $request {
            fn context(&self) -> Option<&OperationContext> {
                Some(&self.context)
            }
        })*
    };
}

changes_something!(
    CreateRequest,
    StartRequest,
    KillRequest,
    DeleteRequest,
    ContainerOperationRequest,
    UpdateRequest,
    ExecRequest,
    WriteStdinRequest,
    CloseStdinRequest,
    ResizeRequest,
    SignalProcessRequest,
    DeleteProcessRequest,
    CheckpointRequest,
    RestoreRequest,
);

impl WireRequest for StateRequest {}
impl WireRequest for StatsRequest {}

impl WireRequest for WaitRequest {
    fn patience(&self) -> Patience {
        Patience::of(self.timeout_ms, Patience::Forever)
    }
}

impl WireRequest for WaitProcessRequest {
    fn patience(&self) -> Patience {
        Patience::of(self.timeout_ms, Patience::Forever)
    }
}

impl WireRequest for EventsRequest {
    fn patience(&self) -> Patience {
        Patience::of(self.wait_timeout_ms, Patience::Prompt)
    }

    fn answer_size(&self) -> AnswerSize {
        AnswerSize::Events
    }
}

impl WireRequest for ReadOutputRequest {
    fn patience(&self) -> Patience {
        Patience::of(self.wait_timeout_ms, Patience::Prompt)
    }

    fn answer_size(&self) -> AnswerSize {
        AnswerSize::Output(self.max_bytes)
    }

    fn limit_output(&mut self, bytes: u32) {
        self.max_bytes = self.max_bytes.min(bytes);
    }
}

macro_rules! lists_something {
    ($($request:ty),* $(,)?) => {
        $(impl WireRequest for $request {
            fn answer_size(&self) -> AnswerSize {
                AnswerSize::Large
            }
        })*
    };
}

lists_something!(ListRequest, ProcessesRequest, PidsRequest);

impl WireRequest for FileRequest {
    fn context(&self) -> Option<&OperationContext> {
        self.context.as_ref()
    }

    fn answer_size(&self) -> AnswerSize {
        match self.op {
            FileOp::Upload => AnswerSize::Small,
            FileOp::Download => AnswerSize::Large,
        }
    }
}

impl WireRequest for FilesystemRequest {
    fn context(&self) -> Option<&OperationContext> {
        self.context.as_ref()
    }

    fn answer_size(&self) -> AnswerSize {
        match self.op {
            FilesystemOp::ListDir => AnswerSize::Large,
            FilesystemOp::Stat
            | FilesystemOp::MakeDir
            | FilesystemOp::Move
            | FilesystemOp::Remove => AnswerSize::Small,
        }
    }
}

macro_rules! without_bulk {
    ($($message:ty),* $(,)?) => {
        $(impl Bulk for $message {})*
    };
}

without_bulk!(
    (),
    FeaturesRequest,
    CreateRequest,
    StateRequest,
    StartRequest,
    KillRequest,
    DeleteRequest,
    ContainerOperationRequest,
    UpdateRequest,
    ExecRequest,
    WaitRequest,
    ListRequest,
    ProcessesRequest,
    PidsRequest,
    StatsRequest,
    EventsRequest,
    ReadOutputRequest,
    CloseStdinRequest,
    ResizeRequest,
    SignalProcessRequest,
    WaitProcessRequest,
    DeleteProcessRequest,
    FilesystemRequest,
    CheckpointRequest,
    RestoreRequest,
    RuntimeInfo,
    ContainerRecord,
    Vec<ContainerRecord>,
    ProcessRecord,
    Vec<ProcessRecord>,
    Vec<RuntimePid>,
    ExitStatus,
    ContainerStats,
    EventBatch,
    FilesystemResponse,
);

impl Bulk for WriteStdinRequest {
    fn detach(&mut self, segments: &mut Vec<Vec<u8>>) {
        segments.push(std::mem::take(&mut self.data));
    }

    fn attach(&mut self, tail: &mut Tail) -> Result<()> {
        self.data = tail.take()?;
        Ok(())
    }
}

impl Bulk for Vec<OutputChunk> {
    fn detach(&mut self, segments: &mut Vec<Vec<u8>>) {
        segments.extend(self.iter_mut().map(|chunk| std::mem::take(&mut chunk.data)));
    }

    fn attach(&mut self, tail: &mut Tail) -> Result<()> {
        for chunk in self {
            chunk.data = tail.take()?;
        }
        Ok(())
    }
}

impl Bulk for FileRequest {
    fn detach(&mut self, segments: &mut Vec<Vec<u8>>) {
        detach_text(&mut self.data, segments);
    }

    fn attach(&mut self, tail: &mut Tail) -> Result<()> {
        attach_text(&mut self.data, tail)
    }
}

impl Bulk for FileResponse {
    fn detach(&mut self, segments: &mut Vec<Vec<u8>>) {
        detach_text(&mut self.data, segments);
    }

    fn attach(&mut self, tail: &mut Tail) -> Result<()> {
        attach_text(&mut self.data, tail)
    }
}

/// An absent text stays absent; a present one leaves an empty text in its place.
fn detach_text(text: &mut Option<String>, segments: &mut Vec<Vec<u8>>) {
    if let Some(text) = text {
        segments.push(std::mem::take(text).into_bytes());
    }
}

fn attach_text(text: &mut Option<String>, tail: &mut Tail) -> Result<()> {
    if let Some(text) = text {
        *text =
            String::from_utf8(tail.take()?).map_err(|_| Error::invalid("file data is not text"))?;
    }
    Ok(())
}
