//! The truth after a crash: containerd away or killed, the shim killed.
//!
//! These cases kill the node's containerd, so each runs on one of its own.

use std::time::{Duration, Instant};

use a3sbox_e2e::{Api, BUSYBOX, Case, Containerd, Leftovers, Node, TaskIo, eventually};
use anyhow::{Context, Result, ensure};

const LIMIT: Duration = Duration::from_secs(10);
/// A shim without tasks ends after 30 s.
const IDLE_LIMIT: Duration = Duration::from_secs(45);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::full(
            "recovery::case_13_exits_while_containerd_is_down",
            exits_while_containerd_is_down,
        ),
        Case::core(
            "recovery::tasks_survive_a_restart_of_containerd",
            tasks_survive_a_restart,
        ),
        Case::full(
            "recovery::a_killed_shim_leaves_nothing",
            a_killed_shim_leaves_nothing,
        ),
        Case::full(
            "recovery::an_exit_that_nobody_saw_is_255",
            an_exit_that_nobody_saw,
        )
        .ours_alone(),
        Case::full(
            "recovery::containerd_killed_while_it_creates",
            killed_while_it_creates,
        ),
    ]
}

/// The same shim on a containerd that the case may kill.
fn on_its_own(node: &Node<'_>, case: impl FnOnce(&Node<'_>) -> Result<()>) -> Result<()> {
    let own = Containerd::start(node.containerd.version())?;
    case(&Node {
        containerd: &own,
        shim: node.shim,
    })
}

fn start_process(api: &Api, id: &str, exec: &str, script: &str) -> Result<()> {
    let process = serde_json::json!({"args": ["sh", "-c", script], "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}});
    api.exec(id, exec, &process, &TaskIo::default())?;
    api.start(id, exec)?;
    Ok(())
}

fn exits_while_containerd_is_down(node: &Node<'_>) -> Result<()> {
    on_its_own(node, |node| {
        let (short, long) = (node.id("short"), node.id("long"));
        let began = Instant::now();
        let started_at = std::time::SystemTime::now();
        let _short = node.background(&short, &[], &["sh", "-c", "sleep 4; exit 42"])?;
        let _long = node.background(&long, &[], &["sleep", "1000"])?;
        start_process(&node.api()?, &long, "e", "sleep 4; exit 7")?;
        let pid = node.status(&long)?.context("no task")?.0;
        std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
        node.containerd.kill()?;
        std::thread::sleep(Duration::from_secs(7).saturating_sub(began.elapsed()));
        node.containerd.start_again()?;
        ensure!(
            node.status(&short)?.is_some_and(|(_, s)| s == "STOPPED"),
            "{:?}",
            node.status(&short)?
        );
        ensure!(
            node.status(&long)?
                .is_some_and(|(p, s)| s == "RUNNING" && p == pid),
            "{:?}",
            node.status(&long)?
        );
        let api = node.api()?;
        for _ in 0..2 {
            let exit = api.wait(&short, "", LIMIT)?;
            ensure!(exit.exit_status == 42, "{}", exit.exit_status);
            let at = exit.exited_at.context("no exit time")?;
            let after = at.seconds
                - i64::try_from(started_at.duration_since(std::time::UNIX_EPOCH)?.as_secs())?;
            ensure!((3..=6).contains(&after), "exited {after} s after the start");
        }
        ensure!(api.delete(&short)?.exit_status == 42);
        let exec = api.wait(&long, "e", LIMIT)?;
        ensure!(exec.exit_status == 7, "{}", exec.exit_status);
        ensure!(api.delete_exec(&long, "e")?.exit_status == 7);
        let out = node
            .exec(&long, "after", &[], &["echo", "still here"])?
            .ok()?;
        ensure!(out.stdout == "still here\n");
        Ok(())
    })
}

fn tasks_survive_a_restart(node: &Node<'_>) -> Result<()> {
    on_its_own(node, |node| {
        let id = node.id("survivor");
        let _running = node.background(&id, &[], &["sleep", "1000"])?;
        let before = node.status(&id)?;
        node.containerd.kill()?;
        node.containerd.start_again()?;
        ensure!(
            node.status(&id)? == before,
            "{:?} then {:?}",
            before,
            node.status(&id)?
        );
        let out = node.exec(&id, "e", &[], &["echo", "hi"])?.ok()?;
        ensure!(out.stdout == "hi\n");
        let events = crate::events::Watcher::start(node)?;
        node.ctr(&["task", "kill", "-s", "KILL", &id])?.ok()?;
        events.topics_of(&id, "/tasks/exit", LIMIT)?;
        Ok(())
    })
}

/// Pid of the shim that serves a task of this node.
fn shim_of(node: &Node<'_>, id: &str) -> Result<i32> {
    let socket = node
        .containerd
        .dir()
        .join("containerd.sock")
        .display()
        .to_string();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let words: Vec<_> = command
            .split(|b| *b == 0)
            .map(|w| String::from_utf8_lossy(w).into_owned())
            .collect();
        let is_shim = words.first().is_some_and(|w| w.contains("containerd-shim"));
        if is_shim && words.contains(&socket) && words.iter().any(|w| w == id) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no shim of {id}")
}

pub(crate) fn kill_shim(node: &Node<'_>, id: &str) -> Result<()> {
    let pid = shim_of(node, id)?;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )?;
    Ok(())
}

fn a_killed_shim_leaves_nothing(node: &Node<'_>) -> Result<()> {
    let events = crate::events::Watcher::start(node)?;
    let id = node.id("orphan");
    let running = node.background(&id, &[], &["sh", "-c", "sleep 1000 & sleep 1000"])?;
    let init = node.status(&id)?.context("no task")?.0;
    kill_shim(node, &id)?;
    let topics = events.topics_of(&id, "/tasks/exit", LIMIT)?;
    ensure!(
        topics.iter().filter(|t| *t == "/tasks/exit").count() == 1,
        "{topics:?}"
    );
    let exit = events
        .lines_of(&id)
        .into_iter()
        .find(|l| l.contains("/tasks/exit"))
        .unwrap_or_default();
    ensure!(exit.contains("\"exit_status\":137"), "{exit}");
    eventually("its processes are gone", LIMIT, || {
        Ok((!std::path::Path::new(&format!("/proc/{init}")).exists()).then_some(()))
    })?;
    drop(running);
    eventually("nothing is left of it", LIMIT, || {
        Ok(Leftovers::of_container(node, &id).is_empty().then_some(()))
    })
    .map_err(|e| e.context(format!("{:?}", Leftovers::of_container(node, &id))))?;
    let out = node.run(&id, &[], &["echo", "again"])?.ok()?;
    ensure!(out.stdout == "again\n");
    Ok(())
}

/// The process ended between the shim's death and the cleanup: its status is unknown, 255 at the edge.
fn an_exit_that_nobody_saw(node: &Node<'_>) -> Result<()> {
    on_its_own(node, |node| {
        let id = node.id("unseen");
        let _running = node.background(&id, &[], &["sleep", "1000"])?;
        let init = i32::try_from(node.status(&id)?.context("no task")?.0)?;
        node.containerd.kill()?;
        kill_shim(node, &id)?;
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(init),
            nix::sys::signal::Signal::SIGKILL,
        )?;
        eventually("the process is gone", LIMIT, || {
            Ok((!std::path::Path::new(&format!("/proc/{init}")).exists()).then_some(()))
        })?;
        node.containerd.start_again()?;
        eventually("containerd knows no such task any more", LIMIT, || {
            Ok(node
                .status(&id)?
                .is_none_or(|(_, s)| s == "STOPPED")
                .then_some(()))
        })?;
        let log = node.containerd.log();
        ensure!(
            log.contains("255")
                || log.to_lowercase().contains("nobody saw")
                || log.contains("unknown"),
            "no reason in the log"
        );
        eventually("nothing is left of it", LIMIT, || {
            Ok(Leftovers::of_container(node, &id).is_empty().then_some(()))
        })
        .map_err(|e| e.context(format!("{:?}", Leftovers::of_container(node, &id))))
    })
}

