//! Containers and the verbs that take them through their life.

use std::collections::HashMap;

use a3sbox_oci::oci_spec::runtime::{ContainerState, StateBuilder};
use a3sbox_oci::{
    ContainerId, ContainerOperationRequest, ContainerRecord, CreateRequest, DeleteMode,
    DeleteRequest, DriverKind, Error, ErrorCode, ExitStatus, Generation, IsolationClass,
    KillRequest, PAUSED_STATE_ANNOTATION, Result, RuntimeOperation, StartRequest, StateRequest,
    UpdateRequest, WaitRequest,
};

use super::{GENERATION, State};

const OCI_VERSION: &str = "1.3.0";
/// Unrelated to any submitted folder: nobody may compare it.
const STATE_BUNDLE: &str = "/fake/runtime/bundle";
const VM_PID: i32 = 4242;
/// Overrides the pid of containers on the host's kernel.
const PID_VARIABLE: &str = "A3S_BOX_TEST_RUNTIME_RECORD_PID";

#[derive(Debug, Clone)]
pub(super) struct Container {
    id: ContainerId,
    status: ContainerState,
    generation: Generation,
    driver: DriverKind,
    isolation: IsolationClass,
    config_digest: String,
    attachments_digest: Option<String>,
    paused: bool,
    exit: Option<ExitStatus>,
    create: Option<CreateRequest>,
}

impl Container {
    pub(super) fn planted(record: &ContainerRecord) -> Self {
        Self {
            id: ContainerId::new(record.state.id().clone()).expect("a planted container has an id"),
            status: *record.state.status(),
            generation: record.generation,
            driver: record.driver,
            isolation: record.isolation,
            config_digest: record.config_digest.clone(),
            attachments_digest: record.attachments_digest.clone(),
            paused: record.is_paused(),
            exit: None,
            create: None,
        }
    }

    pub(super) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn stop(&mut self, exit: Option<ExitStatus>) {
        self.status = ContainerState::Stopped;
        self.paused = false;
        self.exit = exit;
    }

    pub(super) fn require_running(&self) -> Result<()> {
        if self.status == ContainerState::Running {
            return Ok(());
        }
        Err(precondition(format!(
            "container {} is {}",
            self.id, self.status
        )))
    }

    pub(super) fn record(&self) -> ContainerRecord {
        let mut state = StateBuilder::default()
            .version(OCI_VERSION)
            .id(self.id.as_str())
            .status(self.status)
            .bundle(STATE_BUNDLE);
        if self.status != ContainerState::Stopped {
            state = state.pid(self.pid());
        }
        if self.paused {
            let annotation = (PAUSED_STATE_ANNOTATION.to_owned(), "true".to_owned());
            state = state.annotations(HashMap::from([annotation]));
        }
        ContainerRecord {
            state: state.build().expect("a state has all it needs"),
            generation: self.generation,
            driver: self.driver,
            isolation: self.isolation,
            config_digest: self.config_digest.clone(),
            attachments_digest: self.attachments_digest.clone(),
        }
    }

    fn pid(&self) -> i32 {
        if self.isolation != IsolationClass::SharedHostKernel {
            return VM_PID;
        }
        let given = std::env::var(PID_VARIABLE)
            .ok()
            .and_then(|pid| pid.parse().ok());
        given.unwrap_or_else(|| i32::try_from(std::process::id()).expect("a pid is an i32"))
    }
}

impl State {
    pub(super) fn create(&mut self, request: CreateRequest) -> Result<ContainerRecord> {
        self.recorded.creates.push(request.clone());
        if let Some(existing) = self.containers.get(&request.id) {
            if existing.create.as_ref() == Some(&request) {
                return Ok(existing.record());
            }
            return Err(Error::new(
                ErrorCode::AlreadyExists,
                format!("container {} exists", request.id),
            ));
        }
        let isolation = request.isolation.class();
        let submitted = request.attachments.digest()?;
        let container = Container {
            id: request.id.clone(),
            status: ContainerState::Created,
            generation: GENERATION,
            driver: match isolation {
                IsolationClass::SharedHostKernel => DriverKind::NativeLinux,
                _ => DriverKind::LibkrunWhpx,
            },
            isolation,
            config_digest: self
                .switches
                .config_digest
                .clone()
                .unwrap_or_else(|| request.bundle.config_digest().to_owned()),
            attachments_digest: Some(
                self.switches
                    .attachments_digest
                    .clone()
                    .unwrap_or(submitted),
            ),
            paused: false,
            exit: None,
            create: Some(request),
        };
        let record = container.record();
        self.containers.insert(container.id.clone(), container);
        self.answer(RuntimeOperation::Create, record)
    }

