//! A backend in memory: one execution, faults before or after an effect, and gates to stop in one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use a3sbox_core::{
    ExecutionManagerError, ExecutionManagerResult, ExecutionResourceUpdate, ExecutionState,
    KillOutcome, OperationId,
};
use async_trait::async_trait;
use chrono::Utc;
use tokio::sync::Semaphore;

use crate::{
    BoxRecord, LocalExecutionBackend, LocalExecutionHandle, LocalExecutionObservation,
    LocalExecutionTermination, ManagedExecutionOperation, ManagedRuntimeRoute,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runtime {
    Absent,
    Created,
    Running,
    Paused,
    Stopped(Option<i32>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Before,
    After,
}

#[derive(Debug, Default)]
pub(super) struct Probe {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
    calls: Vec<&'static str>,
    /// Effects, once per identity.
    effects: Vec<String>,
    faults: HashMap<&'static str, Fault>,
    gates: HashMap<&'static str, Gate>,
    route_at_preflight: Option<ManagedRuntimeRoute>,
}

/// The named call announces itself and waits.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    entered: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    /// Waits until a call stands before the gate.
    pub(super) async fn entered(&self) {
        self.entered.acquire().await.unwrap().forget();
    }

    pub(super) fn open(&self) {
        self.open.add_permits(1);
    }
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            runtime: Runtime::Absent,
            calls: Vec::new(),
            effects: Vec::new(),
            faults: HashMap::new(),
            gates: HashMap::new(),
            route_at_preflight: None,
        }
    }
}

impl Probe {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap())
    }

    pub(super) fn set(&self, runtime: Runtime) {
        self.with(|inner| inner.runtime = runtime);
    }

    pub(super) fn runtime(&self) -> Runtime {
        self.with(|inner| inner.runtime)
    }

    /// The next call of that name fails.
    pub(super) fn fail(&self, call: &'static str, fault: Fault) {
        self.with(|inner| inner.faults.insert(call, fault));
    }

    pub(super) fn gate(&self, call: &'static str) -> Gate {
        let gate = Gate {
            entered: Arc::new(Semaphore::new(0)),
            open: Arc::new(Semaphore::new(0)),
        };
        self.with(|inner| inner.gates.insert(call, gate.clone()));
        gate
    }

    pub(super) fn count(&self, call: &str) -> usize {
        self.with(|inner| inner.calls.iter().filter(|name| **name == call).count())
    }

    pub(super) fn effects(&self, call: &str) -> usize {
        self.with(|inner| {
            let is_of = |effect: &&String| effect.split(' ').next() == Some(call);
            inner.effects.iter().filter(is_of).count()
        })
    }

    pub(super) fn route_at_preflight(&self) -> Option<ManagedRuntimeRoute> {
        self.with(|inner| inner.route_at_preflight)
    }

    /// One call: gate, fault before, effect once per identity, fault after.
    async fn call(
        &self,
        name: &'static str,
        identity: &str,
        effect: impl FnOnce(&mut Inner) -> ExecutionManagerResult<()>,
    ) -> ExecutionManagerResult<()> {
        let gate = self.with(|inner| {
            inner.calls.push(name);
            inner.gates.remove(name)
        });
        if let Some(gate) = gate {
            gate.entered.add_permits(1);
            gate.open.acquire().await.unwrap().forget();
        }
        self.with(|inner| {
            let fault = inner.faults.remove(name);
            let failure = || ExecutionManagerError::Unavailable(format!("injected in {name}"));
            if fault == Some(Fault::Before) {
                return Err(failure());
            }
            let identity = format!("{name} {identity}");
            if !inner.effects.contains(&identity) {
                effect(inner)?;
                inner.effects.push(identity);
            }
            match fault {
                Some(Fault::After) => Err(failure()),
                Some(Fault::Before) | None => Ok(()),
            }
        })
    }
}

fn handle(record: &BoxRecord) -> LocalExecutionHandle {
    LocalExecutionHandle {
        started_at: Utc::now(),
        pid: Some(4242),
        pid_start_time: None,
        exec_socket_path: record.exec_socket_path.clone(),
        console_log: record.console_log.clone(),
        anonymous_volumes: Vec::new(),
        oci_runtime: None,
    }
}

/// What makes an effect one and the same: the pending operation and the generation.
fn identity(record: &BoxRecord) -> String {
    let metadata = record.metadata().unwrap();
    let pending = match &metadata.pending_operation {
        Some(
            ManagedExecutionOperation::Resume { operation_id }
            | ManagedExecutionOperation::Snapshot { operation_id, .. }
            | ManagedExecutionOperation::Pause {
                operation_id: Some(operation_id),
                ..
            },
        ) => operation_id.as_str().to_owned(),
        other => other.as_ref().map_or("none", |op| op.kind()).to_owned(),
    };
    format!("{} {pending}", metadata.generation)
}

