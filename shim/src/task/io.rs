//! Task ResizePty and CloseIO: the terminal's size and the end of standard input.

use containerd_shim_protos::api::{CloseIORequest, Empty, ResizePtyRequest};

use super::TaskService;
use crate::convert::error;
use crate::convert::request::{process, terminal_size};

impl TaskService {
    pub(super) async fn resize(&self, request: &ResizePtyRequest) -> ttrpc::Result<Empty> {
        let size = terminal_size(request.width, request.height);
        self.manager
            .resize(
                &self.key(&request.id),
                process(&request.exec_id),
                size.width,
                size.height,
            )
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }

    /// Standard input is the only stream that a client can close, and the stock shim closes it whatever
    /// the request's flag says.
    pub(super) async fn close_stream(&self, request: &CloseIORequest) -> ttrpc::Result<Empty> {
        self.manager
            .close_stdin(&self.key(&request.id), process(&request.exec_id))
            .await
            .map_err(|error| error::status(&error))?;
        Ok(Empty::new())
    }
}
