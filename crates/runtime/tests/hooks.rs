//! OCI hooks that stall or fail, where the runtime spec asks for more than runc 1.1 does (field case 06).

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use a3sbox_oci::DeleteMode;
use serde_json::{Value, json};
use support::{World, init_of, target};

/// A hook that logs its first argument and the status of the state on its stdin; `slow` stalls, `bad` fails.
fn script(world: &World) -> (PathBuf, PathBuf) {
    let folder = world.folder();
    let (script, log) = (folder.join("hk"), folder.join("hk.log"));
    let text = format!(
        "#!/bin/sh\nstatus=$(tr ',' '\\n' | sed -n 's/.*\"status\": *\"\\([a-z]*\\)\".*/\\1/p')\necho \"$1 $status\" >>{}\ncase $1 in slow) sleep 31 ;; bad) exit 9 ;; esac\n",
        log.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    (script, log)
}

fn hook(script: &Path, argument: &str) -> Value {
    json!({ "path": script, "args": ["hk", argument], "env": ["PATH=/usr/bin:/bin"] })
}

fn lines(log: &Path) -> Vec<String> {
    std::fs::read_to_string(log)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Processes whose command line has all of these arguments.
fn running(arguments: &[&str]) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| {
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            arguments
                .iter()
                .all(|argument| words.contains(&argument.as_bytes()))
        })
        .count()
}

#[tokio::test]
async fn a_hook_past_its_timeout_fails_the_create_in_time() {
    let world = World::new().await;
    let (script, log) = script(&world);
    let mut spec = world.spec(&["echo", "main"]);
    let mut slow = hook(&script, "slow");
    slow["timeout"] = 2.into();
    spec["hooks"] = json!({ "createRuntime": [slow] });
    let begin = Instant::now();
    let error = world.create_spec(&spec).await.unwrap_err();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(error.message.contains("timeout"), "{error}");
    assert_eq!(lines(&log), ["slow creating"]);
    assert_eq!(running(&[script.to_str().unwrap()]), 0);
    assert_eq!(running(&["sleep", "31"]), 0);
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_failing_poststop_hook_does_not_stop_the_next() {
    let world = World::new().await;
    let (script, log) = script(&world);
    let mut spec = world.spec(&["echo", "main"]);
    spec["hooks"] = json!({ "poststop": [hook(&script, "bad"), hook(&script, "ok")] });
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    assert_eq!(world.wait(&container).await.unwrap().exit_code, Some(0));
    assert_eq!(world.output(&init_of(&container)).await, "main\n");
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    assert_eq!(lines(&log), ["bad stopped", "ok stopped"]);
    world.assert_nothing_left();
}

#[tokio::test]
async fn one_failing_poststop_hook_does_not_fail_the_delete() {
    let world = World::new().await;
    let (script, log) = script(&world);
    let mut spec = world.spec(&["true"]);
    spec["hooks"] = json!({ "poststop": [hook(&script, "bad")] });
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    world.wait(&container).await.unwrap();
    world
        .delete(&container, DeleteMode::StoppedOnly)
        .await
        .unwrap();
    assert_eq!(lines(&log), ["bad stopped"]);
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_failing_create_runs_poststop_once() {
    let world = World::new().await;
    let (script, log) = script(&world);
    for poststop in [vec!["ps"], vec!["ps", "ps2"]] {
        let _ = std::fs::remove_file(&log);
        let mut spec = world.spec(&["echo", "main"]);
        let hooks: Vec<_> = poststop.iter().map(|name| hook(&script, name)).collect();
        spec["hooks"] = json!({ "createRuntime": [hook(&script, "bad")], "poststop": hooks });
        let error = world.create_spec(&spec).await.unwrap_err();
        assert!(error.message.contains("exit status 9"), "{error}");
        let mut expected = vec!["bad creating".to_owned()];
        expected.extend(poststop.iter().map(|name| format!("{name} stopped")));
        assert_eq!(lines(&log), expected);
        world.assert_nothing_left();
    }
}
