//! The rules of every other request.

use std::path::Path;

use super::ValidateRequest;
use super::io::{check_process_io, check_stdio, check_terminal_size};
use super::process::{check_environment, check_process};
use super::resources::check_resources;
use super::spec::check_for_create;
use crate::error::{Error, Result};
use crate::limits::{MAX_EVENT_BATCH_ITEMS, MAX_OUTPUT_READ_BYTES, MAX_STDIN_WRITE_BYTES};
use crate::request::{
    CheckpointRequest, CloseStdinRequest, ContainerOperationRequest, CreateRequest,
    DeleteProcessRequest, DeleteRequest, EventsRequest, ExecRequest, KillRequest, ListRequest,
    PidsRequest, ProcessesRequest, ReadOutputRequest, ResizeRequest, RestoreRequest, RunRequest,
    SignalProcessRequest, StartRequest, StateRequest, StatsRequest, UpdateRequest,
    WaitProcessRequest, WaitRequest, WriteStdinRequest,
};

/// Requests whose fields are right by their types.
macro_rules! valid_by_type {
    ($($request:ty),* $(,)?) => {
        $(impl ValidateRequest for $request {
            fn validate(&self) -> Result<()> {
                Ok(())
            }
        })*
    };
}

valid_by_type!(
    StateRequest,
    StartRequest,
    KillRequest,
    DeleteRequest,
    ContainerOperationRequest,
    WaitRequest,
    ListRequest,
    ProcessesRequest,
    PidsRequest,
    StatsRequest,
    CloseStdinRequest,
    SignalProcessRequest,
    WaitProcessRequest,
);

impl ValidateRequest for CreateRequest {
    fn validate(&self) -> Result<()> {
        check_for_create(self.bundle.spec())?;
        self.attachments.validate(&self.bundle)
    }
}

impl ValidateRequest for RunRequest {
    fn validate(&self) -> Result<()> {
        let create = &self.create.context.operation_id;
        let start = &self.start_context.operation_id;
        let delete = &self.delete_context.operation_id;
        if create == start || create == delete || start == delete {
            return Err(Error::invalid("a run needs three distinct operation ids"));
        }
        self.create.validate()
    }
}

impl ValidateRequest for UpdateRequest {
    fn validate(&self) -> Result<()> {
        check_resources(&self.resources)
    }
}

impl ValidateRequest for EventsRequest {
    fn validate(&self) -> Result<()> {
        if !(1..=MAX_EVENT_BATCH_ITEMS).contains(&self.limit) {
            return Err(Error::invalid(format!(
                "event limit must be 1 to {MAX_EVENT_BATCH_ITEMS}, it is {}",
                self.limit
            )));
        }
        Ok(())
    }
}

impl ValidateRequest for ExecRequest {
    fn validate(&self) -> Result<()> {
        if self.process_id.is_init() {
            return Err(Error::invalid(
                "process id init is reserved for the configured process",
            ));
        }
        check_process(&self.process)?;
        check_environment(&self.process)?;
        let terminal = self.process.terminal().unwrap_or(false);
        check_process_io(&self.io, terminal)?;
        match &self.stdio {
            Some(stdio) => check_stdio(stdio, terminal),
            None => Ok(()),
        }
    }
}

impl ValidateRequest for ReadOutputRequest {
    fn validate(&self) -> Result<()> {
        if !(1..=MAX_OUTPUT_READ_BYTES).contains(&self.max_bytes) {
            return Err(Error::invalid(format!(
                "an output read must ask for 1 to {MAX_OUTPUT_READ_BYTES} bytes, it asks for {}",
                self.max_bytes
            )));
        }
        Ok(())
    }
}

impl ValidateRequest for WriteStdinRequest {
    fn validate(&self) -> Result<()> {
        if self.data.len() > MAX_STDIN_WRITE_BYTES {
            return Err(Error::invalid(format!(
                "a stdin write is limited to {MAX_STDIN_WRITE_BYTES} bytes, it has {}",
                self.data.len()
            )));
        }
        Ok(())
    }
}

impl ValidateRequest for ResizeRequest {
    fn validate(&self) -> Result<()> {
        check_terminal_size(self.size)
    }
}

impl ValidateRequest for DeleteProcessRequest {
    fn validate(&self) -> Result<()> {
        if self.process.process_id.is_init() {
            return Err(Error::invalid(
                "process id init goes with its container, not by itself",
            ));
        }
        Ok(())
    }
}

impl ValidateRequest for CheckpointRequest {
    fn validate(&self) -> Result<()> {
        check_image_paths(&self.image_path, self.work_path.as_deref())
    }
}

impl ValidateRequest for RestoreRequest {
    fn validate(&self) -> Result<()> {
        check_for_create(self.bundle.spec())?;
        self.attachments.validate(&self.bundle)?;
        check_image_paths(&self.image_path, self.work_path.as_deref())
    }
}

fn check_image_paths(image: &Path, work: Option<&Path>) -> Result<()> {
    for path in std::iter::once(image).chain(work) {
        if !path.is_absolute() {
            return Err(Error::invalid(format!(
                "checkpoint path {} is not absolute",
                path.display()
            )));
        }
    }
    Ok(())
}