fn killed_while_it_creates(node: &Node<'_>) -> Result<()> {
    on_its_own(node, |node| {
        let mut ids = Vec::new();
        for round in 0..a3sbox_e2e::scaled(40) {
            let id = node.id("torn");
            let (env, runtime) = (node.containerd.env().clone(), node.shim.runtime_type());
            let id_of_run = id.clone();
            let run = std::thread::spawn(move || {
                a3sbox_e2e::run(
                    &env,
                    &[
                        "ctr",
                        "-n",
                        "e2e",
                        "run",
                        "-d",
                        "--runtime",
                        runtime,
                        BUSYBOX,
                        &id_of_run,
                        "sleep",
                        "1000",
                    ],
                    LIMIT,
                )
            });
            std::thread::sleep(Duration::from_millis(u64::from(round % 8) * 12));
            node.containerd.kill()?;
            let _ = run.join();
            node.containerd.start_again()?;
            // Whatever is there can be taken away, and nothing else stays.
            let _ = node.ctr(&["task", "kill", "-s", "KILL", &id]);
            let _ = node.ctr(&["task", "rm", "-f", &id]);
            let _ = node.ctr(&["container", "rm", &id]);
            ids.push(id);
        }
        // A shim that got no Create goes when it was idle for long enough, if containerd does not end it.
        let left = || {
            let left = ids
                .iter()
                .map(|id| Leftovers::of_container(node, id))
                .collect::<Vec<_>>();
            left.concat()
        };
        eventually("nothing is left of them", IDLE_LIMIT, || {
            Ok(left().is_empty().then_some(()))
        })
        .map_err(|e| e.context(format!("{:?}", left())))
    })
}
