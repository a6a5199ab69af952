//! Many clients at once: every status is right, and nothing is left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use a3sbox_e2e::{BUSYBOX, Case, Containerd, Leftovers, Node, TaskIo, eventually, scaled};
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::full("races::verbs_from_several_clients", several_clients),
        Case::full("races::a_kill_during_the_create", kill_during_create),
        Case::full(
            "races::a_delete_while_an_exec_starts",
            delete_while_exec_starts,
        ),
        Case::full(
            "races::a_group_that_ends_while_the_next_comes",
            a_group_that_ends,
        ),
        Case::full(
            "races::containerd_restarts_while_containers_come_and_go",
            restarts_in_a_loop,
        )
        // The stock shim leaves cgroups behind here.
        .ours_alone(),
    ]
}

/// Runs `work` for each number on `threads` threads, and gives the first error.
fn on_threads(threads: u32, work: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        for thread in running {
            thread.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(())
    })
}

/// A container without a task.
fn container(node: &Node<'_>, id: &str, options: &[&str], command: &[&str]) -> Result<()> {
    let mut args = vec!["container", "create", "--runtime", node.shim.runtime_type()];
    args.extend(options);
    args.extend(["--", BUSYBOX, id]);
    args.extend(command);
    node.ctr(&args)?.ok().map(drop)
}

fn nothing_left(node: &Node<'_>, ids: &[String]) -> Result<()> {
    let left = || {
        let left = ids.iter().map(|id| Leftovers::of_container(node, id));
        left.collect::<Vec<_>>().concat()
    };
    for id in ids {
        let _ = node.ctr(&["container", "rm", id]);
    }
    eventually("nothing is left", LIMIT, || {
        Ok(left().is_empty().then_some(()))
    })
    .with_context(|| format!("{:?}", left()))
}

fn process(script: &str) -> serde_json::Value {
    json!({"args": ["sh", "-c", script], "cwd": "/", "env": ["PATH=/bin:/usr/bin"], "user": {"uid": 0, "gid": 0}})
}

/// Each client runs execs in a container that all share, and pauses, execs into and kills one of its own.
fn several_clients(node: &Node<'_>) -> Result<()> {
    let shared = node.id("shared");
    container(node, &shared, &[], &["sleep", "1000"])?;
    let api = node.api()?;
    api.create(&shared, &TaskIo::default())?;
    api.start(&shared, "")?;
    let clients = scaled(30).max(6);
    let ids: Vec<String> = (0..clients).map(|_| node.id("many")).collect();
    for id in &ids {
        container(node, id, &[], &["sleep", "1000"])?;
    }
    let worked = on_threads(clients, |number| {
        let id = &ids[number as usize];
        for exec in 0..4 {
            let (exec_id, code) = (format!("e{number}-{exec}"), (number * 4 + exec) % 256);
            let process = process(&format!("exit {code}"));
            api.exec(&shared, &exec_id, &process, &TaskIo::default())?;
            api.start(&shared, &exec_id)?;
            let _ = api.pids(&shared);
            let exit = api.wait(&shared, &exec_id, LIMIT)?;
            ensure!(exit.exit_status == code, "{} not {code}", exit.exit_status);
            ensure!(api.delete_exec(&shared, &exec_id)?.exit_status == code);
        }
        api.create(id, &TaskIo::default())?;
        api.start(id, "")?;
        pause_and_kill(&api, id).with_context(|| format!("client {number}"))
    });
    let killed = on_threads(4, |_| {
        // Who comes late is told that it has ended.
        let _ = api.kill(&shared, "", 9, false);
        let exit = api.wait(&shared, "", LIMIT)?;
        ensure!(exit.exit_status == 137, "{}", exit.exit_status);
        Ok(())
    });
    let deleted = api.delete(&shared);
    worked?;
    killed?;
    ensure!(deleted?.exit_status == 137);
    let all: Vec<String> = ids.into_iter().chain([shared]).collect();
    nothing_left(node, &all)
}

/// One client pauses and resumes, one starts execs, one kills, one waits and deletes.
fn pause_and_kill(api: &a3sbox_e2e::Api, id: &str) -> Result<()> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let _ = api.pause(id);
                let _ = api.resume(id);
            }
        });
        scope.spawn(|| {
            for exec in ["a", "b", "c"] {
                let _ = api.exec(id, exec, &process("sleep 1000"), &TaskIo::default());
                let _ = api.start(id, exec);
            }
        });
        let killer = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            api.kill(id, "", 9, false)
        });
        let exit = api.wait(id, "", LIMIT);
        ended.store(true, Ordering::Relaxed);
        killer
            .join()
            .map_err(|_| anyhow!("the killer panicked"))??;
        ensure!(exit?.exit_status == 137);
        ensure!(api.delete(id)?.exit_status == 137);
        Ok(())
    })
}

