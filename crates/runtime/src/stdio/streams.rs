//! The handle on the open streams of one process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use a3sbox_oci::{OutputChunk, TerminalSize};
use tokio::sync::watch;

use super::binary::Logger;
use super::capture::OutputLog;
use super::console::{self, ConsoleSocket};
use super::error::StdioError;
use super::fd::Watched;
use super::pump::{self, Phase, PhaseWatch, Sink, Source};
use super::stdin::{self, InputQueue, InputSink, InputSource};

/// How long output that is still on its way may take after the exit: what containerd's own shim gives.
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// The streams of one process. Clones share them; when the last one goes, they are given up.
#[derive(Debug, Clone)]
pub(crate) struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    phase: watch::Sender<Phase>,
    close_input: watch::Sender<bool>,
    /// Output pumps that have not ended.
    pumping: watch::Sender<usize>,
    input: Option<InputQueue>,
    output: Option<Arc<OutputLog>>,
    terminal: bool,
    /// Locking: for the moment of a move in or out, never across a wait.
    held: Mutex<Held>,
}

/// What is held until the streams are closed.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Reading ends of fifos that the container writes, unread.
    pub(super) readers: Vec<OwnedFd>,
    pub(super) loggers: Vec<Logger>,
    /// What waits for the terminal.
    pub(super) console: Option<PendingConsole>,
    master: Option<OwnedFd>,
}

/// The two sides of a terminal that is not there yet.
#[derive(Debug)]
pub(super) struct PendingConsole {
    pub(super) input: Option<InputSource>,
    pub(super) output: Sink,
    pub(super) size: Option<TerminalSize>,
}

/// What [`super::open()`] prepared before the handle exists.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) input: Option<InputQueue>,
    pub(super) output: Option<Arc<OutputLog>>,
    pub(super) terminal: bool,
}

impl Streams {
    pub(super) fn new(prepared: Prepared) -> Self {
        Self(Arc::new(Shared {
            phase: watch::Sender::new(Phase::Running),
            close_input: watch::Sender::new(false),
            pumping: watch::Sender::new(0),
            input: prepared.input,
            output: prepared.output,
            terminal: prepared.terminal,
            held: Mutex::new(Held::default()),
        }))
    }

    pub(super) fn hold(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.held());
    }

    pub(super) fn phase(&self) -> PhaseWatch {
        PhaseWatch::new(self.0.phase.subscribe())
    }

    /// Starts a task that moves output.
    pub(super) fn pump_output(&self, source: Source, sink: Sink) {
        let phase = self.phase();
        let ended = PumpGuard::new(&self.0.pumping);
        tokio::spawn(async move {
            pump::run(source, sink, phase).await;
            drop(ended);
        });
    }

    /// Starts the task that moves input.
    pub(super) fn pump_input(&self, source: InputSource, sink: InputSink) {
        let close = self.0.close_input.subscribe();
        tokio::spawn(stdin::run(source, sink, close, self.phase()));
    }

    /// Takes the terminal that the engine sent, and starts to move its bytes. To be called after the
    /// engine's create or exec returned; what the process wrote before is in the terminal.
    pub(crate) async fn attach_console(&self, socket: ConsoleSocket) -> Result<(), StdioError> {
        let pending = self.held().console.take().ok_or(StdioError::ConsoleTaken)?;
        let master = socket.receive().await?;
        console::set_initial_size(master.as_fd(), pending.size)
            .map_err(|source| StdioError::Resize { source })?;
        let failed = StdioError::prepare;
        let resized = master.try_clone().map_err(failed("the terminal"))?;
        if let Some(input) = pending.input {
            let written = master.try_clone().map_err(failed("the terminal"))?;
            let written = Watched::writable(written).map_err(failed("the terminal"))?;
            self.pump_input(input, InputSink::Terminal(written));
        }
        let read = Watched::readable(master).map_err(failed("the terminal"))?;
        self.pump_output(Source::Terminal(Some(read)), pending.output);
        self.held().master = Some(resized);
        Ok(())
    }

    /// Ends the input after what has been written so far. In any state, any number of times.
    pub(crate) fn close_stdin(&self) {
        self.0.close_input.send_replace(true);
    }

    /// Writes input of a process whose stdin is a pipe or terminal of the service. All of it is accepted
    /// or none.
    pub(crate) async fn write_stdin(&self, data: Vec<u8>) -> Result<(), StdioError> {
        let input = self.0.input.as_ref().ok_or(StdioError::StdinNotPiped)?;
        if *self.0.close_input.borrow() {
            return Err(StdioError::StdinClosed);
        }
        input.write(data).await
    }

    /// Captured output after a cursor; see the contract's rule. `wait` is how long to wait for the first
    /// byte when there is none.
    pub(crate) async fn read_output(
        &self,
        after_sequence: u64,
        max_bytes: usize,
        wait: Option<Duration>,
    ) -> Result<Vec<OutputChunk>, StdioError> {
        let output = self.0.output.as_ref().ok_or(StdioError::NotCaptured)?;
        Ok(output.read(after_sequence, max_bytes, wait).await)
    }

    /// Captured bytes that were dropped because nobody read them.
    pub(crate) fn dropped_output(&self) -> u64 {
        self.0.output.as_ref().map_or(0, |output| output.dropped())
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), StdioError> {
        if !self.0.terminal {
            return Err(StdioError::NoTerminal);
        }
        let mut held = self.held();
        let held = &mut *held;
        match (&held.master, &mut held.console) {
            (Some(master), _) => console::resize(master.as_fd(), size)
                .map_err(|source| StdioError::Resize { source }),
            // Not there yet: it will have that size from its first moment on.
            (None, Some(pending)) => {
                pending.size = Some(size);
                Ok(())
            }
            (None, None) => Err(StdioError::NoTerminal),
        }
    }

    /// Says that the process has ended, so that what is left is taken and the ends of the streams are
    /// told. At once, before the exit is published.
    pub(crate) fn exited(&self) {
        self.advance(Phase::Exited);
    }

    /// Waits until all output of the process, which has ended, was handed on. False when it was not within
    /// the deadline, because a reader left or does not read; it then goes on until [`Streams::close`].
    pub(crate) async fn drained(&self) -> bool {
        self.exited();
        let mut pumping = self.0.pumping.subscribe();
        let drained = pumping.wait_for(|pumps| *pumps == 0);
        matches!(
            tokio::time::timeout(DRAIN_DEADLINE, drained).await,
            Ok(Ok(_))
        )
    }

    /// Gives everything up: the last call, on delete or after a failed create. Ends within the grace of a
    /// logging binary. Captured output can still be read.
    pub(crate) async fn close(&self) {
        self.advance(Phase::Closed);
        let held = std::mem::take(&mut *self.held());
        drop((held.readers, held.console, held.master));
        for logger in held.loggers {
            logger.finish().await;
        }
    }

    fn advance(&self, phase: Phase) {
        self.0.phase.send_if_modified(|current| {
            let later = phase > *current;
            if later {
                *current = phase;
            }
            later
        });
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a pump for as long as it lives, also when it panics.
#[derive(Debug)]
struct PumpGuard(watch::Sender<usize>);

impl PumpGuard {
    fn new(pumping: &watch::Sender<usize>) -> Self {
        pumping.send_modify(|pumps| *pumps += 1);
        Self(pumping.clone())
    }
}

impl Drop for PumpGuard {
    fn drop(&mut self) {
        self.0.send_modify(|pumps| *pumps = pumps.saturating_sub(1));
    }
}
