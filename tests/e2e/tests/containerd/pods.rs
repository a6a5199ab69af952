//! Pods through CRI as the kubelet makes them, and `nerdctl`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use a3sbox_e2e::{BUSYBOX, Case, Node, Output, eventually};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(15);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::core("pods::a_pods_life", a_pods_life),
        Case::full(
            "pods::three_containers_in_one_shim",
            three_containers_in_one_shim,
        ),
        Case::full("pods::host_network", host_network),
        Case::full("pods::shared_pid_namespace", shared_pid_namespace),
        Case::full("pods::exec_with_a_terminal", exec_with_a_terminal),
        Case::full("pods::attach", attach),
        Case::full("pods::limits_and_stats", limits_and_stats),
        Case::full("pods::port_forward", port_forward),
        Case::full(
            "pods::more_isolation_is_refused_without_microvm",
            more_isolation,
        )
        .ours_alone(),
        Case::full("pods::nerdctl_runs_a_container", nerdctl_runs_a_container),
        Case::full("pods::nerdctl_logs_of_a_detached_container", nerdctl_logs),
    ]
}

/// A pod sandbox, removed at the end with all that is in it.
struct Pod<'a> {
    node: &'a Node<'a>,
    dir: PathBuf,
    config: String,
    id: String,
}

impl<'a> Pod<'a> {
    fn run(node: &'a Node<'a>, linux: Value, annotations: Value) -> Result<Self> {
        let name = node.id("pod");
        let dir = node.containerd.dir().join("pods").join(&name);
        std::fs::create_dir_all(dir.join("logs"))?;
        let config = dir.join("pod.json").display().to_string();
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "attempt": 1},
            "log_directory": dir.join("logs"),
            "annotations": annotations,
            "linux": linux
        });
        std::fs::write(&config, pod.to_string())?;
        let out = node
            .tool(&["crictl", "runp", "--runtime", node.shim.handler(), &config])?
            .ok()?;
        let id = out.stdout.trim().to_owned();
        Ok(Self {
            node,
            dir,
            config,
            id,
        })
    }

    fn plain(node: &'a Node<'a>) -> Result<Self> {
        Self::run(node, json!({}), json!({}))
    }

    /// Creates and starts a container; returns its id.
    fn start(&self, name: &str, fragment: Value, command: &[&str]) -> Result<String> {
        let mut config = json!({
            "metadata": {"name": name},
            "image": {"image": BUSYBOX},
            "command": command,
            "log_path": format!("{name}.log"),
            "linux": {}
        });
        a3sbox_e2e::merge(&mut config, fragment);
        let path = self.dir.join(format!("{name}.json")).display().to_string();
        std::fs::write(&path, config.to_string())?;
        let id = self
            .crictl(&["create", &self.id, &path, &self.config])?
            .ok()?
            .stdout
            .trim()
            .to_owned();
        self.crictl(&["start", &id])?.ok()?;
        Ok(id)
    }

    fn crictl(&self, args: &[&str]) -> Result<Output> {
        let mut argv = vec!["crictl"];
        argv.extend(args);
        self.node.tool(&argv)
    }

    fn state(&self, container: &str) -> Result<(String, i64)> {
        let out = self.crictl(&["inspect", container])?.ok()?;
        let value: Value = serde_json::from_str(&out.stdout)?;
        let status = &value["status"];
        Ok((
            status["state"].as_str().unwrap_or_default().to_owned(),
            status["exitCode"].as_i64().unwrap_or(-1),
        ))
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let _ = self.crictl(&["stopp", &self.id]);
        let _ = self.crictl(&["rmp", "-f", &self.id]);
    }
}

/// Pids of the shims that were started for a pod.
fn shims_of(node: &Node<'_>, pod: &str) -> usize {
    let socket = node
        .containerd
        .dir()
        .join("containerd.sock")
        .display()
        .to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|command| {
            command
                .split(|b| *b == 0)
                .map(|w| String::from_utf8_lossy(w).into_owned())
                .collect::<Vec<_>>()
        })
        .filter(|words| words.first().is_some_and(|w| w.contains("containerd-shim")))
        .filter(|words| words.contains(&socket) && words.iter().any(|w| w == pod))
        .count()
}

