//! Create and start.

use a3sbox_core::{ExecutionGeneration, ExecutionIsolation, ExecutionManager as _};
use a3sbox_execution::process::pid_start_time;
use a3sbox_oci::{DriverKind, IsolationClass, RuntimeOperation};

use super::{assert_conflict, assert_internal, assert_invalid, ready};
use crate::{World, kill_with, operation, request};

const OTHER_DIGEST: &str =
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// proves: B01 B02 B16
pub async fn a_launch_is_one_process_with_its_identity(world: World) {
    let launched = world.launch().await;
    let id = launched.id();
    assert_eq!(launched.generation(), ExecutionGeneration::INITIAL);
    let record = world.record(id);
    let pid = record.pid.expect("the pid of a process on this kernel");
    assert_eq!(record.pid_start_time, pid_start_time(pid));
    assert!(world.processes(id).contains(&pid));
    assert!(record.exec_socket_path.as_os_str().is_empty());

    let metadata = world.metadata(id);
    let binding = metadata.oci_runtime.unwrap();
    assert_eq!(binding.endpoint, world.endpoint());
    assert_eq!(binding.target.id.as_str(), format!("a3s-box-{id}"));
    assert_eq!(binding.driver, DriverKind::NativeLinux);
    assert_eq!(binding.isolation, IsolationClass::SharedHostKernel);
    let generation = binding.target.generation.unwrap();
    assert_ne!(generation.0, 0);
    assert_ne!(generation.0, launched.generation().get());

    assert_eq!(world.lines("starts"), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Create), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Start), 1);
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 0));
    end(&world, &launched).await;
}

// proves: B13
pub async fn a_preparation_that_does_not_fit_leaves_nothing(world: World) {
    world
        .provider
        .answer_console_log("/var/log/another.log".into());
    let refused = world
        .manager
        .create_and_start(
            request(ExecutionIsolation::Sandbox, &[]),
            &operation("create"),
        )
        .await;
    assert_invalid(refused, "console path");
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 1));
    assert_eq!(world.faults.calls(RuntimeOperation::Create), 0);
    world.assert_nothing_runs(None);
}

// proves: B14
pub async fn evidence_of_another_config_removes_the_container(world: World) {
    world.faults.answer_config_digest(OTHER_DIGEST);
    refused_by_evidence(&world, "submitted bundle").await;
}

// proves: B15
pub async fn evidence_of_other_attachments_removes_the_container(world: World) {
    world.faults.answer_attachments_digest(OTHER_DIGEST);
    refused_by_evidence(&world, "submitted manifest").await;
}

async fn refused_by_evidence(world: &World, needle: &str) {
    let refused = world
        .manager
        .create_and_start(
            request(ExecutionIsolation::Sandbox, &[]),
            &operation("create"),
        )
        .await;
    assert_internal(refused, needle);
    assert_eq!(world.faults.calls(RuntimeOperation::Delete), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Start), 0);
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 1));
    assert_eq!(world.lines("starts"), 0);
    world.assert_nothing_runs(None);
}

// proves: B42
pub async fn a_lost_create_answer_makes_no_second_container(world: World) {
    world.faults.lose_answer(RuntimeOperation::Create);
    let launched = world.launch().await;
    assert_one_launch(&world);
    let record = world.record(launched.id());
    assert_eq!(record.status, "running");
    end(&world, &launched).await;
}

// proves: B40
pub async fn a_lost_start_answer_makes_no_second_start(world: World) {
    world.faults.lose_answer(RuntimeOperation::Start);
    let launched = world.launch().await;
    assert_one_launch(&world);
    assert!(world.metadata(launched.id()).oci_runtime.is_some());
    end(&world, &launched).await;
}

fn assert_one_launch(world: &World) {
    assert_eq!(world.lines("starts"), 1);
    assert_eq!(world.runtime_containers().len(), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Create), 1);
    assert_eq!(world.faults.calls(RuntimeOperation::Start), 1);
    let counts = world.provider.counts();
    assert_eq!((counts.prepares, counts.cleanups), (1, 0));
}

// proves: B41 B43
pub async fn nothing_runs_before_its_log_projection(world: World) {
    world.provider.refuse_projection(true);
    let operation_id = operation("create");
    let refused = world
        .manager
        .create_and_start(request(ExecutionIsolation::Sandbox, &[]), &operation_id)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("log projection"), "{refused}");
    assert_eq!(world.faults.calls(RuntimeOperation::Start), 0);
    assert_eq!(world.lines("starts"), 0);

    world.provider.refuse_projection(false);
    let lease = ready(world.manager.reconcile(&operation_id).await.unwrap());
    assert_eq!(lease.generation, ExecutionGeneration::INITIAL);
    world.eventually_lines("starts", 1).await;
    assert_one_launch(&world);
    world
        .manager
        .kill(&lease.execution_id, lease.generation)
        .await
        .unwrap();
    world.assert_nothing_runs(Some(&lease.execution_id));
}

// proves: L3.4 L3.5
pub async fn creation_with_a_used_operation_id(world: World) {
    let launched = world.launch().await;
    let again = world
        .manager
        .create_and_start(
            request(ExecutionIsolation::Sandbox, &[]),
            &launched.operation_id,
        )
        .await
        .unwrap();
    assert_eq!(&again.execution_id, launched.id());
    let other = world
        .manager
        .create_and_start(
            request(ExecutionIsolation::Sandbox, &["true"]),
            &launched.operation_id,
        )
        .await;
    assert_conflict(other);
    assert_one_launch(&world);
    end(&world, &launched).await;
}

/// Ends the execution, and sees that nothing is left of it.
pub(super) async fn end(world: &World, launched: &crate::Launched) {
    let id = launched.id();
    let generation = world.manager.inspect(id).await.unwrap().generation;
    world
        .manager
        .kill_with_options(id, generation, kill_with(9, None))
        .await
        .unwrap();
    world.assert_nothing_runs(Some(id));
}
