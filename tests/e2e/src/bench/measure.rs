//! What is measured, each as one figure of one shim on one containerd.

use std::path::Path;
use std::time::{Duration, Instant};

use a3sbox_e2e::{BUSYBOX, Node, Output, run};
use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// What our figure divided by the rival's should be at most.
    pub(crate) goal: f64,
    pub(crate) rounds: usize,
    pub(crate) run: fn(&Node<'_>) -> Result<f64>,
}

pub(crate) const MEASURES: [Measure; 9] = [
    Measure {
        name: "life",
        unit: "ms",
        goal: 0.85,
        rounds: 40,
        run: life,
    },
    Measure {
        name: "exec",
        unit: "ms",
        goal: 0.95,
        rounds: 40,
        run: exec,
    },
    Measure {
        name: "idle-memory",
        unit: "KiB",
        goal: 0.5,
        rounds: 5,
        run: idle_memory,
    },
    Measure {
        name: "stdout",
        unit: "ms",
        goal: 1.0,
        rounds: 8,
        run: stdout,
    },
    Measure {
        name: "fifty-at-once",
        unit: "ms",
        goal: 0.85,
        rounds: 5,
        run: fifty_at_once,
    },
    Measure {
        name: "pod-of-20-time",
        unit: "ms",
        goal: 1.0,
        rounds: 4,
        run: pod_of_twenty_time,
    },
    Measure {
        name: "pod-of-20-memory",
        unit: "KiB",
        goal: 1.0,
        rounds: 3,
        run: pod_of_twenty_memory,
    },
    Measure {
        name: "state-alone",
        unit: "us",
        goal: 1.0,
        rounds: 4,
        run: state_alone,
    },
    Measure {
        name: "state-among-200",
        unit: "us",
        goal: 1.0,
        rounds: 2,
        run: state_among_many,
    },
];

const LIMIT: Duration = Duration::from_secs(120);

/// CPU time of the children that have ended so far: ctr's own cost, as nothing else is our child.
fn children_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros)?))
}

/// Wall time of a command less its own CPU time, in milliseconds.
fn less_own_cost(command: impl FnOnce() -> Result<Output>) -> Result<f64> {
    let before = children_cpu()?;
    let out = command()?.ok()?;
    let own = children_cpu()?.saturating_sub(before);
    Ok(out.took.saturating_sub(own).as_secs_f64() * 1e3)
}

fn life(node: &Node<'_>) -> Result<f64> {
    less_own_cost(|| node.run(&node.id("life"), &[], &["true"]))
}

fn exec(node: &Node<'_>) -> Result<f64> {
    let running = node.background(&node.id("exec"), &[], &["sleep", "1000"])?;
    let mut total = 0.0;
    for round in 0..ROUNDS_PER_CONTAINER {
        total += less_own_cost(|| node.exec(running.id(), &format!("e{round}"), &[], &["true"]))?;
    }
    Ok(total / f64::from(ROUNDS_PER_CONTAINER))
}

const ROUNDS_PER_CONTAINER: u32 = 3;

