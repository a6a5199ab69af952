//! Another service takes over after the first one was killed.
//!
//! The first service runs in a helper process: this very test binary, asked for the test `helper` with a
//! folder in its environment.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use a3sbox_oci::{
    ContainerTarget, DeleteMode, ErrorCode, OciContainerState, OciRuntimeService, StateRequest,
    WaitRequest,
};
use serde_json::json;
use support::{World, cgroup_of, eventually, target};
use tokio::sync::{Mutex, OwnedMutexGuard};

const FOLDER: &str = "A3SBOX_ADOPT_TEST_FOLDER";
const STALL: &str = "A3SBOX_ADOPT_TEST_STALL";

/// Whether this process inherits orphans is one setting for all tests of the binary.
async fn alone() -> OwnedMutexGuard<()> {
    static ALONE: OnceLock<std::sync::Arc<Mutex<()>>> = OnceLock::new();
    ALONE
        .get_or_init(std::sync::Arc::default)
        .clone()
        .lock_owned()
        .await
}

#[tokio::test]
#[ignore = "the helper process of the other tests"]
async fn helper() {
    let folder = std::env::var(FOLDER).unwrap();
    let world = World::in_folder(Path::new(&folder)).await;
    let mut spec = world.spec(&["sh", "-c", "echo begun; sleep 1000"]);
    if std::env::var_os(STALL).is_some() {
        let script = world.folder().join("stall");
        std::fs::write(&script, "#!/bin/sh\ntouch $0.begun\nsleep 20\n").unwrap();
        std::os::unix::fs::symlink("/bin/sh", world.folder().join("sh")).unwrap();
        spec["hooks"] = json!({ "createRuntime": [{
            "path": "/bin/sh", "args": ["sh", script],
            "env": ["PATH=/usr/bin:/bin"],
        }] });
    }
    std::fs::write(world.folder().join("spec.json"), spec.to_string()).unwrap();
    let container = target(&world.create_spec(&spec).await.unwrap());
    let init = *world.start(&container).await.state.pid();
    let exec = world.exec(&container, "added", &["sleep", "1000"]).await;
    let done = world
        .exec(&container, "done", &["sh", "-c", "exit 7"])
        .await;
    world.wait_process(&done).await.unwrap();
    let said = json!({ "init": init, "container": container, "added": exec, "done": done });
    let path = world.folder().join("ready.json");
    std::fs::write(path.with_extension("tmp"), said.to_string()).unwrap();
    std::fs::hard_link(path.with_extension("tmp"), &path).unwrap();
    std::future::pending::<()>().await;
}

fn spawn_helper(folder: &Path, stall: bool) -> Child {
    // Its orphans go to the system's init, as after the death of a real shim.
    rustix::process::set_child_subreaper(None).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "helper", "--ignored"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if stall {
        command.env(STALL, "1");
    }
    command.spawn().unwrap()
}

struct Left {
    init: i32,
    folder: tempfile::TempDir,
    container: ContainerTarget,
    added: a3sbox_oci::ProcessTarget,
    done: a3sbox_oci::ProcessTarget,
}

/// A container with an added process, whose service was killed.
async fn leave() -> Left {
    let folder = tempfile::Builder::new()
        .prefix("a3sbox-runtime-test-")
        .tempdir()
        .unwrap();
    let mut helper = spawn_helper(folder.path(), false);
    let ready = folder.path().join("ready.json");
    eventually("the helper is ready", || ready.exists()).await;
    helper.kill().unwrap();
    helper.wait().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
    let read = |name: &str| serde_json::from_value(said[name].clone()).unwrap();
    Left {
        init: serde_json::from_value(said["init"].clone()).unwrap(),
        container: serde_json::from_value(said["container"].clone()).unwrap(),
        added: read("added"),
        done: read("done"),
        folder,
    }
}

