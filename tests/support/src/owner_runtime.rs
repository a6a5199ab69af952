//! A runtime service whose whole state is one file.
//!
//! The process that serves it can be killed and another one can go on from the file: what the double
//! stands for is an owner of containers that restarts while they run. Its processes echo their standard
//! input. Beside the state lies a log with the name of every effect, one a line.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use a3sbox_oci::oci_spec::runtime::{ContainerState, StateBuilder};
use a3sbox_oci::{
    CloseStdinRequest, ContainerRecord, ContainerTarget, CreateRequest, DeleteRequest, DriverKind,
    Error, ErrorCode, ExecRequest, ExitStatus, Generation, IsolationClass, KillRequest,
    OciRuntimeService, OperationContext, OperationId, OutputChunk, OutputStream, ProcessId,
    ProcessRecord, ProcessTarget, ProcessesRequest, ReadOutputRequest, Result, RuntimeInfo,
    RuntimeOperation, SignalProcessRequest, StartRequest, StateRequest, WaitProcessRequest,
    WaitRequest, WriteStdinRequest, async_trait, serve_transport_connection,
};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use crate::RuntimeReport;

const GENERATION: Generation = Generation(41);
const FIRST_OUTPUT: &[u8] = b"runtime owner session\n";
const EXEC_PID: u32 = 9000;
/// What it does not advertise.
const ABSENT: [RuntimeOperation; 8] = [
    RuntimeOperation::Pause,
    RuntimeOperation::Resume,
    RuntimeOperation::Update,
    RuntimeOperation::Stats,
    RuntimeOperation::Events,
    RuntimeOperation::Resize,
    RuntimeOperation::File,
    RuntimeOperation::Filesystem,
];

