//! A container's life on a real engine (runc 1.1.5 is what CI has).

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use a3sbox_oci::{
    ContainerTarget, DeleteMode, ErrorCode, EventsRequest, Generation, OciContainerState,
    OciRuntimeService, OperationContext, RuntimeEventKind, StartRequest, StateRequest, WaitRequest,
};
use support::{World, cgroup_of, context, eventually, init_of, target};

#[tokio::test]
async fn a_life_from_create_to_delete_leaves_nothing() {
    let world = World::new().await;
    let spec = world.spec(&["sh", "-c", "echo out; echo err >&2; exit 42"]);
    let record = world.create_spec(&spec).await.unwrap();
    assert_eq!(*record.state.status(), OciContainerState::Created);
    let pid = record.state.pid().unwrap();
    assert!(pid > 0);
    let container = target(&record);

    let started = world.start(&container).await;
    assert_eq!(*started.state.status(), OciContainerState::Running);
    assert_eq!(*started.state.pid(), Some(pid));

    let before = std::time::SystemTime::now();
    let status = world.wait(&container).await.unwrap();
    assert_eq!(status.exit_code, Some(42));
    let at =
        std::time::UNIX_EPOCH + std::time::Duration::from_nanos(status.exited_at_unix_ns.unwrap());
    assert!(before.duration_since(at).unwrap_or_default().as_secs() < 5);
    // Again, and the same.
    assert_eq!(world.wait(&container).await.unwrap(), status);
    let mut output = world.output(&init_of(&container)).await;
    if output.starts_with("err") {
        output = "out\nerr\n".to_owned();
    }
    assert_eq!(output, "out\nerr\n");

    let state = world
        .service
        .state(StateRequest {
            target: container.clone(),
        })
        .await
        .unwrap();
    assert_eq!(*state.state.status(), OciContainerState::Stopped);
    assert_eq!(*state.state.pid(), None);

    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    world.assert_nothing_left();
    assert!(!cgroup_of(&spec).exists());
    let gone = world
        .service
        .state(StateRequest { target: container })
        .await
        .unwrap_err();
    assert_eq!(gone.code, ErrorCode::NotFound);
}

#[tokio::test]
async fn exit_codes_of_short_processes_are_theirs() {
    let world = World::new().await;
    for code in [0, 1, 7, 42, 126, 127, 137, 255] {
        let container = world.run(&["sh", "-c", &format!("exit {code}")]).await;
        let status = world.wait(&container).await.unwrap();
        assert_eq!(status.exit_code, Some(code));
        world
            .delete(&container, DeleteMode::StoppedOnly)
            .await
            .unwrap();
    }
    // The first process of a pid namespace has no default action for a TERM from inside.
    let container = world.run(&["sh", "-c", "kill -TERM $$; exit 5"]).await;
    assert_eq!(world.wait(&container).await.unwrap().exit_code, Some(5));
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn delete_refuses_what_runs_and_force_kills_it() {
    let world = World::new().await;
    let spec = world.spec(&["sleep", "1000"]);
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    let refused = world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::FailedPrecondition);
    world.delete(&container, DeleteMode::Force).await.unwrap();
    assert!(!cgroup_of(&spec).exists());

    // A container that was never started goes the same way.
    let created = world.create(&["true"]).await;
    world.delete(&created, DeleteMode::Force).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn another_generation_is_refused_before_any_effect() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    let stale = ContainerTarget::exact(container.id.clone(), Generation(1));
    let error = world.kill(&stale, libc_sigkill(), false).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::FailedPrecondition);
    let error = world.delete(&stale, DeleteMode::Force).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::FailedPrecondition);
    let running = world
        .service
        .wait(WaitRequest {
            target: container.clone(),
            timeout_ms: Some(0),
        })
        .await
        .unwrap_err();
    assert_eq!(running.code, ErrorCode::DeadlineExceeded);
    assert!(running.retryable);
    world.delete(&container, DeleteMode::Force).await.unwrap();
}

