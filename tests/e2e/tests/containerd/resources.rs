//! Limits and what the kernel says of them: cgroups, memory-backed mounts, OOM.

use std::time::Duration;

use a3sbox_e2e::{Bundle, Case, Node, eventually};
use anyhow::{Context, Result, ensure};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(20);
const MIB: i64 = 1 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::full(
            "resources::case_07_a_limit_below_the_use_is_refused",
            a_limit_below_the_use_is_refused,
        ),
        Case::full(
            "resources::case_08_size_of_memory_backed_mounts",
            size_of_memory_backed_mounts,
        ),
        Case::full(
            "resources::limits_reach_the_kernel",
            limits_reach_the_kernel,
        ),
        Case::core(
            "resources::metrics_are_the_hosts_form",
            metrics_are_the_hosts_form,
        ),
        Case::full(
            "resources::an_oom_kill_is_told_before_the_exit",
            an_oom_kill_is_told_before_the_exit,
        ),
        Case::full(
            "resources::pids_name_every_process",
            pids_name_every_process,
        ),
    ]
}

/// Memory limit of a process, as the kernel holds it.
fn kernel_limit(pid: u32) -> Result<i64> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (
            parts.next(),
            parts.next().unwrap_or(""),
            parts.next().unwrap_or(""),
        );
        let file = if controllers.split(',').any(|c| c == "memory") {
            format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")
        } else if controllers.is_empty()
            && std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
        {
            format!("/sys/fs/cgroup{path}/memory.max")
        } else {
            continue;
        };
        return Ok(std::fs::read_to_string(&file)
            .context(file)?
            .trim()
            .parse()?);
    }
    anyhow::bail!("no memory controller for {pid}: {groups}")
}

fn a_limit_below_the_use_is_refused(node: &Node<'_>) -> Result<()> {
    let fill =
        "dd if=/dev/zero of=/dev/shm/f bs=1M count=40 2>/dev/null; touch /tmp/full; sleep 1000";
    let running = node.background(&node.id("below"), &[], &["sh", "-c", fill])?;
    let (api, id) = (node.api()?, running.id());
    let (pid, _) = node.status(id)?.context("no task")?;
    eventually("40 MiB are in use", LIMIT, || {
        Ok(std::path::Path::new(&format!("/proc/{pid}/root/tmp/full"))
            .exists()
            .then_some(()))
    })?;
    let before = kernel_limit(pid)?;
    let refused = api.update(id, &json!({"memory": {"limit": 8 * MIB}}));
    let error = refused
        .err()
        .context("a limit below the use was accepted")?;
    let text = error.message().to_lowercase();
    ensure!(
        text.contains("busy") || text.contains("below") || text.contains("limit"),
        "{error}"
    );
    ensure!(kernel_limit(pid)? == before, "the kernel's limit moved");
    ensure!(api.state(id, "")?.status == 2, "not running");
    api.update(id, &json!({"memory": {"limit": 64 * MIB}}))?;
    ensure!(kernel_limit(pid)? == 64 * MIB, "{}", kernel_limit(pid)?);
    ensure!(api.state(id, "")?.status == 2, "not running");
    Ok(())
}

fn size_of_memory_backed_mounts(node: &Node<'_>) -> Result<()> {
    let id = node.id("shm");
    let script = "/bin/busybox df -k /dev/shm /mem; dd if=/dev/zero of=/dev/shm/f bs=1M count=20; ls -l /dev/shm/f; /bin/busybox stat -c %a /mem";
    let mut bundle = Bundle::bare(node.containerd, &id, &["sh", "-c", script])?;
    if let Some(mounts) = bundle.config["mounts"].as_array_mut() {
        mounts.push(json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=16m"]}));
        mounts.push(json!({"destination": "/mem", "type": "tmpfs", "source": "tmpfs", "options": ["size=5m", "mode=700"]}));
    }
    let out = bundle.run(node, &id, &["--rm"])?;
    let words: Vec<_> = out.stdout.split_whitespace().collect();
    ensure!(
        words.contains(&"16384") && words.contains(&"5120"),
        "{}",
        out.stdout
    );
    ensure!(
        out.stderr.to_lowercase().contains("no space"),
        "{}",
        out.stderr
    );
    ensure!(
        words.contains(&"16777216") && words.last() == Some(&"700"),
        "{}",
        out.stdout
    );
    Ok(())
}

fn limits_reach_the_kernel(node: &Node<'_>) -> Result<()> {
    let running = node.background(
        &node.id("limits"),
        &["--memory-limit", "67108864"],
        &["sleep", "1000"],
    )?;
    let (pid, _) = node.status(running.id())?.context("no task")?;
    ensure!(kernel_limit(pid)? == 64 * MIB, "{}", kernel_limit(pid)?);
    node.api()?.update(
        running.id(),
        &json!({"memory": {"limit": 32 * MIB}, "pids": {"limit": 77}}),
    )?;
    ensure!(kernel_limit(pid)? == 32 * MIB, "{}", kernel_limit(pid)?);
    Ok(())
}

fn metrics_are_the_hosts_form(node: &Node<'_>) -> Result<()> {
    let running = node.background(&node.id("metrics"), &[], &["sleep", "1000"])?;
    let metrics = node.api()?.metrics(running.id())?;
    let v2 = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let wanted = if v2 {
        "io.containerd.cgroups.v2.Metrics"
    } else {
        "io.containerd.cgroups.v1.Metrics"
    };
    ensure!(metrics.type_url.ends_with(wanted), "{}", metrics.type_url);
    ensure!(!metrics.value.is_empty(), "empty metrics");
    let table = node.ctr(&["task", "metrics", running.id()])?.ok()?;
    ensure!(
        table.stdout.contains("memory.usage_in_bytes") || table.stdout.contains("memory.usage"),
        "{}",
        table.stdout
    );
    ensure!(table.stdout.contains("pids.current"), "{}", table.stdout);
    Ok(())
}

fn an_oom_kill_is_told_before_the_exit(node: &Node<'_>) -> Result<()> {
    let events = crate::events::Watcher::start(node)?;
    let id = node.id("oom");
    let eat = "x=a; while :; do x=$x$x; done";
    let out = node.run(&id, &["--memory-limit", "16777216"], &["sh", "-c", eat])?;
    ensure!(
        out.status == 137,
        "exit {}: {}",
        out.status,
        out.everything()
    );
    let topics = events.topics_of(&id, "/tasks/delete", LIMIT)?;
    let oom = topics
        .iter()
        .position(|t| t == "/tasks/oom")
        .with_context(|| format!("no OOM event: {topics:?}"))?;
    let exit = topics
        .iter()
        .position(|t| t == "/tasks/exit")
        .with_context(|| format!("no exit event: {topics:?}"))?;
    ensure!(
        !node.is_ours() || oom < exit,
        "the exit came first: {topics:?}"
    );
    Ok(())
}

fn pids_name_every_process(node: &Node<'_>) -> Result<()> {
    let running = node.background(
        &node.id("pids"),
        &[],
        &["sh", "-c", "sleep 1000 & sleep 1000 & wait"],
    )?;
    let api = node.api()?;
    let (pid, _) = node.status(running.id())?.context("no task")?;
    let pids = eventually("three processes", LIMIT, || {
        Ok(Some(api.pids(running.id())?).filter(|p| p.len() == 3))
    })?;
    ensure!(pids.contains(&pid), "{pids:?} without {pid}");
    Ok(())
}