fn a_pods_life(node: &Node<'_>) -> Result<()> {
    let pod = Pod::plain(node)?;
    let id = pod.start(
        "main",
        json!({}),
        &[
            "sh",
            "-c",
            "echo hello; echo oops >&2; trap 'exit 3' TERM; while :; do sleep 0.1; done",
        ],
    )?;
    let out = pod.crictl(&["exec", &id, "sh", "-c", "echo in the pod; exit 4"])?;
    ensure!(out.stdout == "in the pod\n" && out.status != 0, "{out:?}");
    eventually("both lines in the log", LIMIT, || {
        let log = pod.crictl(&["logs", &id])?;
        Ok((log.stdout.contains("hello") && log.everything().contains("oops")).then_some(()))
    })?;
    ensure!(
        shims_of(node, &pod.id) == 1,
        "{} shims",
        shims_of(node, &pod.id)
    );
    pod.crictl(&["stop", "-t", "10", &id])?.ok()?;
    let state = pod.state(&id)?;
    ensure!(state == ("CONTAINER_EXITED".to_owned(), 3), "{state:?}");
    pod.crictl(&["rm", &id])?.ok()?;
    pod.crictl(&["stopp", &pod.id])?.ok()?;
    pod.crictl(&["rmp", &pod.id])?.ok()?;
    eventually("the pod's shim is gone", LIMIT, || {
        Ok((shims_of(node, &pod.id) == 0).then_some(()))
    })
}

fn three_containers_in_one_shim(node: &Node<'_>) -> Result<()> {
    let pod = Pod::plain(node)?;
    let mut ids = Vec::new();
    for name in ["one", "two", "three"] {
        ids.push(pod.start(
            name,
            json!({}),
            &["sh", "-c", &format!("echo I am {name}; sleep 1000")],
        )?);
    }
    ensure!(
        shims_of(node, &pod.id) == 1,
        "{} shims",
        shims_of(node, &pod.id)
    );
    for (id, name) in ids.iter().zip(["one", "two", "three"]) {
        eventually("each has its own log", LIMIT, || {
            Ok((pod.crictl(&["logs", id])?.stdout == format!("I am {name}\n")).then_some(()))
        })?;
    }
    pod.crictl(&["stop", "-t", "0", &ids[1]])?.ok()?;
    ensure!(pod.state(&ids[1])?.0 == "CONTAINER_EXITED");
    ensure!(
        pod.state(&ids[0])?.0 == "CONTAINER_RUNNING"
            && pod.state(&ids[2])?.0 == "CONTAINER_RUNNING"
    );
    Ok(())
}

fn host_network(node: &Node<'_>) -> Result<()> {
    let network = json!({"security_context": {"namespace_options": {"network": 2}}});
    let pod = Pod::run(node, network.clone(), json!({}))?;
    let id = pod.start("net", json!({"linux": network}), &["sleep", "1000"])?;
    let inside = pod
        .crictl(&["exec", &id, "readlink", "/proc/self/ns/net"])?
        .ok()?;
    let outside = std::fs::read_link("/proc/self/ns/net")?;
    ensure!(
        inside.stdout.trim() == outside.display().to_string(),
        "{} {}",
        inside.stdout,
        outside.display()
    );
    Ok(())
}

fn shared_pid_namespace(node: &Node<'_>) -> Result<()> {
    let shared = json!({"security_context": {"namespace_options": {"pid": 0}}});
    let pod = Pod::run(node, shared.clone(), json!({}))?;
    let first = pod.start("first", json!({"linux": shared}), &["sleep", "1001"])?;
    let second = pod.start("second", json!({"linux": shared}), &["sleep", "1002"])?;
    let ps = pod
        .crictl(&["exec", &second, "ps", "-o", "args"])?
        .ok()?
        .stdout;
    ensure!(
        ps.contains("sleep 1001") && ps.contains("sleep 1002"),
        "{ps}"
    );
    pod.crictl(&["stop", "-t", "0", &first])?.ok()?;
    ensure!(
        pod.state(&second)?.0 == "CONTAINER_RUNNING",
        "the other container ended too"
    );
    Ok(())
}

fn exec_with_a_terminal(node: &Node<'_>) -> Result<()> {
    let pod = Pod::plain(node)?;
    let id = pod.start("tty", json!({}), &["sleep", "1000"])?;
    let line =
        format!("script -qec 'crictl exec -it {id} sh -c \"tty; echo done\"' /dev/null </dev/null");
    let out = node.tool(&["sh", "-c", &line])?.ok()?;
    ensure!(
        out.stdout.contains("/dev/pts/") && out.stdout.contains("done"),
        "{:?}",
        out.stdout
    );
    Ok(())
}

fn attach(node: &Node<'_>) -> Result<()> {
    let pod = Pod::plain(node)?;
    let id = pod.start("cat", json!({"stdin": true, "stdin_once": true}), &["cat"])?;
    let line = format!("(sleep 0.5; echo typed; sleep 0.5) | timeout 20 crictl attach -i {id}");
    let out = node.tool(&["sh", "-c", &line])?;
    ensure!(out.stdout.contains("typed"), "{out:?}");
    Ok(())
}

