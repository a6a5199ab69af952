//! The life of a sandbox, from its image to nothing left.

use std::time::Duration;

use a3sbox_core::{
    ExecutionEventKind, ExecutionEventsRequest, ExecutionIsolation, ExecutionManagerError,
    ExecutionResourceUpdate, ExecutionSnapshotId, ExecutionState, OperationId,
};
use a3sbox_sdk::{
    A3sBoxClient, ClientError, CommandRunOptions, Sandbox, SandboxCommand, SandboxLogOptions,
    SandboxRestartOptions, VolumeMount,
};

use crate::support::{Home, eventually};

async fn stdout(sandbox: &Sandbox, command: &str) -> String {
    let result = sandbox.commands.run(command).await.unwrap();
    assert_eq!(result.exit_code, 0, "{command}: {}", result.stderr);
    result.stdout
}

async fn logged(sandbox: &Sandbox, text: &str) -> String {
    eventually(text, async || {
        let entries = sandbox.logs(SandboxLogOptions::tail(10_000)).await.unwrap();
        entries
            .iter()
            .find(|entry| entry.log.contains(text))
            .map(|entry| entry.stream.clone())
    })
    .await
}

#[tokio::test]
async fn a_sandbox_runs_and_leaves_nothing() {
    let home = Home::new().await;
    let sandbox = home
        .sandbox()
        .env("MODE", "test")
        .metadata("suite", "native")
        .command([
            "sh",
            "-c",
            "echo out $MODE; echo err >&2; printf last; exec sleep 1000",
        ])
        .start()
        .await
        .unwrap();
    assert_eq!(sandbox.info().state, ExecutionState::Running);
    assert_eq!(stdout(&sandbox, "echo $MODE; id -u").await, "test\n0\n");
    let failed = sandbox.commands.run("echo no >&2; exit 7").await.unwrap();
    assert_eq!((failed.exit_code, failed.stderr.as_str()), (7, "no\n"));
    let fed = sandbox
        .commands
        .run_with_options("cat", CommandRunOptions::default().stdin("fed"))
        .await
        .unwrap();
    assert_eq!(fed.stdout, "fed");
    let argv = SandboxCommand::argv(["pwd"]);
    let options = CommandRunOptions::default().cwd("/tmp");
    let at = sandbox
        .commands
        .run_with_options(argv, options)
        .await
        .unwrap();
    assert_eq!(at.stdout, "/tmp\n");
    let script = sandbox.script("echo one\necho two\n").run().await.unwrap();
    assert_eq!(script.stdout, "one\ntwo\n");

    assert_eq!(logged(&sandbox, "out test\n").await, "stdout");
    assert_eq!(logged(&sandbox, "err\n").await, "stderr");

    sandbox.pause(true).await.unwrap();
    assert_eq!(sandbox.info().state, ExecutionState::Paused);
    sandbox.resume().await.unwrap();
    assert!(sandbox.is_running().await.unwrap());

    // What was written stays over a restart; the generation does not.
    stdout(&sandbox, "echo kept >/kept").await;
    let before = sandbox.info().generation;
    let options = SandboxRestartOptions::default().stop_timeout_seconds(0);
    sandbox.restart(options).await.unwrap();
    assert_eq!(sandbox.info().generation, before + 1);
    assert_eq!(stdout(&sandbox, "cat /kept").await, "kept\n");

    sandbox.stop().await.unwrap();
    assert_eq!(sandbox.info().state, ExecutionState::Stopped);
    // The line without an end is there once the process has ended, from both lives.
    let entries = sandbox.logs(SandboxLogOptions::tail(100)).await.unwrap();
    let count = |text: &str| entries.iter().filter(|entry| entry.log == text).count();
    assert_eq!(
        (count("out test\n"), count("err\n"), count("last")),
        (2, 2, 2)
    );
    sandbox.remove().await.unwrap();
    assert!(!sandbox.is_running().await.unwrap());
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn required_controls_hold() {
    let home = Home::new().await;
    let sandbox = home.sandbox().cpus(1).memory_mb(64).start().await.unwrap();
    let map = stdout(&sandbox, "cat /proc/self/uid_map").await;
    assert_eq!(
        map.split_whitespace().collect::<Vec<_>>(),
        ["0", "536870912", "65536"]
    );
    let links = stdout(
        &sandbox,
        "for n in user mnt pid ipc uts net; do readlink /proc/self/ns/$n; done",
    )
    .await;
    for (name, inside) in ["user", "mnt", "pid", "ipc", "uts", "net"]
        .iter()
        .zip(links.lines())
    {
        let outside = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(outside.to_str().unwrap(), inside, "{name} is the host's");
    }
    let status = stdout(&sandbox, "grep -E 'Seccomp:|NoNewPrivs:' /proc/1/status").await;
    assert!(status.contains("Seccomp:\t2"), "{status}");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let bounding = stdout(&sandbox, "grep CapBnd /proc/1/status").await;
    assert_eq!(bounding, "CapBnd:\t00000000a80405fb\n");
    for refused in ["unshare -m true", "mount -t tmpfs x /tmp", "hostname other"] {
        let result = sandbox.commands.run(refused).await.unwrap();
        assert_ne!(result.exit_code, 0, "{refused} worked");
    }
    let interfaces = stdout(&sandbox, "ls /sys/class/net").await;
    assert_eq!(interfaces, "lo\n");
    let limit = stdout(
        &sandbox,
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max",
    )
    .await;
    assert_eq!(limit.trim(), (64 * 1024 * 1024).to_string());
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn options_reach_the_process() {
    let home = Home::new().await;
    home.client.volume("data").create().unwrap();
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("given"), "given\n").unwrap();
    let build = |user: Option<&str>| {
        let mut builder = home
            .sandbox()
            .hostname("box")
            .workdir("/home")
            .command(["sh", "-c", "echo in $PWD; exec sleep 1000"])
            .dns_server("192.0.2.1")
            .host_alias("peer", "192.0.2.2")
            .mount_named("data", "/data")
            .mount(VolumeMount::bind(host.path(), "/host").read_only(true))
            .tmpfs(a3sbox_sdk::TmpfsMount::new("/scratch").size_bytes(1 << 20));
        if let Some(user) = user {
            builder = builder.user(user);
        }
        builder
    };
    let first = build(None).start().await.unwrap();
    assert_eq!(stdout(&first, "hostname").await, "box\n");
    assert_eq!(logged(&first, "in /home\n").await, "stdout");
    assert_eq!(
        stdout(&first, "cat /etc/resolv.conf").await,
        "nameserver 192.0.2.1\n"
    );
    assert!(
        stdout(&first, "cat /etc/hosts")
            .await
            .contains("192.0.2.2\tpeer\n")
    );
    assert_eq!(stdout(&first, "cat /host/given").await, "given\n");
    let refused = first.commands.run("echo x >/host/new").await.unwrap();
    assert_ne!(refused.exit_code, 0);
    stdout(&first, "echo shared >/data/file").await;
    assert_eq!(
        stdout(&first, "df -k /scratch | tail -1 | awk '{print $2}'").await,
        "1024\n"
    );

    let second = build(Some("app")).read_only(true).start().await.unwrap();
    assert_eq!(stdout(&second, "cat /data/file").await, "shared\n");
    assert_eq!(
        stdout(&second, "grep Uid /proc/1/status | awk '{print $2}'").await,
        "1000\n"
    );
    assert_eq!(
        stdout(&second, "grep Groups /proc/1/status").await.trim(),
        "Groups:\t2000"
    );
    assert_ne!(
        second.commands.run("echo x >/new").await.unwrap().exit_code,
        0
    );
    for sandbox in [&first, &second] {
        sandbox.kill().await.unwrap();
    }
    home.assert_nothing_left(&[first.id(), second.id()]);
}

#[tokio::test]
async fn an_end_by_itself_is_seen_with_its_log() {
    let home = Home::new().await;
    let sandbox = home
        .sandbox()
        .auto_remove(false)
        .command(["sh", "-c", "echo bye; exit 3"])
        .start()
        .await
        .unwrap();
    eventually("the end", async || {
        (!sandbox.is_running().await.unwrap()).then_some(())
    })
    .await;
    assert_eq!(logged(&sandbox, "bye\n").await, "stdout");
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn a_snapshot_is_the_root_of_the_next_sandbox() {
    let home = Home::new().await;
    let work = "echo made >/home/app/made; chown app /home/app/made; rm -r /usr/sbin; echo done";
    let sandbox = home
        .sandbox()
        .command(["sh", "-c", &format!("{work}; exec sleep 1000")])
        .start()
        .await
        .unwrap();
    logged(&sandbox, "done\n").await;
    let id = ExecutionSnapshotId::new("snap-1").unwrap();
    sandbox
        .create_filesystem_snapshot(id.clone())
        .await
        .unwrap();
    assert!(sandbox.is_running().await.unwrap());
    let next = home
        .sandbox()
        .filesystem_snapshot(id.clone())
        .start()
        .await
        .unwrap();
    assert_eq!(
        stdout(&next, "cat /home/app/made; stat -c %U /home/app/made").await,
        "made\napp\n"
    );
    assert_eq!(
        stdout(&next, "ls -d /usr/sbin 2>/dev/null || echo gone").await,
        "gone\n"
    );
    for sandbox in [&sandbox, &next] {
        sandbox.kill().await.unwrap();
    }
    assert!(home.client.delete_execution_snapshot(&id).await.unwrap());
    home.assert_nothing_left(&[sandbox.id(), next.id()]);
}

#[tokio::test]
async fn one_process_at_a_time_has_the_sandboxes_of_a_home() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let other = A3sBoxClient::from_home(home.path());
    let refused = Sandbox::connect_with_client(other, sandbox.id())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, ClientError::Execution(ExecutionManagerError::Unavailable(text))
            if text.contains("one client at a time")),
        "{refused:?}"
    );
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn a_sandbox_outlives_its_client() {
    let home = Home::new().await;
    let first = home
        .sandbox()
        .command([
            "sh",
            "-c",
            "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done",
        ])
        .start()
        .await
        .unwrap();
    let id = first.id().to_owned();
    logged(&first, "line 1\n").await;
    drop(first);
    let home = home.reopened();
    let again = Sandbox::connect_with_client(home.client.clone(), &id)
        .await
        .unwrap();
    assert!(again.is_running().await.unwrap());
    assert_eq!(stdout(&again, "echo here").await, "here\n");
    logged(&again, "line 5\n").await;
    again.kill().await.unwrap();
    home.assert_nothing_left(&[&id]);
}

