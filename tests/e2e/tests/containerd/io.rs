//! Standard streams: no byte is lost, nobody is blocked by a reader that left or stopped.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use a3sbox_e2e::{
    Api, BUSYBOX, Case, Node, TaskIo, drain_to_end, eventually, make_fifo, open_reader,
    open_writer, scaled,
};
use anyhow::{Context, Result, ensure};

const RUN_LIMIT: Duration = Duration::from_secs(5);
const LONG_OUTPUT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::core(
            "io::case_01_input_that_ends_before_the_start",
            input_that_ends_before_the_start,
        ),
        Case::full(
            "io::case_01_input_that_ends_after_the_start",
            input_that_ends_after_the_start,
        ),
        Case::full("io::case_01_no_input", no_input),
        Case::full("io::case_01_from_a_shell", input_from_a_shell),
        Case::full("io::case_02_long_terminal_output", long_terminal_output),
        Case::full(
            "io::case_02_long_terminal_output_of_an_exec",
            long_terminal_output_of_an_exec,
        ),
        Case::full("io::a_large_output_is_whole", a_large_output_is_whole),
        Case::full(
            "io::a_reader_that_stopped_blocks_nothing",
            a_reader_that_stopped_blocks_nothing,
        ),
        Case::full(
            "io::a_reader_that_left_blocks_nothing",
            a_reader_that_left_blocks_nothing,
        ),
        Case::full("io::a_log_file_is_written", a_log_file_is_written),
        Case::full(
            "io::a_logging_binary_gets_both_streams",
            a_logging_binary_gets_both_streams,
        ),
        Case::full(
            "io::a_missing_stdio_path_is_refused",
            a_missing_stdio_path_is_refused,
        ),
        Case::full(
            "io::a_terminal_has_a_size_and_can_be_resized",
            a_terminal_can_be_resized,
        ),
    ]
}

/// A created container with fifos of its own, removed at the end.
struct Fifos<'a> {
    node: &'a Node<'a>,
    api: Api,
    id: String,
    dir: PathBuf,
    io: TaskIo,
}

