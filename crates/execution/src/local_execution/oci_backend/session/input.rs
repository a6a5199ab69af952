//! What a caller does to a running process.
//!
//! All mutations of one process share a counter that is part of their operation ids and grows on
//! success only. A repeat after an error therefore carries the same id: the runtime answers it from its
//! journal, or refuses it when its content changed.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use a3sbox_core::{
    ExecutionGeneration, ExecutionManagerError, ExecutionManagerResult, ExecutionProcessInput,
    ExecutionProcessSignal,
};
use a3sbox_oci::{
    CloseStdinRequest, Error, ErrorCode, OperationContext, ProcessTarget, ResizeRequest,
    RuntimeClient, Signal, SignalProcessRequest, WriteStdinRequest,
};
use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::super::error::{internal, invalid, runtime_error};
use super::super::identity::operation_context;
use super::command::terminal_size;

const STDIN: &str = "stdin";
const CLOSE: &str = "close-stdin";
const SIGNAL: &str = "signal";
const RESIZE: &str = "resize";

#[derive(Debug)]
pub(super) struct OciProcessInput {
    client: RuntimeClient,
    process: ProcessTarget,
    generation: ExecutionGeneration,
    terminal: bool,
    stdin_open: AtomicBool,
    /// One mutation at a time, in the order of the calls.
    turn: Semaphore,
    mutations: AtomicU64,
}

impl OciProcessInput {
    pub(super) fn new(
        client: RuntimeClient,
        process: ProcessTarget,
        generation: ExecutionGeneration,
        stdin_open: bool,
        terminal: bool,
    ) -> Self {
        Self {
            client,
            process,
            generation,
            terminal,
            stdin_open: AtomicBool::new(stdin_open),
            turn: Semaphore::new(1),
            mutations: AtomicU64::new(0),
        }
    }

    /// Writes what a request brought along. A process that has already ended does not want it.
    pub(super) async fn feed(&self, data: &[u8]) -> ExecutionManagerResult<()> {
        if data.is_empty() {
            return Ok(());
        }
        match self.write(data).await {
            Err(Fault::Runtime(error)) if is_gone(&error) => Ok(()),
            other => other.map_err(Into::into),
        }
    }

    /// [`Self::feed`], and the end of the input.
    pub(super) async fn feed_once(&self, data: &[u8]) -> ExecutionManagerResult<()> {
        self.feed(data).await?;
        match self.close().await {
            Err(Fault::Runtime(error)) if is_gone(&error) => Ok(()),
            other => other.map_err(Into::into),
        }
    }

    async fn write(&self, data: &[u8]) -> Result<(), Fault> {
        let data = data.to_vec();
        self.mutate(STDIN, |context, process| {
            self.client.write_stdin(WriteStdinRequest {
                context,
                process,
                data,
            })
        })
        .await
    }

    async fn close(&self) -> Result<(), Fault> {
        self.mutate(CLOSE, |context, process| {
            self.client
                .close_stdin(CloseStdinRequest { context, process })
        })
        .await?;
        self.stdin_open.store(false, Ordering::Release);
        Ok(())
    }

    async fn signal(&self, number: i32) -> Result<(), Fault> {
        let signal = Signal::new(number).map_err(Fault::Runtime)?;
        self.mutate(SIGNAL, |context, process| {
            self.client.signal_process(SignalProcessRequest {
                context,
                process,
                signal,
            })
        })
        .await
    }

    async fn mutate<F>(
        &self,
        label: &str,
        send: impl FnOnce(OperationContext, ProcessTarget) -> F,
    ) -> Result<(), Fault>
    where
        F: Future<Output = a3sbox_oci::Result<()>>,
    {
        let _turn = self
            .turn
            .acquire()
            .await
            .map_err(|_| Fault::Ours(internal("the process's input is closed")))?;
        let number = self.mutations.load(Ordering::Acquire);
        let context = operation_context(
            self.process.process_id.as_str(),
            self.generation,
            label,
            (&self.process, number),
        )
        .map_err(Fault::Ours)?;
        send(context, self.process.clone())
            .await
            .map_err(Fault::Runtime)?;
        self.mutations.store(number + 1, Ordering::Release);
        Ok(())
    }

    fn require_open_stdin(&self) -> ExecutionManagerResult<()> {
        if self.stdin_open.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(invalid("the process's standard input is not open"))
    }
}

#[async_trait]
impl ExecutionProcessInput for OciProcessInput {
    async fn write_stdin(&self, data: &[u8]) -> ExecutionManagerResult<()> {
        self.require_open_stdin()?;
        if data.is_empty() {
            return Ok(());
        }
        Ok(self.write(data).await?)
    }

    async fn close_stdin(&self) -> ExecutionManagerResult<()> {
        self.require_open_stdin()?;
        Ok(self.close().await?)
    }

    async fn cancel(&self) -> ExecutionManagerResult<()> {
        self.send_signal(ExecutionProcessSignal::Kill).await
    }

    async fn send_signal(&self, signal: ExecutionProcessSignal) -> ExecutionManagerResult<()> {
        Ok(self.signal(signal.linux_number()).await?)
    }

    async fn resize_pty(&self, cols: u16, rows: u16) -> ExecutionManagerResult<()> {
        if !self.terminal {
            return Err(invalid("the process has no terminal"));
        }
        let size = terminal_size(cols, rows)?;
        self.mutate(RESIZE, |context, process| {
            self.client.resize(ResizeRequest {
                context,
                process,
                size,
            })
        })
        .await?;
        Ok(())
    }
}

/// Whose error it is: the runtime's still has its code.
#[derive(Debug)]
enum Fault {
    Runtime(Error),
    Ours(ExecutionManagerError),
}

impl From<Fault> for ExecutionManagerError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Runtime(error) => runtime_error(error),
            Fault::Ours(error) => error,
        }
    }
}

/// The process has ended, or nobody reads its input any more.
fn is_gone(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::FailedPrecondition | ErrorCode::NotFound
    )
}
