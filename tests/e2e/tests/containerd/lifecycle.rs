//! The life of a task: create, start, exit, signals, pause, delete.

use std::time::Duration;

use a3sbox_e2e::{BUSYBOX, Bundle, Case, Leftovers, Node, TaskIo, eventually, scaled};
use anyhow::{Result, ensure};
use containerd_client::tonic::Code;
use serde_json::json;

const GONE_LIMIT: Duration = Duration::from_secs(5);
const EXIT_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::core(
            "lifecycle::output_and_exit_code_arrive",
            output_and_exit_code_arrive,
        ),
        Case::core(
            "lifecycle::nothing_is_left_after_a_life",
            nothing_is_left_after_a_life,
        ),
        Case::core("lifecycle::pause_and_resume", pause_and_resume),
        Case::full("lifecycle::case_05_exit_codes", exit_codes),
        Case::full(
            "lifecycle::case_05_an_init_that_signals_itself",
            an_init_that_signals_itself,
        ),
        Case::full("lifecycle::a_taken_id_is_refused", a_taken_id_is_refused),
        Case::full("lifecycle::odd_and_long_ids_work", odd_and_long_ids_work),
        Case::full(
            "lifecycle::verbs_in_the_wrong_state",
            verbs_in_the_wrong_state,
        ),
        Case::full(
            "lifecycle::a_created_task_can_be_deleted",
            a_created_task_can_be_deleted,
        ),
        Case::full(
            "lifecycle::a_trapped_signal_stays_trapped",
            a_trapped_signal_stays_trapped,
        ),
        Case::full("lifecycle::wait_answers_everybody", wait_answers_everybody),
        Case::full(
            "lifecycle::a_paused_task_can_be_killed",
            a_paused_task_can_be_killed,
        ),
        Case::full(
            "lifecycle::children_end_with_their_init",
            children_end_with_their_init,
        ),
    ]
}

fn output_and_exit_code_arrive(node: &Node<'_>) -> Result<()> {
    let out = node.run(
        &node.id("life"),
        &[],
        &["sh", "-c", "echo out; echo err >&2; exit 7"],
    )?;
    ensure!(out.status == 7, "exit {}: {}", out.status, out.everything());
    ensure!(out.stdout == "out\n", "stdout {:?}", out.stdout);
    ensure!(out.stderr.contains("err\n"), "stderr {:?}", out.stderr);
    Ok(())
}

fn nothing_is_left_after_a_life(node: &Node<'_>) -> Result<()> {
    let id = node.id("clean");
    node.run(&id, &[], &["true"])?.ok()?;
    eventually("everything of the container is gone", GONE_LIMIT, || {
        Ok(Leftovers::of_container(node, &id).is_empty().then_some(()))
    })
    .map_err(|e| e.context(format!("{:?}", Leftovers::of_container(node, &id))))
}

fn pause_and_resume(node: &Node<'_>) -> Result<()> {
    let count = "i=0; while :; do i=$((i+1)); echo $i >/tmp/i; sleep 0.02; done";
    let running = node.background(&node.id("pause"), &[], &["sh", "-c", count])?;
    let id = running.id();
    let read = |exec: &str| node.exec(id, exec, &[], &["cat", "/tmp/i"]);
    eventually("it counts", EXIT_LIMIT, || {
        Ok((!read("r0")?.stdout.trim().is_empty()).then_some(()))
    })?;
    node.ctr(&["task", "pause", id])?.ok()?;
    ensure!(
        node.status(id)?.is_some_and(|(_, s)| s == "PAUSED"),
        "{:?}",
        node.status(id)?
    );
    let rootfs = format!(
        "/proc/{}/root/tmp/i",
        node.status(id)?.map_or(0, |(pid, _)| pid)
    );
    let before = std::fs::read_to_string(&rootfs)?;
    std::thread::sleep(Duration::from_millis(200));
    ensure!(
        before == std::fs::read_to_string(&rootfs)?,
        "it counts while paused"
    );
    let refused = read("r1")?;
    ensure!(
        refused.status != 0,
        "an exec in a paused container: {refused:?}"
    );
    node.ctr(&["task", "resume", id])?.ok()?;
    ensure!(
        node.status(id)?.is_some_and(|(_, s)| s == "RUNNING"),
        "{:?}",
        node.status(id)?
    );
    eventually("it counts again", EXIT_LIMIT, || {
        Ok((std::fs::read_to_string(&rootfs)? != before).then_some(()))
    })
}