#[tokio::test]
async fn what_runs_is_found_again_and_its_end_is_unknown() {
    let _alone = alone().await;
    let left = leave().await;
    let world = World::in_folder(left.folder.path()).await;
    let record = world
        .service
        .state(StateRequest {
            target: left.container.clone(),
        })
        .await
        .unwrap();
    assert_eq!(*record.state.status(), OciContainerState::Running);
    let running = world
        .service
        .wait(WaitRequest {
            target: left.container.clone(),
            timeout_ms: Some(0),
        })
        .await
        .unwrap_err();
    assert_eq!(running.code, ErrorCode::DeadlineExceeded);
    // An exit that was recorded is known; an exec works.
    assert_eq!(
        world.wait_process(&left.done).await.unwrap().exit_code,
        Some(7)
    );
    let exec = world
        .exec(&left.container, "new", &["sh", "-c", "exit 3"])
        .await;
    assert_eq!(world.wait_process(&exec).await.unwrap().exit_code, Some(3));

    world.kill(&left.container, 9, false).await.unwrap();
    for error in [
        world.wait(&left.container).await.unwrap_err(),
        world.wait_process(&left.added).await.unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::FailedPrecondition);
        assert!(error.message.contains("unknown"), "{error}");
    }
    world
        .delete(&left.container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn what_ended_meanwhile_is_stopped_with_an_unknown_exit() {
    let _alone = alone().await;
    let left = leave().await;
    let spec: serde_json::Value =
        serde_json::from_slice(&std::fs::read(left.folder.path().join("spec.json")).unwrap())
            .unwrap();
    let procs = cgroup_of(&spec).join("cgroup.procs");
    for pid in std::fs::read_to_string(&procs).unwrap().lines() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let init = left.init;
    eventually("init has ended", || {
        std::fs::read_to_string(format!("/proc/{init}/stat"))
            .map_or(true, |stat| stat.contains(") Z"))
    })
    .await;
    let world = World::in_folder(left.folder.path()).await;
    let record = world
        .service
        .state(StateRequest {
            target: left.container.clone(),
        })
        .await
        .unwrap();
    assert_eq!(*record.state.status(), OciContainerState::Stopped);
    let unknown = world.wait(&left.container).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::FailedPrecondition);
    world
        .delete(&left.container, DeleteMode::Force)
        .await
        .unwrap();
    assert!(!cgroup_of(&spec).exists());
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_create_that_was_interrupted_leaves_nothing() {
    let _alone = alone().await;
    let folder = tempfile::Builder::new()
        .prefix("a3sbox-runtime-test-")
        .tempdir()
        .unwrap();
    let mut helper = spawn_helper(folder.path(), true);
    let begun = folder.path().join("stall.begun");
    eventually("the hook runs", || begun.exists()).await;
    helper.kill().unwrap();
    helper.wait().unwrap();
    let world = World::in_folder(folder.path()).await;
    world.assert_nothing_left();
    let spec: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("spec.json")).unwrap()).unwrap();
    assert!(!cgroup_of(&spec).exists());
}

#[tokio::test]
async fn a_damaged_container_does_not_keep_the_others() {
    let _alone = alone().await;
    let left = leave().await;
    let root = left.folder.path().join("state");
    std::fs::create_dir(root.join("empty")).unwrap();
    std::fs::create_dir(root.join("damaged")).unwrap();
    std::fs::write(root.join("damaged/record.json"), "{").unwrap();
    std::fs::create_dir(root.join("future")).unwrap();
    std::fs::write(root.join("future/record.json"), r#"{"schema_version":99}"#).unwrap();
    let world = World::in_folder(left.folder.path()).await;
    // One that was never recorded is nothing; the others are kept for whoever can read them.
    assert!(!root.join("empty").exists());
    assert!(root.join("damaged").exists());
    assert!(root.join("future").exists());
    world
        .delete(&left.container, DeleteMode::Force)
        .await
        .unwrap();
    std::fs::remove_dir_all(root.join("damaged")).unwrap();
    std::fs::remove_dir_all(root.join("future")).unwrap();
    world.assert_nothing_left();
}