impl<'a> Fifos<'a> {
    fn container(node: &'a Node<'a>, hint: &str, command: &[&str]) -> Result<Self> {
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
        let dir = node.containerd.dir().join("fifos").join(&id);
        std::fs::create_dir_all(&dir)?;
        let path = |name: &str| dir.join(name).display().to_string();
        let io = TaskIo {
            stdin: path("stdin"),
            stdout: path("stdout"),
            stderr: path("stderr"),
            terminal: false,
        };
        for fifo in [&io.stdin, &io.stdout, &io.stderr] {
            make_fifo(Path::new(fifo))?;
        }
        Ok(Self {
            api: node.api()?,
            node,
            id,
            dir,
            io,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Fifos<'_> {
    fn drop(&mut self) {
        let _ = self.api.kill(&self.id, "", 9, true);
        let _ = self.api.wait(&self.id, "", RUN_LIMIT);
        let _ = self.api.delete(&self.id);
        let _ = self.node.ctr(&["container", "rm", &self.id]);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

enum CloseAt {
    Created,
    Started,
}

/// Create, write, close, CloseIO, start: the process reads exactly what was written.
fn feed(node: &Node<'_>, command: &[&str], input: &[u8], close_at: CloseAt) -> Result<Vec<u8>> {
    let task = Fifos::container(node, "stdin", command)?;
    let mut stdout = open_reader(&task.path("stdout"))?;
    let _stderr = open_reader(&task.path("stderr"))?;
    // A client opens its end of stdin before Create, as the shim's opening may wait for it.
    let reader_side = open_reader(&task.path("stdin"))?;
    let mut stdin = open_writer(&task.path("stdin"))?;
    task.api.create(&task.id, &task.io)?;
    drop(reader_side);
    stdin.write_all(input)?;
    drop(stdin);
    if matches!(close_at, CloseAt::Created) {
        task.api.close_stdin(&task.id, "")?;
    }
    task.api.start(&task.id, "")?;
    if matches!(close_at, CloseAt::Started) {
        task.api.close_stdin(&task.id, "")?;
    }
    let exit = task.api.wait(&task.id, "", RUN_LIMIT).context("wait")?;
    ensure!(exit.exit_status == 0, "exit {}", exit.exit_status);
    task.api.delete(&task.id)?;
    drain_to_end(&mut stdout, RUN_LIMIT)
}

fn input_that_ends_before_the_start(node: &Node<'_>) -> Result<()> {
    for round in 0..scaled(50) {
        let out = feed(node, &["cat"], b"hello\n", CloseAt::Created)?;
        ensure!(
            out == b"hello\n",
            "round {round}: {:?}",
            String::from_utf8_lossy(&out)
        );
    }
    Ok(())
}

fn input_that_ends_after_the_start(node: &Node<'_>) -> Result<()> {
    for round in 0..scaled(50) {
        let out = feed(node, &["cat"], b"hello\n", CloseAt::Started)?;
        ensure!(
            out == b"hello\n",
            "round {round}: {:?}",
            String::from_utf8_lossy(&out)
        );
    }
    Ok(())
}

fn no_input(node: &Node<'_>) -> Result<()> {
    for _ in 0..scaled(50) {
        let out = feed(node, &["wc", "-c"], b"", CloseAt::Created)?;
        ensure!(out == b"0\n", "{:?}", String::from_utf8_lossy(&out));
    }
    Ok(())
}

fn input_from_a_shell(node: &Node<'_>) -> Result<()> {
    let id = node.id("shell");
    let line = format!(
        "(printf 'hello\\n'; sleep 1) | ctr -n {} run --rm --runtime {} {BUSYBOX} {id} cat",
        node.namespace(),
        node.shim.runtime_type()
    );
    let out = node.tool(&["sh", "-c", &line])?.ok()?;
    ensure!(out.stdout == "hello\n", "{:?}", out.stdout);
    Ok(())
}

const TTY_LINES: usize = 200_000;

fn whole_terminal_output(node: &Node<'_>, ctr_line: &str) -> Result<()> {
    let line = format!(
        "script -qec \"ctr -n {} {ctr_line}\" /dev/null </dev/null",
        node.namespace()
    );
    let out = a3sbox_e2e::run(
        node.containerd.env(),
        &["sh", "-c", &line],
        LONG_OUTPUT_LIMIT,
    )?
    .ok()?;
    let lines: Vec<_> = out
        .stdout
        .lines()
        .map(|l| l.trim_end_matches('\r'))
        .collect();
    ensure!(lines.len() == TTY_LINES, "{} lines", lines.len());
    ensure!(
        lines.last() == Some(&"200000"),
        "last line {:?}",
        lines.last()
    );
    Ok(())
}

fn long_terminal_output(node: &Node<'_>) -> Result<()> {
    for _ in 0..scaled(20) {
        let id = node.id("tty");
        let line = format!(
            "run -t --rm --runtime {} {BUSYBOX} {id} seq 1 {TTY_LINES}",
            node.shim.runtime_type()
        );
        whole_terminal_output(node, &line)?;
    }
    Ok(())
}

fn long_terminal_output_of_an_exec(node: &Node<'_>) -> Result<()> {
    let running = node.background(&node.id("ttyexec"), &[], &["sleep", "1000"])?;
    for round in 0..scaled(20) {
        let line = format!(
            "task exec -t --exec-id e{round} {} seq 1 {TTY_LINES}",
            running.id()
        );
        whole_terminal_output(node, &line)?;
    }
    Ok(())
}

fn a_large_output_is_whole(node: &Node<'_>) -> Result<()> {
    let id = node.id("large");
    let line = format!(
        "ctr -n {} run --rm --runtime {} {BUSYBOX} {id} dd if=/dev/zero bs=64k count=1024 2>/dev/null | wc -c",
        node.namespace(),
        node.shim.runtime_type()
    );
    let out = a3sbox_e2e::run(
        node.containerd.env(),
        &["sh", "-c", &line],
        LONG_OUTPUT_LIMIT,
    )?
    .ok()?;
    ensure!(
        out.stdout.trim() == "67108864",
        "{} bytes of 67108864",
        out.stdout.trim()
    );
    Ok(())
}

/// The reader has the fifo open and does not read: the process stays, Kill, Wait and Delete answer.
fn a_reader_that_stopped_blocks_nothing(node: &Node<'_>) -> Result<()> {
    let task = Fifos::container(
        node,
        "stopped",
        &["sh", "-c", "while :; do echo 0123456789abcdef; done"],
    )?;
    let _stdout = open_reader(&task.path("stdout"))?;
    let _stderr = open_reader(&task.path("stderr"))?;
    let io = TaskIo {
        stdin: String::new(),
        ..task.io.clone()
    };
    task.api.create(&task.id, &io)?;
    task.api.start(&task.id, "")?;
    kill_wait_delete(&task)
}

fn a_reader_that_left_blocks_nothing(node: &Node<'_>) -> Result<()> {
    let task = Fifos::container(
        node,
        "left",
        &[
            "sh",
            "-c",
            "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); echo $i; done; sleep 1000",
        ],
    )?;
    let stdout = open_reader(&task.path("stdout"))?;
    let stderr = open_reader(&task.path("stderr"))?;
    let io = TaskIo {
        stdin: String::new(),
        ..task.io.clone()
    };
    task.api.create(&task.id, &io)?;
    task.api.start(&task.id, "")?;
    drop((stdout, stderr));
    kill_wait_delete(&task)
}

fn kill_wait_delete(task: &Fifos<'_>) -> Result<()> {
    let began = Instant::now();
    task.api.kill(&task.id, "", 9, true)?;
    let exit = task.api.wait(&task.id, "", RUN_LIMIT).context("wait")?;
    ensure!(exit.exit_status == 137, "exit {}", exit.exit_status);
    let deleted = task.api.delete(&task.id)?;
    ensure!(
        deleted.exit_status == 137,
        "delete says {}",
        deleted.exit_status
    );
    ensure!(
        began.elapsed() < RUN_LIMIT * 2,
        "it took {:?}",
        began.elapsed()
    );
    Ok(())
}

fn a_log_file_is_written(node: &Node<'_>) -> Result<()> {
    let id = node.id("logfile");
    let log = node.containerd.dir().join(format!("{id}.log"));
    let uri = format!("file://{}", log.display());
    node.ctr(&[
        "run",
        "-d",
        "--log-uri",
        &uri,
        "--runtime",
        node.shim.runtime_type(),
        "--",
        BUSYBOX,
        &id,
        "sh",
        "-c",
        "echo out; echo err >&2",
    ])?
    .ok()?;
    eventually("both lines in the file", RUN_LIMIT, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        Ok((text.contains("out\n") && text.contains("err\n")).then_some(()))
    })?;
    eventually("the task is removed", RUN_LIMIT, || {
        Ok(node.ctr(&["task", "rm", &id])?.ok().ok())
    })?;
    node.ctr(&["container", "rm", &id])?.ok()?;
    Ok(())
}

/// A logging binary as containerd defines it: streams on descriptors 3 and 4, ready by closing 5.
fn a_logging_binary_gets_both_streams(node: &Node<'_>) -> Result<()> {
    let id = node.id("logger");
    let dir = node.containerd.dir();
    let (script, log) = (dir.join(format!("{id}.sh")), dir.join(format!("{id}.log")));
    std::fs::write(
        &script,
        format!(
            "#!/bin/sh\nexec 5>&-\necho \"$CONTAINER_ID $CONTAINER_NAMESPACE $1 $2\" >>{0}\ncat <&3 >>{0} &\ncat <&4 >>{0}\nwait\n",
            log.display()
        ),
    )?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let uri = format!("binary://{}?key=value", script.display());
    node.ctr(&[
        "run",
        "-d",
        "--log-uri",
        &uri,
        "--runtime",
        node.shim.runtime_type(),
        "--",
        BUSYBOX,
        &id,
        "sh",
        "-c",
        "echo out; echo err >&2",
    ])?
    .ok()?;
    eventually("what the container wrote, in the log", RUN_LIMIT, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let named = text.contains(&format!("{id} {} key value", node.namespace()));
        Ok((named && text.contains("out\n") && text.contains("err\n")).then_some(()))
    })
    .with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
    eventually("the task is removed", RUN_LIMIT, || {
        Ok(node.ctr(&["task", "rm", &id])?.ok().ok())
    })?;
    node.ctr(&["container", "rm", &id])?.ok()?;
    Ok(())
}

fn a_missing_stdio_path_is_refused(node: &Node<'_>) -> Result<()> {
    let task = Fifos::container(node, "nofifo", &["true"])?;
    let missing = task.path("missing").display().to_string();
    let io = TaskIo {
        stdin: missing.clone(),
        stdout: missing.clone(),
        stderr: String::new(),
        terminal: false,
    };
    let error = task
        .api
        .create(&task.id, &io)
        .expect_err("a task without its fifo was created");
    ensure!(
        error.message().contains(&missing) || error.message().contains("no such file"),
        "{error}"
    );
    let state = task.api.state(&task.id, "");
    ensure!(state.is_err(), "there is a task: {state:?}");
    Ok(())
}

fn a_terminal_can_be_resized(node: &Node<'_>) -> Result<()> {
    let mut task = Fifos::container(node, "size", &["true"])?;
    task.node.ctr(&["container", "rm", &task.id])?.ok()?;
    task.id = node.id("size");
    node.ctr(&[
        "container",
        "create",
        "-t",
        "--runtime",
        node.shim.runtime_type(),
        "--",
        BUSYBOX,
        &task.id,
        "sh",
        "-c",
        "while [ \"$(stty size)\" != '40 120' ]; do sleep 0.05; done; stty size",
    ])?
    .ok()?;
    let mut stdout = open_reader(&task.path("stdout"))?;
    let io = TaskIo {
        stdin: String::new(),
        stderr: String::new(),
        terminal: true,
        ..task.io.clone()
    };
    task.api.create(&task.id, &io)?;
    task.api.start(&task.id, "")?;
    task.api.resize(&task.id, "", 120, 40)?;
    let exit = task.api.wait(&task.id, "", RUN_LIMIT)?;
    ensure!(exit.exit_status == 0, "exit {}", exit.exit_status);
    task.api.delete(&task.id)?;
    let out = drain_to_end(&mut stdout, RUN_LIMIT)?;
    ensure!(
        String::from_utf8_lossy(&out).contains("40 120"),
        "{:?}",
        String::from_utf8_lossy(&out)
    );
    Ok(())
}