fn exit_codes(node: &Node<'_>) -> Result<()> {
    for code in [0, 1, 7, 42, 126, 127, 137, 255] {
        for _ in 0..scaled(25) {
            let out = node.run(
                &node.id("code"),
                &[],
                &["sh", "-c", &format!("exit {code}")],
            )?;
            ensure!(
                out.status == code,
                "{} instead of {code}: {}",
                out.status,
                out.everything()
            );
        }
    }
    Ok(())
}

fn an_init_that_signals_itself(node: &Node<'_>) -> Result<()> {
    let out = node.run(
        &node.id("selfterm"),
        &[],
        &["sh", "-c", "kill -TERM $$; exit 5"],
    )?;
    ensure!(out.status == 5, "{}", out.status);
    let out = node.run(
        &node.id("selfkill"),
        &[],
        &["sh", "-c", "sh -c \"kill -9 \\$\\$\"; echo $?; exit 3"],
    )?;
    ensure!(
        out.status == 3 && out.stdout.trim() == "137",
        "{} {:?}",
        out.status,
        out.stdout
    );
    Ok(())
}

fn a_taken_id_is_refused(node: &Node<'_>) -> Result<()> {
    let id = node.id("twice");
    let first = node.background(&id, &[], &["sleep", "1000"])?;
    let second = node.ctr(&["task", "start", "-d", first.id()])?.refused()?;
    ensure!(
        second.stderr.contains("already exists"),
        "{}",
        second.stderr
    );
    ensure!(
        node.status(&id)?.is_some_and(|(_, s)| s == "RUNNING"),
        "the first task is not running any more"
    );
    Ok(())
}

fn odd_and_long_ids_work(node: &Node<'_>) -> Result<()> {
    let long = format!("{}{}", node.id("long"), "x".repeat(70))
        .chars()
        .take(76)
        .collect::<String>();
    for id in [long, node.id("a.b_c-d"), node.id("UPPER.lower")] {
        let out = node.run(&id, &[], &["echo", "ok"])?.ok()?;
        ensure!(out.stdout == "ok\n", "{id}: {:?}", out.stdout);
    }
    Ok(())
}

/// A task that was created and not started, removed at the end.
pub(crate) fn created<'a>(
    node: &'a Node<'a>,
    hint: &str,
    command: &[&str],
) -> Result<(a3sbox_e2e::Api, String, Removed<'a>)> {
    let id = node.id(hint);
    let mut args = vec![
        "container",
        "create",
        "--runtime",
        node.shim.runtime_type(),
        "--",
        BUSYBOX,
        &id,
    ];
    args.extend(command);
    node.ctr(&args)?.ok()?;
    let api = node.api()?;
    let guard = Removed {
        node,
        id: id.clone(),
    };
    api.create(&id, &TaskIo::default())?;
    Ok((api, id, guard))
}

pub(crate) struct Removed<'a> {
    node: &'a Node<'a>,
    id: String,
}

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = self.node.ctr(&["task", "kill", "-s", "KILL", &self.id]);
        let _ = self.node.ctr(&["task", "rm", "-f", &self.id]);
        let _ = self.node.ctr(&["container", "rm", &self.id]);
    }
}

fn verbs_in_the_wrong_state(node: &Node<'_>) -> Result<()> {
    let (api, id, _guard) = created(node, "states", &["sleep", "1000"])?;
    ensure!(
        api.state(&id, "")?.status == 1,
        "not created: {:?}",
        api.state(&id, "")
    );
    let paused = api.pause(&id);
    ensure!(paused.is_err(), "a created task was paused");
    api.start(&id, "")?;
    let again = api.start(&id, "");
    ensure!(again.is_err(), "started twice");
    let deleted = api.delete(&id);
    ensure!(
        deleted
            .as_ref()
            .is_err_and(|e| e.code() == Code::FailedPrecondition || e.code() == Code::Unknown),
        "{deleted:?}"
    );
    let resumed = api.resume(&id);
    ensure!(resumed.is_err(), "a running task was resumed");
    ensure!(
        api.state(&id, "")?.status == 2,
        "not running after all that"
    );
    api.kill(&id, "", 9, false)?;
    api.wait(&id, "", EXIT_LIMIT)?;
    let late = api.kill(&id, "", 15, false);
    ensure!(
        late.as_ref().is_err_and(|e| e.code() == Code::NotFound),
        "{late:?}"
    );
    ensure!(api.delete(&id)?.exit_status == 137);
    let gone = api.delete(&id);
    ensure!(
        gone.as_ref().is_err_and(|e| e.code() == Code::NotFound),
        "{gone:?}"
    );
    Ok(())
}

