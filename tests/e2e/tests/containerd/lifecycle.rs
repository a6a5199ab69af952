//! The life of a task: create, start, exit, delete.

use a3sbox_e2e::{Case, Leftovers, Node, eventually};
use anyhow::{Result, ensure};
use std::time::Duration;

const GONE_LIMIT: Duration = Duration::from_secs(5);

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
        Case::full("lifecycle::a_taken_id_is_refused", a_taken_id_is_refused),
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
