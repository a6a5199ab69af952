use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::config::BoxConfig;
use crate::policy::ExecutionRecordPolicy;

/// Implements what is required and `create` and `start`, and writes down what was called.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<String>>,
}

impl Recorder {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

/// Only the required methods: everything else must be `Unavailable`.
struct Bare;

impl Bare {
    fn note(&self, _: String) {}
}

fn gone<T>(execution_id: &ExecutionId) -> ExecutionManagerResult<T> {
    Err(ExecutionManagerError::NotFound(execution_id.clone()))
}

// The whole impl comes from the macro, because `async_trait` does not see through one inside it.
macro_rules! manager {
    ($name:ident, { $($more:tt)* }) => {
        #[async_trait]
        impl ExecutionManager for $name {
            async fn inspect(&self, id: &ExecutionId) -> ExecutionManagerResult<ExecutionStatus> {
                gone(id)
            }

            async fn pause(
                &self,
                id: &ExecutionId,
                _: ExecutionGeneration,
                _: bool,
            ) -> ExecutionManagerResult<ExecutionLease> {
                gone(id)
            }

            async fn resume(
                &self,
                id: &ExecutionId,
                _: ExecutionGeneration,
            ) -> ExecutionManagerResult<ExecutionLease> {
                gone(id)
            }

            async fn kill(
                &self,
                _: &ExecutionId,
                generation: ExecutionGeneration,
            ) -> ExecutionManagerResult<KillOutcome> {
                self.note(format!("kill {generation}"));
                Ok(KillOutcome::Killed)
            }

            async fn reconcile(
                &self,
                _: &OperationId,
            ) -> ExecutionManagerResult<ReconcileOutcome> {
                Ok(ReconcileOutcome::Absent)
            }

            $($more)*
        }
    };
}

manager!(Bare, {});
manager!(Recorder, {
    async fn create(
        &self,
        request: CreateExecutionRequest,
        operation_id: &OperationId,
    ) -> ExecutionManagerResult<ExecutionReservation> {
        self.note(format!("create {operation_id}"));
        Ok(ExecutionReservation {
            execution_id: id(),
            generation: ExecutionGeneration::INITIAL,
            plan: crate::resolve_execution(&request.config).unwrap(),
            resources: request.config.resources,
            created_at: chrono::DateTime::UNIX_EPOCH,
        })
    }

    async fn start(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.note(format!("start {execution_id} {generation}"));
        gone(execution_id)
    }

    async fn restart_with_options(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        operation_id: &OperationId,
        options: RestartExecutionOptions,
    ) -> ExecutionManagerResult<ExecutionLease> {
        self.note(format!("restart {generation} {operation_id} {options:?}"));
        gone(execution_id)
    }
});

/// Runs a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

fn id() -> ExecutionId {
    ExecutionId::new("e-1").unwrap()
}

fn op() -> OperationId {
    OperationId::new("op-1").unwrap()
}

fn request() -> CreateExecutionRequest {
    CreateExecutionRequest {
        external_sandbox_id: "x".into(),
        config: BoxConfig::default(),
        labels: Default::default(),
        policy: ExecutionRecordPolicy::default(),
        rootfs_snapshot_id: None,
    }
}

#[test]
fn create_and_start_is_one_create_and_one_start_of_what_was_reserved() {
    let manager = Recorder::default();
    let result = now(manager.create_and_start(request(), &op()));
    assert!(matches!(result, Err(ExecutionManagerError::NotFound(_))));
    assert_eq!(manager.calls(), ["create op-1", "start e-1 1"]);
}

#[test]
fn restart_is_restart_with_default_options() {
    let manager = Recorder::default();
    let generation = ExecutionGeneration::new(3).unwrap();
    now(manager.restart(&id(), generation, &op())).unwrap_err();
    let options = RestartExecutionOptions::default();
    assert_eq!(manager.calls(), [format!("restart 3 op-1 {options:?}")]);
}

#[test]
fn kill_with_options_is_kill() {
    let manager = Recorder::default();
    let options = KillExecutionOptions {
        signal: Some(15),
        timeout_secs: Some(1),
    };
    let outcome = now(manager.kill_with_options(&id(), ExecutionGeneration::INITIAL, options));
    assert_eq!(outcome.unwrap(), KillOutcome::Killed);
    assert_eq!(manager.calls(), ["kill 1"]);
}

#[test]
fn a_verb_that_a_manager_lacks_is_unavailable() {
    fn check<T>(verb: &str, result: ExecutionManagerResult<T>) {
        match result {
            Err(ExecutionManagerError::Unavailable(text)) => assert!(text.contains(verb), "{text}"),
            Err(other) => panic!("{verb}: {other}"),
            Ok(_) => panic!("{verb} succeeded"),
        }
    }
    let (id, op, first) = (id(), op(), ExecutionGeneration::INITIAL);
    let snapshot = ExecutionSnapshotId::new("s").unwrap();
    let events = ExecutionEventsRequest {
        after_sequence: 0,
        limit: 1,
        wait_timeout_ms: None,
    };
    check("create", now(Bare.create(request(), &op)));
    check("start", now(Bare.start(&id, first)));
    check("create", now(Bare.create_and_start(request(), &op)));
    check("read_logs", now(Bare.read_logs(&id, first)));
    check("list_processes", now(Bare.list_processes(&id, first)));
    check("stats", now(Bare.stats(&id, first)));
    check("events", now(Bare.events(&id, first, events)));
    let update = ExecutionResourceUpdate::default();
    check(
        "update_resources",
        now(Bare.update_resources(&id, first, &op, update)),
    );
    check(
        "create_filesystem_snapshot",
        now(Bare.create_filesystem_snapshot(&id, first, &snapshot)),
    );
    check(
        "filesystem_snapshot_size",
        now(Bare.filesystem_snapshot_size(&snapshot)),
    );
    check(
        "delete_filesystem_snapshot",
        now(Bare.delete_filesystem_snapshot(&snapshot)),
    );
    check("restart_with_options", now(Bare.restart(&id, first, &op)));
    check("remove", now(Bare.remove(&id, first)));
}

#[test]
fn the_trait_is_an_object_that_crosses_threads() {
    fn shared<T: Send + Sync + ?Sized>(_: &T) {}
    let manager: std::sync::Arc<dyn ExecutionManager> = std::sync::Arc::new(Bare);
    shared(manager.as_ref());
}