#[tokio::test]
async fn a_command_out_of_time_is_killed() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let options = CommandRunOptions::default().timeout(Duration::from_millis(300));
    let result = sandbox
        .commands
        .run_with_options("sleep 100", options)
        .await
        .unwrap();
    assert_eq!(result.exit_code, 137);
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn microvm_and_unknown_images_are_refused_and_nothing_is_made() {
    let home = Home::empty();
    for (isolation, word) in [
        (ExecutionIsolation::Microvm, "microVM driver"),
        (ExecutionIsolation::Sandbox, "import_image"),
    ] {
        let refused = home
            .client
            .sandbox("alpine:3.20")
            .isolation(isolation)
            .start()
            .await;
        match refused {
            Err(ClientError::Execution(ExecutionManagerError::Unavailable(text))) => {
                assert!(text.contains(word), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn processes_statistics_events_and_limits_are_real() {
    let home = Home::new().await;
    let sandbox = home.sandbox().memory_mb(64).start().await.unwrap();
    let processes = sandbox.processes().await.unwrap();
    assert_eq!(processes.processes.len(), 1);
    let stats = sandbox.runtime_stats().await.unwrap();
    assert_eq!(stats.memory.limit_bytes, Some(64 * 1024 * 1024));
    assert!(stats.process_count >= 1);
    let operation_id = OperationId::new("fewer-processes").unwrap();
    let update = ExecutionResourceUpdate {
        pids_limit: Some(512),
        ..ExecutionResourceUpdate::default()
    };
    sandbox
        .update_resources(&operation_id, update)
        .await
        .unwrap();
    let limit = stdout(
        &sandbox,
        "cat /sys/fs/cgroup/pids/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids.max",
    )
    .await;
    assert_eq!(limit, "512\n");
    let request = ExecutionEventsRequest {
        after_sequence: 0,
        limit: 100,
        wait_timeout_ms: None,
    };
    let events = sandbox.events(request).await.unwrap().events;
    let has = |kind| events.iter().any(|event| event.kind == kind);
    assert!(has(ExecutionEventKind::ContainerStarted));
    assert!(has(ExecutionEventKind::ResourcesUpdated));
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}