fn kill_during_create(node: &Node<'_>) -> Result<()> {
    let api = node.api()?;
    let mut ids = Vec::new();
    for round in 0..scaled(60).max(6) {
        let id = node.id("early");
        container(node, &id, &[], &["sleep", "1000"])?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            let killer = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = api.kill(&id, "", 9, round % 2 == 0);
                }
            });
            let created = api.create(&id, &TaskIo::default());
            let started = api.start(&id, "");
            done.store(true, Ordering::Relaxed);
            killer.join().map_err(|_| anyhow!("the killer panicked"))?;
            let _ = (created, started);
            Ok(())
        })?;
        let _ = api.kill(&id, "", 9, true);
        let exit = api.wait(&id, "", LIMIT);
        match exit {
            Ok(exit) => ensure!(exit.exit_status == 137, "{}", exit.exit_status),
            // The create was killed, and the task with it.
            Err(status) => ensure!(status.message().contains("not found"), "{status}"),
        }
        let _ = api.delete(&id);
        ids.push(id);
    }
    nothing_left(node, &ids)
}

fn delete_while_exec_starts(node: &Node<'_>) -> Result<()> {
    let api = node.api()?;
    let mut ids = Vec::new();
    for round in 0..scaled(60).max(6) {
        let id = node.id("exec");
        container(node, &id, &[], &["sleep", "1000"])?;
        api.create(&id, &TaskIo::default())?;
        api.start(&id, "")?;
        for exec in ["a", "b", "c"] {
            api.exec(&id, exec, &process("sleep 1000"), &TaskIo::default())?;
        }
        std::thread::scope(|scope| -> Result<()> {
            let starts: Vec<_> = ["a", "b", "c"]
                .into_iter()
                .map(|exec| {
                    let (api, id) = (&api, &id);
                    scope.spawn(move || api.start(id, exec))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(u64::from(round % 6) * 10));
            let _ = api.delete_exec(&id, "a");
            let _ = api.kill(&id, "b", 9, false);
            api.kill(&id, "", 9, false)?;
            let exit = api.wait(&id, "", LIMIT)?;
            ensure!(exit.exit_status == 137, "{}", exit.exit_status);
            ensure!(api.delete(&id)?.exit_status == 137);
            for start in starts {
                // Started or refused; not hanging.
                let _ = start.join().map_err(|_| anyhow!("a start panicked"))?;
            }
            Ok(())
        })
        .with_context(|| format!("round {round}"))?;
        ids.push(id);
    }
    nothing_left(node, &ids)
}

/// The last task of a group goes while a `start` finds the group's shim: it ends, or it serves.
fn a_group_that_ends(node: &Node<'_>) -> Result<()> {
    let label = format!("io.containerd.runc.v2.group={}", node.id("brief"));
    let rounds = scaled(100).max(8);
    let ids: Vec<String> = (0..rounds * 2).map(|_| node.id("brief")).collect();
    on_threads(2, |client| {
        for round in 0..rounds {
            let id = &ids[(round * 2 + client) as usize];
            let out = node.run(id, &["--annotation", &label], &["sh", "-c", "exit 5"])?;
            ensure!(out.status == 5, "round {round}: {out:?}");
        }
        Ok(())
    })?;
    nothing_left(node, &ids)
}

/// containerd is killed again and again while one client runs short containers and one keeps a long one.
fn restarts_in_a_loop(node: &Node<'_>) -> Result<()> {
    let own = Containerd::start(node.containerd.version())?;
    let node = &Node {
        containerd: &own,
        shim: node.shim,
    };
    let long = node.id("steady");
    let _long = node.background(&long, &[], &["sleep", "1000"])?;
    let pid = node.status(&long)?.context("no task")?.0;
    let mut ids = Vec::new();
    for round in 0..scaled(30).max(4) {
        let short: Vec<String> = (0..2).map(|_| node.id("brief")).collect();
        std::thread::scope(|scope| -> Result<()> {
            for id in &short {
                scope.spawn(move || {
                    let _ = node
                        .background(id, &[], &["sh", "-c", "sleep 0.2; exit 33"])
                        .map(std::mem::forget);
                });
            }
            std::thread::sleep(Duration::from_millis(150 + u64::from(round % 5) * 60));
            own.kill()
        })?;
        own.start_again()?;
        let api = node.api()?;
        for id in &short {
            // There, with its status, or not there at all.
            match api.wait(id, "", LIMIT) {
                Ok(exit) => {
                    ensure!(
                        [33, 137].contains(&exit.exit_status),
                        "round {round}: {}",
                        exit.exit_status
                    );
                    let deleted = api.delete(id)?;
                    ensure!(
                        deleted.exit_status == exit.exit_status,
                        "round {round}: waited {}, deleted {}",
                        exit.exit_status,
                        deleted.exit_status
                    );
                }
                // Created and never started: nobody will end it.
                Err(status) if status.message().contains("no answer") => {
                    let _ = api.kill(id, "", 9, true);
                    let _ = api.delete(id);
                }
                Err(status) => ensure!(
                    status.message().contains("not found"),
                    "round {round}: {status}"
                ),
            }
        }
        ensure!(
            node.status(&long)?
                .is_some_and(|(p, s)| p == pid && s == "RUNNING"),
            "round {round}: {:?}",
            node.status(&long)?
        );
        ids.extend(short);
    }
    nothing_left(node, &ids)
}