const fn libc_sigkill() -> i32 {
    9
}

#[tokio::test]
async fn repeated_operations_have_one_effect() {
    let world = World::new().await;
    let request = world
        .create_request(&world.spec(&["sh", "-c", "echo once; sleep 1000"]))
        .await;
    // Both at the same time: one creates, the other one gets its answer.
    let (first, second) = tokio::join!(
        world.service.create(request.clone()),
        world.service.create(request.clone())
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first, second);
    let container = target(&first);

    let start = StartRequest {
        context: context(),
        target: container.clone(),
    };
    let started = world.service.start(start.clone()).await.unwrap();
    assert_eq!(world.service.start(start.clone()).await.unwrap(), started);
    assert_eq!(world.service.create(request.clone()).await.unwrap(), first);

    let mut other = request.clone();
    other.bundle = world.create_request(&world.spec(&["false"])).await.bundle;
    other.attachments =
        a3sbox_oci::CreateAttachments::from_bundle(&other.bundle, a3sbox_oci::ProcessIo::default())
            .unwrap();
    let conflict = world.service.create(other.clone()).await.unwrap_err();
    assert_eq!(conflict.code, ErrorCode::Conflict);
    other.context = context();
    let exists = world.service.create(other).await.unwrap_err();
    assert_eq!(exists.code, ErrorCode::AlreadyExists);

    // The id of the start with another verb's content.
    let error = world
        .service
        .pause(a3sbox_oci::ContainerOperationRequest {
            context: OperationContext::new(start.context.operation_id),
            target: container.clone(),
        })
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);

    let delete = a3sbox_oci::DeleteRequest {
        context: context(),
        target: container,
        mode: DeleteMode::Force,
    };
    world.service.delete(delete.clone()).await.unwrap();
    world.service.delete(delete).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn events_come_in_order() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    let exec = world.exec(&container, "e1", &["true"]).await;
    world.wait_process(&exec).await.unwrap();
    world.delete(&container, DeleteMode::Force).await.unwrap();
    let batch = world
        .service
        .events(EventsRequest {
            container: Some(container),
            after_sequence: 0,
            limit: 100,
            wait_timeout_ms: None,
        })
        .await
        .unwrap();
    let kinds: Vec<_> = batch.events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            RuntimeEventKind::ContainerCreating,
            RuntimeEventKind::ContainerCreated,
            RuntimeEventKind::ContainerStarted,
            RuntimeEventKind::ProcessStarted,
            RuntimeEventKind::ProcessExited,
            RuntimeEventKind::ContainerStopped,
            RuntimeEventKind::ContainerDeleted,
        ]
    );
}

#[tokio::test]
async fn features_name_the_driver_and_the_extensions() {
    let world = World::new().await;
    let info = world.service.features().await.unwrap();
    assert!(info.drivers.drivers[0].can_launch());
    assert!(
        info.attachments
            .supports_extension(a3sbox_oci::STDIO_EXTENSION, 1)
    );
    assert!(!info.operations.is_empty());
}

#[tokio::test]
async fn a_shared_pid_namespace_ends_with_init() {
    let world = World::new().await;
    let mut spec = world.spec(&["sh", "-c", "sleep 1000 & sleep 1001 & exit 3"]);
    spec["linux"]["namespaces"]
        .as_array_mut()
        .unwrap()
        .retain(|namespace| namespace["type"] != "pid");
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    assert_eq!(world.wait(&container).await.unwrap().exit_code, Some(3));
    let cgroup = cgroup_of(&spec);
    eventually("the others have ended", || {
        std::fs::read_to_string(cgroup.join("cgroup.procs"))
            .is_ok_and(|pids| pids.lines().all(is_zombie))
    })
    .await;
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    assert!(!cgroup.exists());
    world.assert_nothing_left();
}

fn is_zombie(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"))
}
