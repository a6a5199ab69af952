use super::super::test_fixture::{execution, operation, record};
use super::*;
use a3sbox_core::ExecutionGeneration;

use ManagedExecutionState as State;

fn handle() -> Box<LocalExecutionHandle> {
    Box::new(LocalExecutionHandle {
        started_at: DateTime::<Utc>::UNIX_EPOCH,
        pid: Some(7),
        pid_start_time: Some(70),
        exec_socket_path: "/exec.sock".into(),
        console_log: "/console.log".into(),
        anonymous_volumes: vec!["v".into()],
        oci_runtime: None,
    })
}

fn step(record: &mut BoxRecord, to: State, update: RuntimeUpdate) -> StoreResult<()> {
    let from = record.state().unwrap();
    let id = execution(&record.id);
    apply_transition(record, &id, from, to, update, DateTime::<Utc>::UNIX_EPOCH)
}

fn running() -> BoxRecord {
    let mut record = record("one", "op");
    step(&mut record, State::Starting, RuntimeUpdate::None).unwrap();
    step(
        &mut record,
        State::Running,
        RuntimeUpdate::StartHandle(handle()),
    )
    .unwrap();
    record
}

fn generation(record: &BoxRecord) -> u64 {
    record.generation().unwrap().get()
}

fn pending(record: &BoxRecord) -> Option<&'static str> {
    let operation = record.metadata().unwrap().pending_operation.as_ref();
    operation.map(ManagedExecutionOperation::kind)
}

#[test]
fn a_start_claims_itself_and_its_handle_is_kept() {
    let mut record = record("one", "op");
    step(&mut record, State::Starting, RuntimeUpdate::None).unwrap();
    assert_eq!(pending(&record), Some("start"));
    record.check().unwrap();
    step(
        &mut record,
        State::Running,
        RuntimeUpdate::StartHandle(handle()),
    )
    .unwrap();
    assert_eq!((record.pid, pending(&record)), (Some(7), None));
    assert_eq!(record.anonymous_volumes, ["v"]);
    assert_eq!(generation(&record), 1);
    record.check().unwrap();
}

#[test]
fn only_completions_of_pause_resume_and_restart_advance_the_generation() {
    let mut record = running();
    let claim = || RuntimeUpdate::PauseClaim {
        keep_memory: true,
        operation_id: operation("p"),
    };
    step(&mut record, State::Pausing, claim()).unwrap();
    step(&mut record, State::Running, RuntimeUpdate::None).unwrap();
    assert_eq!(generation(&record), 1, "a roll back keeps it");
    step(&mut record, State::Pausing, claim()).unwrap();
    step(&mut record, State::Paused, RuntimeUpdate::Handle(handle())).unwrap();
    assert_eq!(generation(&record), 2);
    step(
        &mut record,
        State::Resuming,
        RuntimeUpdate::ResumeClaim(operation("r")),
    )
    .unwrap();
    step(&mut record, State::Running, RuntimeUpdate::Handle(handle())).unwrap();
    assert_eq!(generation(&record), 3);
    let claim = RuntimeUpdate::RestartClaim {
        operation_id: operation("again"),
        stop_timeout_secs: Some(3),
    };
    step(&mut record, State::RestartStopping, claim).unwrap();
    step(
        &mut record,
        State::RestartStarting,
        RuntimeUpdate::RestartAdvance,
    )
    .unwrap();
    assert_eq!(
        (generation(&record), pending(&record)),
        (4, Some("restart"))
    );
    assert_eq!(record.pid, None);
    record.check().unwrap();
    step(
        &mut record,
        State::Running,
        RuntimeUpdate::RestartHandle(handle()),
    )
    .unwrap();
    let done = record.metadata().unwrap().last_restart.clone().unwrap();
    assert_eq!(done.operation_id, operation("again"));
    assert_eq!(done.generation, ExecutionGeneration::new(4).unwrap());
}

#[test]
fn an_end_clears_what_was_live_and_keeps_an_unknown_code_unknown() {
    for (code, update) in [
        (None, RuntimeUpdate::Terminal(None)),
        (Some(3), RuntimeUpdate::Terminal(Some(3))),
    ] {
        let mut record = running();
        step(&mut record, State::Stopped, update).unwrap();
        assert_eq!((record.exit_code, record.pid), (code, None));
        assert!(record.metadata().unwrap().finished_at.is_some());
        assert!(!record.stopped_by_user);
        record.check().unwrap();
    }
    let mut record = running();
    let claim = RuntimeUpdate::KillClaim {
        signal: Some(15),
        timeout_secs: None,
    };
    step(&mut record, State::Killing, claim).unwrap();
    step(
        &mut record,
        State::Stopped,
        RuntimeUpdate::KillTerminal(Some(143)),
    )
    .unwrap();
    assert!(record.stopped_by_user);
}

#[test]
fn a_completed_resource_update_is_merged_and_remembered() {
    let mut record = running();
    let update = ExecutionResourceUpdate {
        cpu_shares: Some(512),
        ..ExecutionResourceUpdate::default()
    };
    let claim = RuntimeUpdate::ResourceUpdateClaim {
        operation_id: operation("u"),
        update: update.clone(),
    };
    step(&mut record, State::UpdatingResources, claim).unwrap();
    step(
        &mut record,
        State::Running,
        RuntimeUpdate::ResourceUpdateComplete,
    )
    .unwrap();
    let metadata = record.metadata().unwrap();
    assert_eq!(record.resource_limits.cpu_shares, Some(512));
    assert_eq!(
        metadata.request.config.resource_limits,
        record.resource_limits
    );
    assert_eq!(
        metadata.last_resource_update.as_ref().unwrap().update,
        update
    );
    assert_eq!(generation(&record), 1);
}

#[test]
fn a_claim_of_another_state_is_dropped_by_the_rules() {
    let mut record = running();
    let claim = RuntimeUpdate::ResumeClaim(operation("r"));
    step(&mut record, State::Pausing, claim).unwrap();
    assert!(
        record.check().is_err(),
        "pausing without a pause is refused"
    );
}

#[test]
fn a_handle_that_no_record_may_hold_is_refused() {
    let mut record = record("one", "op");
    step(&mut record, State::Starting, RuntimeUpdate::None).unwrap();
    let mut bad = handle();
    bad.exec_socket_path = std::path::PathBuf::new();
    assert!(step(&mut record, State::Running, RuntimeUpdate::StartHandle(bad)).is_err());
}
