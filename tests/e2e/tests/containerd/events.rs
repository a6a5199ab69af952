//! Events as containerd's subscribers see them.

use std::time::Duration;

pub(crate) use a3sbox_e2e::Watcher;
use a3sbox_e2e::{Case, Node};
use anyhow::{Result, ensure};

const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::core("events::a_life_in_order", a_life_in_order),
        Case::full(
            "events::execs_and_pauses_in_order",
            execs_and_pauses_in_order,
        ),
        Case::full(
            "events::an_execs_exit_comes_before_its_inits",
            an_execs_exit_comes_before_its_inits,
        ),
    ]
}

fn a_life_in_order(node: &Node<'_>) -> Result<()> {
    let events = Watcher::start(node)?;
    let id = node.id("events");
    node.run(&id, &[], &["true"])?.ok()?;
    let topics = events.topics_of(&id, "/tasks/delete", LIMIT)?;
    ensure!(
        topics
            == [
                "/tasks/create",
                "/tasks/start",
                "/tasks/exit",
                "/tasks/delete"
            ],
        "{topics:?}"
    );
    Ok(())
}

fn execs_and_pauses_in_order(node: &Node<'_>) -> Result<()> {
    let events = Watcher::start(node)?;
    let id = node.id("events");
    let running = node.background(&id, &[], &["sleep", "1000"])?;
    node.ctr(&["task", "pause", &id])?.ok()?;
    node.ctr(&["task", "resume", &id])?.ok()?;
    node.exec(&id, "e", &[], &["true"])?.ok()?;
    drop(running);
    let topics = events.topics_of(&id, "/tasks/delete", LIMIT)?;
    let wanted = [
        "/tasks/create",
        "/tasks/start",
        "/tasks/paused",
        "/tasks/resumed",
        "/tasks/exec-added",
        "/tasks/exec-started",
        "/tasks/exit",
        "/tasks/exit",
        "/tasks/delete",
    ];
    ensure!(topics == wanted, "{topics:?}");
    Ok(())
}

fn an_execs_exit_comes_before_its_inits(node: &Node<'_>) -> Result<()> {
    let events = Watcher::start(node)?;
    let id = node.id("order");
    let running = node.background(&id, &[], &["sleep", "1000"])?;
    let api = node.api()?;
    let process = serde_json::json!({"args": ["sleep", "1000"], "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}});
    api.exec(&id, "e1", &process, &a3sbox_e2e::TaskIo::default())?;
    api.start(&id, "e1")?;
    api.kill(&id, "", 9, false)?;
    api.wait(&id, "", LIMIT)?;
    drop(running);
    events.topics_of(&id, "/tasks/delete", LIMIT)?;
    let exits: Vec<_> = events
        .lines_of(&id)
        .into_iter()
        .filter(|line| line.contains("/tasks/exit"))
        .collect();
    ensure!(exits.len() == 2, "{exits:?}");
    ensure!(
        exits[0].contains("\"id\":\"e1\"") && exits[1].contains(&format!("\"id\":\"{id}\"")),
        "{exits:?}"
    );
    Ok(())
}