/// Pids of the shims of this node's containerd.
fn shims(node: &Node<'_>) -> Result<Vec<String>> {
    let socket = node
        .containerd
        .dir()
        .join("containerd.sock")
        .display()
        .to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let command = String::from_utf8_lossy(&command).into_owned();
        let mut words = command.split('\0');
        if words.next().is_some_and(|w| w.contains("containerd-shim")) && words.any(|w| w == socket)
        {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// Private memory of all shims of the node, in KiB.
fn private_memory(node: &Node<'_>) -> Result<f64> {
    let mut total = 0.0;
    for pid in shims(node)? {
        let text = std::fs::read_to_string(Path::new("/proc").join(&pid).join("smaps_rollup"))?;
        for line in text.lines().filter(|l| l.starts_with("Private_")) {
            total += line
                .split_whitespace()
                .nth(1)
                .context("smaps_rollup")?
                .parse::<f64>()?;
        }
    }
    Ok(total)
}

fn idle_memory(node: &Node<'_>) -> Result<f64> {
    ensure!(
        shims(node)?.is_empty(),
        "a shim of an earlier round is still there"
    );
    let running = node.background(&node.id("idle"), &[], &["sleep", "1000"])?;
    std::thread::sleep(SETTLE);
    let memory = private_memory(node);
    drop(running);
    await_no_shim(node)?;
    memory
}

/// How long a shim is left alone before its memory is read.
const SETTLE: Duration = Duration::from_millis(1500);

fn await_no_shim(node: &Node<'_>) -> Result<()> {
    a3sbox_e2e::eventually("the shims end", LIMIT, || {
        Ok(shims(node)?.is_empty().then_some(()))
    })
}

/// Time of 512 MiB from the container to a reader that throws it away.
fn stdout(node: &Node<'_>) -> Result<f64> {
    let line = format!(
        "ctr -n {} run --rm --runtime {} {BUSYBOX} {} dd if=/dev/zero bs=1M count=512 2>/dev/null | dd of=/dev/null bs=1M 2>/dev/null",
        node.namespace(),
        node.shim.runtime_type(),
        node.id("pipe"),
    );
    let out = run(node.containerd.env(), &["sh", "-c", &line], LIMIT)?.ok()?;
    Ok(out.took.as_secs_f64() * 1e3)
}

const AT_ONCE: usize = 50;

fn fifty_at_once(node: &Node<'_>) -> Result<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let lives: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(|| node.run(&node.id("crowd"), &[], &["true"])?.ok().map(drop)))
            .collect();
        for life in lives {
            life.join()
                .map_err(|_| anyhow::anyhow!("a life panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    await_no_shim(node)?;
    Ok(took)
}

const PER_POD: usize = 20;

/// Twenty containers in one group: time per container, and private memory of their shim.
fn pod_of_twenty(node: &Node<'_>) -> Result<(f64, f64)> {
    let group = node.id("group");
    let label = format!("io.containerd.runc.v2.group={group}");
    let began = Instant::now();
    let mut members = Vec::new();
    for _ in 0..PER_POD {
        members.push(node.background(
            &node.id("member"),
            &["--annotation", &label],
            &["sleep", "1000"],
        )?);
    }
    let each = began.elapsed().as_secs_f64() * 1e3 / PER_POD as f64;
    std::thread::sleep(SETTLE);
    let memory = private_memory(node);
    drop(members);
    await_no_shim(node)?;
    Ok((each, memory?))
}

fn pod_of_twenty_time(node: &Node<'_>) -> Result<f64> {
    pod_of_twenty(node).map(|(time, _)| time)
}

fn pod_of_twenty_memory(node: &Node<'_>) -> Result<f64> {
    pod_of_twenty(node).map(|(_, memory)| memory)
}

const STATE_CALLS: u32 = 300;
const MANY: usize = 200;

/// Time of one Task State and one Task Metrics of a container in a group of that size, in microseconds.
fn state_in_group_of(node: &Node<'_>, size: usize) -> Result<f64> {
    let label = format!("io.containerd.runc.v2.group={}", node.id("group"));
    let mut members = Vec::new();
    for _ in 0..size {
        members.push(node.background(
            &node.id("member"),
            &["--annotation", &label],
            &["sleep", "1000"],
        )?);
    }
    let api = node.api()?;
    let id = members.first().context("no member")?.id().to_owned();
    let began = Instant::now();
    for _ in 0..STATE_CALLS {
        api.state(&id, "")?;
        api.metrics(&id)?;
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(STATE_CALLS);
    drop(members);
    await_no_shim(node)?;
    Ok(each)
}

fn state_alone(node: &Node<'_>) -> Result<f64> {
    state_in_group_of(node, 1)
}

fn state_among_many(node: &Node<'_>) -> Result<f64> {
    state_in_group_of(node, MANY)
}