    pub(super) fn state(&mut self, request: &StateRequest) -> Result<ContainerRecord> {
        Ok(self.container(&request.target)?.record())
    }

    pub(super) fn start(&mut self, request: StartRequest) -> Result<ContainerRecord> {
        self.recorded.starts.push(request.clone());
        let container = self.container(&request.target)?;
        match container.status {
            ContainerState::Created => container.status = ContainerState::Running,
            ContainerState::Running => {}
            other => {
                return Err(precondition(format!(
                    "container {} is {other}",
                    container.id
                )));
            }
        }
        let record = container.record();
        self.answer(RuntimeOperation::Start, record)
    }

    pub(super) fn kill(&mut self, request: &KillRequest) -> Result<ContainerRecord> {
        let signal = request.signal.get();
        self.recorded.kills.push(signal);
        let is_ignored = self.switches.only_signal_nine && signal != 9;
        let container = self.container(&request.target)?;
        if container.status == ContainerState::Stopped {
            return Err(precondition(format!(
                "container {} is stopped",
                container.id
            )));
        }
        if !is_ignored {
            container.stop(Some(ExitStatus::signaled(signal, false)?));
        }
        Ok(container.record())
    }

    pub(super) fn wait(&mut self, request: &WaitRequest) -> Result<ExitStatus> {
        let container = self.container(&request.target)?;
        match (&container.exit, container.status) {
            (Some(exit), _) => Ok(exit.clone()),
            (None, ContainerState::Stopped) => Err(precondition(format!(
                "container {} stopped and left no exit status",
                container.id
            ))),
            (None, _) => Err(still_running(&container.id)),
        }
    }

    pub(super) fn delete(&mut self, request: &DeleteRequest) -> Result<()> {
        self.recorded.deletes.push(request.mode);
        let container = self.container(&request.target)?;
        let stopped = container.status == ContainerState::Stopped;
        if request.mode == DeleteMode::StoppedOnly && !stopped {
            return Err(precondition(format!(
                "container {} is not stopped",
                container.id
            )));
        }
        self.containers.remove(&request.target.id);
        self.processes
            .retain(|_, process| process.container_id() != &request.target.id);
        Ok(())
    }

    pub(super) fn toggle(
        &mut self,
        operation: RuntimeOperation,
        request: ContainerOperationRequest,
    ) -> Result<ContainerRecord> {
        let paused = operation == RuntimeOperation::Pause;
        let recorded = if paused {
            &mut self.recorded.pauses
        } else {
            &mut self.recorded.resumes
        };
        recorded.push(request.clone());
        if paused && self.switches.pause_fails_before_effect > 0 {
            self.switches.pause_fails_before_effect -= 1;
            return Err(Error::new(ErrorCode::Unavailable, "the pause was refused"));
        }
        let container = self.container(&request.target)?;
        container.require_running()?;
        container.paused = paused;
        let record = container.record();
        self.answer(operation, record)
    }

    pub(super) fn update(&mut self, request: UpdateRequest) -> Result<ContainerRecord> {
        self.recorded.updates.push(request.clone());
        let container = self.container(&request.target)?;
        container.require_running()?;
        if container.paused {
            return Err(precondition(format!(
                "container {} is paused",
                container.id
            )));
        }
        let record = container.record();
        self.updates.admit(&request.context, &request)?;
        self.answer(RuntimeOperation::Update, record)
    }
}

pub(super) fn precondition(message: String) -> Error {
    Error::new(ErrorCode::FailedPrecondition, message)
}

pub(super) fn still_running(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::DeadlineExceeded, format!("{what} still runs")).retryable(true)
}