fn limits_and_stats(node: &Node<'_>) -> Result<()> {
    let pod = Pod::plain(node)?;
    let limits = json!({"linux": {"resources": {"memory_limit_in_bytes": 64 << 20, "cpu_period": 100_000, "cpu_quota": 50_000}}});
    let id = pod.start("limited", limits, &["sleep", "1000"])?;
    let stats = eventually("stats", LIMIT, || {
        let out = pod.crictl(&["stats", "-o", "json", "--id", &id])?;
        let value: Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        let used = &value["stats"][0]["memory"]["workingSetBytes"]["value"];
        Ok(used
            .as_str()
            .and_then(|s| s.parse::<u64>().ok())
            .filter(|b| *b > 0))
    })?;
    ensure!(stats < 64 << 20, "{stats} bytes");
    pod.crictl(&["update", "--memory", &(96_u64 << 20).to_string(), &id])?
        .ok()?;
    let out = pod
        .crictl(&["exec", &id, "cat", "/proc/self/cgroup"])?
        .ok()?;
    ensure!(!out.stdout.is_empty());
    Ok(())
}

/// A program in the background that ends with the case.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fetch(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}

fn port_forward(node: &Node<'_>) -> Result<()> {
    let pod = Pod::plain(node)?;
    let serve = "mkdir /tmp/w; echo the page >/tmp/w/index.html; httpd -p 127.0.0.1:8080 -h /tmp/w; httpd -p 0.0.0.0:8082 -h /tmp/w; sleep 1000";
    pod.start("web", json!({}), &["sh", "-c", serve])?;
    let (loopback, any) = (free_port()?, free_port()?);
    let child = Command::new("crictl")
        .args([
            "port-forward",
            &pod.id,
            &format!("{loopback}:8080"),
            &format!("{any}:8082"),
        ])
        .env_clear()
        .envs(node.containerd.env().iter().collect::<BTreeMap<_, _>>())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let _forwarder = Background(child);
    for port in [loopback, any] {
        eventually("the page comes", LIMIT, || {
            Ok(fetch(port).ok().filter(|page| page.contains("the page")))
        })
        .with_context(|| format!("port {port}"))?;
    }
    Ok(())
}

fn more_isolation(node: &Node<'_>) -> Result<()> {
    let refused = Pod::run(node, json!({}), json!({"a3s.box/isolation": "microvm"}));
    let error = refused
        .err()
        .context("a pod that asked for a microVM runs on the node's kernel")?;
    ensure!(
        format!("{error:#}").to_lowercase().contains("microvm"),
        "{error:#}"
    );
    Ok(())
}

fn nerdctl(node: &Node<'_>, args: &[&str]) -> Result<Output> {
    let data = node.containerd.dir().join("nerdctl").display().to_string();
    let mut argv = vec![
        "nerdctl",
        "--namespace",
        node.namespace(),
        "--data-root",
        &data,
        "--cgroup-manager",
        "cgroupfs",
    ];
    argv.extend(args);
    node.tool(&argv)
}

fn nerdctl_runs_a_container(node: &Node<'_>) -> Result<()> {
    let id = node.id("nerd");
    let out = nerdctl(
        node,
        &[
            "run",
            "--rm",
            "--net",
            "none",
            "--name",
            &id,
            "--runtime",
            node.shim.runtime_type(),
            BUSYBOX,
            "sh",
            "-c",
            "echo nerd; exit 6",
        ],
    )?;
    ensure!(out.stdout.contains("nerd\n") && out.status == 6, "{out:?}");
    Ok(())
}

fn nerdctl_logs(node: &Node<'_>) -> Result<()> {
    let id = node.id("nerdlog");
    nerdctl(
        node,
        &[
            "run",
            "-d",
            "--net",
            "none",
            "--name",
            &id,
            "--runtime",
            node.shim.runtime_type(),
            BUSYBOX,
            "sh",
            "-c",
            "echo logged; sleep 1000",
        ],
    )?
    .ok()?;
    let seen = eventually("the line is in the log", LIMIT, || {
        Ok(nerdctl(node, &["logs", &id])?
            .stdout
            .contains("logged")
            .then_some(()))
    });
    let exec = nerdctl(node, &["exec", &id, "echo", "in it"]);
    let removed = nerdctl(node, &["rm", "-f", &id]);
    seen?;
    ensure!(exec?.ok()?.stdout == "in it\n");
    removed?.ok()?;
    Ok(())
}