fn refuse(message: &str) -> ExecutionManagerResult<()> {
    Err(ExecutionManagerError::Unavailable(message.to_owned()))
}

#[async_trait]
impl LocalExecutionBackend for Probe {
    fn route_for_create(&self, _record: &BoxRecord) -> ExecutionManagerResult<ManagedRuntimeRoute> {
        Ok(ManagedRuntimeRoute::BoxVm)
    }

    async fn preflight(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let route = record.metadata().unwrap().runtime_route;
        self.with(|inner| inner.route_at_preflight = Some(route));
        self.call("preflight", &record.id, |_| Ok(())).await
    }

    async fn start(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.call("start", &identity(record), |inner| {
            inner.runtime = Runtime::Running;
            Ok(())
        })
        .await?;
        Ok(handle(record))
    }

    async fn inspect(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionObservation> {
        self.with(|inner| {
            inner
                .effects
                .retain(|effect| !effect.starts_with("inspect "))
        });
        self.call("inspect", "", |_| Ok(())).await?;
        let (state, exit_code) = match self.runtime() {
            Runtime::Absent => return Err(ExecutionManagerError::NotFound(record.execution_id()?)),
            Runtime::Created => (ExecutionState::Created, None),
            Runtime::Running => (ExecutionState::Running, None),
            Runtime::Paused => (ExecutionState::Paused, None),
            Runtime::Stopped(code) => (ExecutionState::Stopped, code),
        };
        let is_live = matches!(state, ExecutionState::Running | ExecutionState::Paused);
        Ok(LocalExecutionObservation {
            state,
            handle: is_live.then(|| handle(record)),
            exit_code,
        })
    }

    async fn pause(
        &self,
        record: &BoxRecord,
        _keep_memory: bool,
    ) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.call("pause", &identity(record), |inner| match inner.runtime {
            Runtime::Running => {
                inner.runtime = Runtime::Paused;
                Ok(())
            }
            _ => refuse("not running"),
        })
        .await?;
        Ok(handle(record))
    }

    async fn resume(&self, record: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        self.call("resume", &identity(record), |inner| match inner.runtime {
            Runtime::Paused => {
                inner.runtime = Runtime::Running;
                Ok(())
            }
            _ => refuse("not paused"),
        })
        .await?;
        Ok(handle(record))
    }

    async fn preflight_resource_update(
        &self,
        record: &BoxRecord,
        _update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        self.call("preflight_update", &record.id, |_| Ok(())).await
    }

    async fn update_resources(
        &self,
        _record: &BoxRecord,
        operation_id: &OperationId,
        _update: &ExecutionResourceUpdate,
    ) -> ExecutionManagerResult<()> {
        self.call("update", operation_id.as_str(), |inner| {
            match inner.runtime {
                Runtime::Running => Ok(()),
                _ => refuse("not running"),
            }
        })
        .await
    }

    async fn stop_for_restart(
        &self,
        record: &BoxRecord,
        _timeout_secs: Option<u64>,
    ) -> ExecutionManagerResult<KillOutcome> {
        self.call("stop_for_restart", &identity(record), |inner| {
            inner.runtime = Runtime::Absent;
            Ok(())
        })
        .await?;
        Ok(KillOutcome::Killed)
    }

    async fn kill(&self, record: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        Ok(self.kill_with_status(record).await?.outcome)
    }

    async fn kill_with_status(
        &self,
        record: &BoxRecord,
    ) -> ExecutionManagerResult<LocalExecutionTermination> {
        let before = self.runtime();
        self.with(|inner| inner.effects.retain(|effect| !effect.starts_with("kill ")));
        self.call("kill", &identity(record), |inner| {
            inner.runtime = Runtime::Absent;
            Ok(())
        })
        .await?;
        Ok(match before {
            Runtime::Absent => LocalExecutionTermination {
                outcome: KillOutcome::AlreadyStopped,
                exit_code: None,
            },
            Runtime::Stopped(exit_code) => LocalExecutionTermination {
                outcome: KillOutcome::AlreadyStopped,
                exit_code,
            },
            Runtime::Created | Runtime::Running | Runtime::Paused => LocalExecutionTermination {
                outcome: KillOutcome::Killed,
                exit_code: Some(137),
            },
        })
    }
}