/// See the module's documentation.
#[derive(Debug)]
pub struct OwnerRuntime {
    state_path: PathBuf,
    log_path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    container: Option<Container>,
    processes: BTreeMap<ProcessId, Process>,
    /// Operation ids whose effect has happened.
    done: Vec<OperationId>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Container {
    create: CreateRequest,
    status: ContainerState,
    exit: Option<ExitStatus>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Process {
    request: ExecRequest,
    output: Vec<OutputChunk>,
    exit: Option<ExitStatus>,
}

impl OwnerRuntime {
    /// Goes on from the state at `state_path`, or begins with none. The log lies beside it.
    ///
    /// # Panics
    /// When the state cannot be read.
    #[must_use]
    pub fn open(state_path: &Path) -> Arc<Self> {
        let state = match std::fs::read(state_path) {
            Ok(bytes) => serde_json::from_slice(&bytes).expect("the state file is JSON"),
            Err(_) => State::default(),
        };
        Arc::new(Self {
            state_path: state_path.to_path_buf(),
            log_path: state_path.with_extension("log"),
            state: Mutex::new(state),
        })
    }

    /// The names of the effects so far, in order, whichever process had them.
    #[must_use]
    pub fn effects(state_path: &Path) -> Vec<String> {
        let log = std::fs::read_to_string(state_path.with_extension("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Serves one client after the other until the process ends.
    ///
    /// # Errors
    /// When the socket cannot be bound or fails.
    pub async fn serve(self: Arc<Self>, socket: &Path) -> std::io::Result<()> {
        let _ = std::fs::remove_file(socket);
        // It listens before its name is there: who sees the name can connect.
        let unnamed = socket.with_extension("binding");
        let listener = UnixListener::bind(&unnamed)?;
        std::fs::hard_link(&unnamed, socket)?;
        std::fs::remove_file(&unnamed)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let service: Arc<dyn OciRuntimeService> = self.clone();
            // A client that breaks off is its own affair.
            let _ = serve_transport_connection(service, stream).await;
        }
    }

    /// Runs `effect` on the state unless its operation was done before, and keeps the outcome.
    fn effect<T>(
        &self,
        operation: RuntimeOperation,
        context: &OperationContext,
        act: impl FnOnce(&mut State) -> Result<()>,
        answer: impl FnOnce(&State) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.done.contains(&context.operation_id) {
            act(&mut state)?;
            state.done.push(context.operation_id.clone());
            self.keep(&state, operation);
        }
        answer(&state)
    }

    fn keep(&self, state: &State, operation: RuntimeOperation) {
        if state.container.is_some() {
            let bytes = serde_json::to_vec(state).expect("the state is JSON");
            std::fs::write(&self.state_path, bytes).expect("the state can be written");
        } else {
            std::fs::remove_file(&self.state_path).expect("the state can be removed");
        }
        let mut log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log_path)
            .expect("the log can be opened");
        writeln!(log, "{operation}").expect("the log can be written");
    }

    fn look<T>(&self, look: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn container(&self, target: &ContainerTarget) -> Result<&Container> {
        let container = self
            .container
            .as_ref()
            .filter(|container| container.create.id == target.id);
        let container = container.ok_or_else(|| {
            Error::new(ErrorCode::NotFound, format!("no container {}", target.id))
        })?;
        match target.generation {
            Some(generation) if generation != GENERATION => Err(precondition("another generation")),
            _ => Ok(container),
        }
    }

    fn container_mut(&mut self, target: &ContainerTarget) -> Result<&mut Container> {
        self.container(target)?;
        self.container
            .as_mut()
            .ok_or_else(|| Error::new(ErrorCode::NotFound, format!("no container {}", target.id)))
    }

    fn record(&self, target: &ContainerTarget) -> Result<ContainerRecord> {
        let container = self.container(target)?;
        let mut state = StateBuilder::default()
            .version("1.3.0")
            .id(target.id.as_str())
            .status(container.status)
            .bundle("/fake/owner/bundle");
        if container.status != ContainerState::Stopped {
            // The serving process dies; a container on the host's kernel has the pid of one that lives.
            state = state.pid(1);
        }
        Ok(ContainerRecord {
            state: state.build().expect("a state has all it needs"),
            generation: GENERATION,
            driver: DriverKind::NativeLinux,
            isolation: IsolationClass::SharedHostKernel,
            config_digest: container.create.bundle.config_digest().to_owned(),
            attachments_digest: Some(container.create.attachments.digest()?),
        })
    }

    fn process(&self, target: &ProcessTarget) -> Result<&Process> {
        self.container(&target.container)?;
        self.processes.get(&target.process_id).ok_or_else(|| {
            Error::new(
                ErrorCode::NotFound,
                format!("no process {}", target.process_id),
            )
        })
    }

    fn process_mut(&mut self, target: &ProcessTarget) -> Result<&mut Process> {
        self.process(target)?;
        self.processes.get_mut(&target.process_id).ok_or_else(|| {
            Error::new(
                ErrorCode::NotFound,
                format!("no process {}", target.process_id),
            )
        })
    }
}

impl Process {
    fn record(&self) -> ProcessRecord {
        ProcessRecord {
            target: ProcessTarget {
                container: self.request.container.clone(),
                process_id: self.request.process_id.clone(),
            },
            pid: Some(EXEC_PID),
            terminal: false,
        }
    }

    fn push(&mut self, stream: OutputStream, data: &[u8]) {
        let last = self.output.last().map_or(0, |chunk| chunk.sequence);
        let length = u64::try_from(data.len()).expect("a small chunk").max(1);
        self.output.push(OutputChunk {
            sequence: last + length,
            stream,
            data: data.to_vec(),
            eof: data.is_empty(),
        });
    }
}

fn precondition(message: &str) -> Error {
    Error::new(ErrorCode::FailedPrecondition, message)
}

fn status(exit: Option<&ExitStatus>) -> Result<ExitStatus> {
    exit.cloned()
        .ok_or_else(|| Error::new(ErrorCode::DeadlineExceeded, "it still runs").retryable(true))
}

#[async_trait]
impl OciRuntimeService for OwnerRuntime {
    async fn features(&self) -> Result<RuntimeInfo> {
        ABSENT
            .into_iter()
            .fold(RuntimeReport::default(), RuntimeReport::without)
            .decode()
    }

    async fn create(&self, request: CreateRequest) -> Result<ContainerRecord> {
        let target = ContainerTarget::current(request.id.clone());
        let context = request.context.clone();
        self.effect(
            RuntimeOperation::Create,
            &context,
            |state| {
                let status = ContainerState::Created;
                state.container = Some(Container {
                    create: request,
                    status,
                    exit: None,
                });
                Ok(())
            },
            |state| state.record(&target),
        )
    }

    async fn state(&self, request: StateRequest) -> Result<ContainerRecord> {
        self.look(|state| state.record(&request.target))
    }

    async fn start(&self, request: StartRequest) -> Result<ContainerRecord> {
        self.effect(
            RuntimeOperation::Start,
            &request.context,
            |state| {
                state.container_mut(&request.target)?.status = ContainerState::Running;
                Ok(())
            },
            |state| state.record(&request.target),
        )
    }

    async fn kill(&self, request: KillRequest) -> Result<ContainerRecord> {
        let exit = ExitStatus::signaled(request.signal.get(), false)?;
        self.effect(
            RuntimeOperation::Kill,
            &request.context,
            |state| {
                let container = state.container_mut(&request.target)?;
                container.status = ContainerState::Stopped;
                container.exit = Some(exit);
                Ok(())
            },
            |state| state.record(&request.target),
        )
    }

    async fn delete(&self, request: DeleteRequest) -> Result<()> {
        self.effect(
            RuntimeOperation::Delete,
            &request.context,
            |state| {
                if state.container(&request.target)?.status != ContainerState::Stopped {
                    return Err(precondition("the container is not stopped"));
                }
                *state = State::default();
                Ok(())
            },
            |_| Ok(()),
        )
    }

    async fn wait(&self, request: WaitRequest) -> Result<ExitStatus> {
        self.look(|state| status(state.container(&request.target)?.exit.as_ref()))
    }

    async fn exec(&self, request: ExecRequest) -> Result<ProcessRecord> {
        let target = ProcessTarget {
            container: request.container.clone(),
            process_id: request.process_id.clone(),
        };
        let context = request.context.clone();
        self.effect(
            RuntimeOperation::Exec,
            &context,
            |state| {
                state.container(&request.container)?;
                let id = request.process_id.clone();
                let mut process = Process {
                    request,
                    output: Vec::new(),
                    exit: None,
                };
                process.push(OutputStream::Stdout, FIRST_OUTPUT);
                state.processes.insert(id, process);
                Ok(())
            },
            |state| state.process(&target).map(Process::record),
        )
    }

    async fn processes(&self, request: ProcessesRequest) -> Result<Vec<ProcessRecord>> {
        self.look(|state| {
            state.container(&request.target)?;
            let init = ProcessRecord {
                target: ProcessTarget {
                    container: request.target.clone(),
                    process_id: ProcessId::init(),
                },
                pid: Some(1),
                terminal: false,
            };
            let execs = state.processes.values().map(Process::record);
            Ok(std::iter::once(init).chain(execs).collect())
        })
    }

    async fn read_output(&self, request: ReadOutputRequest) -> Result<Vec<OutputChunk>> {
        self.look(|state| {
            let output = &state.process(&request.process)?.output;
            let unread = output
                .iter()
                .filter(|chunk| chunk.sequence > request.after_sequence);
            Ok(unread.cloned().collect())
        })
    }

    async fn write_stdin(&self, request: WriteStdinRequest) -> Result<()> {
        self.effect(
            RuntimeOperation::WriteStdin,
            &request.context,
            |state| {
                let process = state.process_mut(&request.process)?;
                process.push(OutputStream::Stdout, &request.data);
                Ok(())
            },
            |_| Ok(()),
        )
    }

    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<()> {
        self.effect(
            RuntimeOperation::CloseStdin,
            &request.context,
            |state| state.process(&request.process).map(|_| ()),
            |_| Ok(()),
        )
    }

    async fn signal_process(&self, request: SignalProcessRequest) -> Result<()> {
        let exit = ExitStatus::signaled(request.signal.get(), false)?;
        self.effect(
            RuntimeOperation::SignalProcess,
            &request.context,
            |state| {
                let process = state.process_mut(&request.process)?;
                process.push(OutputStream::Stdout, b"");
                process.push(OutputStream::Stderr, b"");
                process.exit = Some(exit);
                Ok(())
            },
            |_| Ok(()),
        )
    }

    async fn wait_process(&self, request: WaitProcessRequest) -> Result<ExitStatus> {
        self.look(|state| status(state.process(&request.process)?.exit.as_ref()))
    }
}