fn a_created_task_can_be_deleted(node: &Node<'_>) -> Result<()> {
    let (api, id, _guard) = created(node, "unstarted", &["sleep", "1000"])?;
    api.kill(&id, "", 9, false)?;
    let exit = api.wait(&id, "", EXIT_LIMIT)?;
    ensure!(exit.exit_status == 137, "{}", exit.exit_status);
    api.delete(&id)?;
    eventually("nothing is left of it", GONE_LIMIT, || {
        Ok(Leftovers::of_container(node, &id).is_empty().then_some(()))
    })
}

fn a_trapped_signal_stays_trapped(node: &Node<'_>) -> Result<()> {
    let trap = "trap 'echo t >>/tmp/seen' TERM HUP; touch /tmp/ready; while :; do sleep 0.05; done";
    let running = node.background(&node.id("trap"), &[], &["sh", "-c", trap])?;
    let (api, id) = (node.api()?, running.id());
    let read = |exec: &str, file: &str| node.exec(id, exec, &[], &["cat", file]);
    eventually("it is ready", EXIT_LIMIT, || {
        Ok((read("ready", "/tmp/ready")?.status == 0).then_some(()))
    })?;
    for (round, signal) in [15, 1, 1].into_iter().enumerate() {
        api.kill(id, "", signal, false)?;
        eventually("each signal is delivered once", EXIT_LIMIT, || {
            Ok((read("seen", "/tmp/seen")?.stdout.lines().count() == round + 1).then_some(()))
        })?;
    }
    ensure!(node.status(id)?.is_some_and(|(_, s)| s == "RUNNING"));
    Ok(())
}

fn wait_answers_everybody(node: &Node<'_>) -> Result<()> {
    let (api, id, _guard) = created(node, "wait", &["sh", "-c", "sleep 0.5; exit 33"])?;
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|_| {
                let (api, id) = (api.clone(), &id);
                scope.spawn(move || api.wait(id, "", EXIT_LIMIT))
            })
            .collect();
        api.start(&id, "")?;
        let mut times = Vec::new();
        for waiter in waiters {
            let exit = waiter
                .join()
                .map_err(|_| anyhow::anyhow!("a waiter panicked"))??;
            ensure!(exit.exit_status == 33, "{}", exit.exit_status);
            times.push(exit.exited_at);
        }
        let late = api.wait(&id, "", EXIT_LIMIT)?;
        ensure!(
            late.exit_status == 33 && times.iter().all(|t| *t == late.exited_at),
            "{times:?} {late:?}"
        );
        ensure!(api.delete(&id)?.exit_status == 33);
        Ok(())
    })
}

fn a_paused_task_can_be_killed(node: &Node<'_>) -> Result<()> {
    let running = node.background(&node.id("frozen"), &[], &["sleep", "1000"])?;
    let (api, id) = (node.api()?, running.id());
    api.pause(id)?;
    api.kill(id, "", 9, true)?;
    if !node.is_ours() {
        // runc 1.1 on cgroup v1 leaves the killed process frozen.
        let _ = api.resume(id);
    }
    let exit = api.wait(id, "", EXIT_LIMIT)?;
    ensure!(exit.exit_status == 137, "{}", exit.exit_status);
    Ok(())
}

fn children_end_with_their_init(node: &Node<'_>) -> Result<()> {
    let id = node.id("hostpid");
    let _guard = Removed {
        node,
        id: id.clone(),
    };
    let mut bundle = Bundle::bare(node.containerd, &id, &["sh", "-c", "sleep 987 & sleep 0.3"])?;
    bundle.config["linux"]["namespaces"] = json!([{"type": "mount"}, {"type": "ipc"}]);
    bundle.config["hostname"] = json!(null);
    bundle.run(node, &id, &["-d"])?.ok()?;
    let exit = node.api()?.wait(&id, "", EXIT_LIMIT)?;
    ensure!(exit.exit_status == 0, "{}", exit.exit_status);
    eventually("the child is gone too", GONE_LIMIT, || {
        let alive = std::fs::read_dir("/proc")?.flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|c| c == b"sleep\x00987\x00")
        });
        Ok((!alive).then_some(()))
    })
}
