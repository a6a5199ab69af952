//! Pause, update and signals on a real engine.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::PathBuf;

use a3sbox_oci::oci_spec::runtime::{LinuxMemoryBuilder, LinuxResources, LinuxResourcesBuilder};
use a3sbox_oci::{ContainerTarget, DeleteMode, Error, ErrorCode, OciRuntimeService, UpdateRequest};
use support::{World, context, eventually, init_of, target};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

#[tokio::test]
async fn paused_containers_stand_still_and_go_on() {
    let world = World::new().await;
    let container = world
        .run(&["sh", "-c", "while :; do echo tick; sleep 0.01; done"])
        .await;
    let paused = world.pause(&container).await.unwrap();
    assert!(paused.is_paused());
    let again = world.pause(&container).await.unwrap();
    assert!(again.is_paused());
    let refused = world
        .service
        .exec(world.exec_request(&container, "x", &["true"]))
        .await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::FailedPrecondition);
    let resumed = world.resume(&container).await.unwrap();
    assert!(!resumed.is_paused());
    world.delete(&container, DeleteMode::Force).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn sigkill_ends_a_paused_container() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    world.pause(&container).await.unwrap();
    world.kill(&container, SIGKILL, false).await.unwrap();
    assert_eq!(world.wait(&container).await.unwrap().signal, Some(SIGKILL));
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_trapped_signal_changes_nothing_but_the_program() {
    let world = World::new().await;
    let container = world
        .run(&[
            "sh",
            "-c",
            "trap 'echo got' HUP; trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done",
        ])
        .await;
    let output = || async {
        world
            .service
            .read_output(a3sbox_oci::ReadOutputRequest {
                process: init_of(&container),
                after_sequence: 0,
                max_bytes: 4096,
                wait_timeout_ms: Some(100),
            })
            .await
            .unwrap()
            .into_iter()
            .flat_map(|chunk| chunk.data)
            .collect::<Vec<u8>>()
    };
    let count = |bytes: &[u8], word: &str| String::from_utf8_lossy(bytes).matches(word).count();
    while count(&output().await, "ready") == 0 {
        tokio::task::yield_now().await;
    }
    // Each signal is an effect of its own.
    for times in 1..=2 {
        world.kill(&container, 1, false).await.unwrap();
        while count(&output().await, "got") < times {
            tokio::task::yield_now().await;
        }
    }
    world.kill(&container, SIGTERM, true).await.unwrap();
    assert_eq!(world.wait(&container).await.unwrap().exit_code, Some(9));
    let error = world.kill(&container, SIGTERM, false).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert_eq!(error.message, "process already finished");
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_signal_that_does_not_exist_is_refused() {
    let world = World::new().await;
    let container = world.run(&["sleep", "1000"]).await;
    let error = world.kill(&container, 99, false).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    world.delete(&container, DeleteMode::Force).await.unwrap();
}

fn memory_limit(bytes: i64) -> LinuxResources {
    LinuxResourcesBuilder::default()
        .memory(LinuxMemoryBuilder::default().limit(bytes).build().unwrap())
        .devices(Vec::new())
        .build()
        .unwrap()
}

async fn update(world: &World, target: &ContainerTarget, bytes: i64) -> Result<(), Error> {
    world
        .service
        .update(UpdateRequest {
            context: context(),
            target: target.clone(),
            resources: memory_limit(bytes),
        })
        .await
        .map(drop)
}

#[tokio::test]
async fn a_memory_limit_below_the_use_fails_and_the_old_one_holds() {
    let world = World::new().await;
    let spec = world.spec(&[
        "sh",
        "-c",
        "dd if=/dev/zero of=/dev/shm/f bs=1M count=40 2>/dev/null; echo full; sleep 1000",
    ]);
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    let cgroup = spec["linux"]["cgroupsPath"].as_str().unwrap();
    let limit = PathBuf::from(format!(
        "/sys/fs/cgroup/memory{cgroup}/memory.limit_in_bytes"
    ));
    assert!(limit.exists(), "prerequisite: cgroup v1 memory controller");
    let usage = limit.with_file_name("memory.usage_in_bytes");
    let read = |path: &PathBuf| -> u64 {
        std::fs::read_to_string(path)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    eventually("40 MiB in use", || read(&usage) > 40 << 20).await;
    let before = read(&limit);
    let error = update(&world, &container, 8 << 20).await.unwrap_err();
    assert!(
        error.message.contains("unable to set memory limit"),
        "{error}"
    );
    assert_eq!(error.code, ErrorCode::FailedPrecondition);
    assert_eq!(read(&limit), before);
    update(&world, &container, 64 << 20).await.unwrap();
    assert_eq!(read(&limit), 64 << 20);
    world.delete(&container, DeleteMode::Force).await.unwrap();
}
