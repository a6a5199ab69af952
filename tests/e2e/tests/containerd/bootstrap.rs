//! How the shim starts, answers and ends; what containerd loads of our manifests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use a3sbox_e2e::{Case, Node, eventually, run, run_in};
use anyhow::{Context, Result, ensure};

const LIMIT: Duration = Duration::from_secs(15);
const BINARY: &str = "containerd-shim-a3sbox-v2";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::full("bootstrap::version_and_help", version_and_help).ours_alone(),
        Case::full("bootstrap::info_names_the_runtime", info_names_the_runtime).ours_alone(),
        Case::core(
            "bootstrap::a_group_shares_one_shim",
            a_group_shares_one_shim,
        ),
        Case::full(
            "bootstrap::two_starts_at_once_give_one_server",
            two_starts_at_once,
        )
        .ours_alone(),
        Case::full(
            "bootstrap::a_stale_socket_is_replaced",
            a_stale_socket_is_replaced,
        )
        .ours_alone(),
        Case::core(
            "bootstrap::the_shim_ends_when_idle",
            the_shim_ends_when_idle,
        ),
        Case::full(
            "bootstrap::sigterm_spares_a_shim_with_tasks",
            sigterm_spares_a_shim_with_tasks,
        )
        .ours_alone(),
        Case::core(
            "bootstrap::containerd_loads_the_handlers",
            containerd_loads_the_handlers,
        )
        .ours_alone(),
        Case::full(
            "bootstrap::hack_install_is_reversible",
            hack_install_is_reversible,
        )
        .ours_alone(),
    ]
}

fn version_and_help(node: &Node<'_>) -> Result<()> {
    let out = node.tool(&[BINARY, "-v"])?.ok()?;
    ensure!(
        out.stdout.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        out.stdout
    );
    let out = node.tool(&[BINARY, "-no-such-flag"])?.refused()?;
    ensure!(out.stderr.contains("no-such-flag"), "{}", out.stderr);
    Ok(())
}

fn info_names_the_runtime(node: &Node<'_>) -> Result<()> {
    let out = run_in(node.containerd.env(), &[BINARY, "-info"], Some(b""), LIMIT)?.ok()?;
    ensure!(
        out.stdout.contains("io.containerd.a3sbox.v2"),
        "{:?}",
        out.stdout
    );
    Ok(())
}

/// Shims whose command line names `id`.
fn shims(node: &Node<'_>, id: &str) -> Vec<i32> {
    let socket = node
        .containerd
        .dir()
        .join("containerd.sock")
        .display()
        .to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_string_lossy().parse().ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<_> = command
                .split(|b| *b == 0)
                .map(|w| String::from_utf8_lossy(w).into_owned())
                .collect();
            let ours = words.first().is_some_and(|w| w.contains("containerd-shim"));
            (ours && words.contains(&socket) && words.iter().any(|w| w == id)).then_some(pid)
        })
        .collect()
}

const GROUP: &str = "io.containerd.runc.v2.group";

fn a_group_shares_one_shim(node: &Node<'_>) -> Result<()> {
    let group = node.id("group");
    let label = format!("{GROUP}={group}");
    let (a, b) = (node.id("member"), node.id("member"));
    let first = node.background(&a, &["--annotation", &label], &["sleep", "1000"])?;
    let second = node.background(&b, &["--annotation", &label], &["sleep", "1000"])?;
    let all = shims(node, &a).len() + shims(node, &b).len() + shims(node, &group).len();
    ensure!(all == 1, "{all} shims for one group");
    drop(first);
    ensure!(
        node.status(&b)?.is_some_and(|(_, s)| s == "RUNNING"),
        "the second ended with the first"
    );
    drop(second);
    Ok(())
}

/// A bundle folder as containerd prepares it before `start`.
fn bundle_by_hand(node: &Node<'_>, id: &str) -> Result<PathBuf> {
    let bundle = node.containerd.dir().join("hand").join(id);
    std::fs::create_dir_all(&bundle)?;
    std::fs::write(
        bundle.join("config.json"),
        r#"{"ociVersion":"1.0.2","process":{"args":["true"],"cwd":"/","user":{"uid":0,"gid":0}},"root":{"path":"rootfs"}}"#,
    )?;
    Ok(bundle)
}

/// `start` with the flags and the environment that containerd gives.
fn start_by_hand(node: &Node<'_>, id: &str, bundle: &Path) -> Result<std::process::Output> {
    let socket = node.containerd.dir().join("containerd.sock");
    let out = Command::new(BINARY)
        .args([
            "-namespace",
            "by-hand",
            "-id",
            id,
            "-publish-binary",
            "/bin/true",
            "-address",
        ])
        .arg(&socket)
        .arg("start")
        .current_dir(bundle)
        .env_clear()
        .envs(node.containerd.env())
        .env("TTRPC_ADDRESS", format!("{}.ttrpc", socket.display()))
        .stdin(std::process::Stdio::null())
        .output()?;
    Ok(out)
}

fn end_by_hand(node: &Node<'_>, id: &str) -> Result<()> {
    for pid in shims(node, id) {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGTERM,
        )?;
    }
    eventually("SIGTERM ends a shim without tasks", LIMIT, || {
        Ok(shims(node, id).is_empty().then_some(()))
    })
}

fn two_starts_at_once(node: &Node<'_>) -> Result<()> {
    let id = node.id("race");
    let bundle = bundle_by_hand(node, &id)?;
    let answers = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| start_by_hand(node, &id, &bundle)))
            .collect();
        starts
            .into_iter()
            .map(|s| s.join().map_err(|_| anyhow::anyhow!("panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    for out in &answers {
        ensure!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        ensure!(
            out.stdout == answers[0].stdout,
            "two addresses: {:?}",
            String::from_utf8_lossy(&out.stdout)
        );
    }
    let count = shims(node, &id).len();
    ensure!(count == 1, "{count} servers");
    end_by_hand(node, &id)
}

fn a_stale_socket_is_replaced(node: &Node<'_>) -> Result<()> {
    let id = node.id("stale");
    let bundle = bundle_by_hand(node, &id)?;
    let first = start_by_hand(node, &id, &bundle)?;
    ensure!(
        first.status.success(),
        "{}",
        String::from_utf8_lossy(&first.stderr)
    );
    for pid in shims(node, &id) {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        )?;
    }
    eventually("the first server is gone", LIMIT, || {
        Ok(shims(node, &id).is_empty().then_some(()))
    })?;
    let second = start_by_hand(node, &id, &bundle)?;
    ensure!(
        second.status.success(),
        "{}",
        String::from_utf8_lossy(&second.stderr)
    );
    ensure!(shims(node, &id).len() == 1);
    end_by_hand(node, &id)
}

fn the_shim_ends_when_idle(node: &Node<'_>) -> Result<()> {
    let id = node.id("idle");
    let running = node.background(&id, &[], &["sleep", "1000"])?;
    ensure!(shims(node, &id).len() == 1, "{:?}", shims(node, &id));
    drop(running);
    eventually("the shim ended", LIMIT, || {
        Ok(shims(node, &id).is_empty().then_some(()))
    })
}

fn sigterm_spares_a_shim_with_tasks(node: &Node<'_>) -> Result<()> {
    let id = node.id("busy");
    let _running = node.background(&id, &[], &["sleep", "1000"])?;
    let [pid] = shims(node, &id)[..] else {
        anyhow::bail!("not one shim: {:?}", shims(node, &id))
    };
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGTERM,
    )?;
    let out = node.exec(&id, "e", &[], &["echo", "alive"])?.ok()?;
    ensure!(out.stdout == "alive\n" && shims(node, &id) == [pid]);
    Ok(())
}

fn containerd_loads_the_handlers(node: &Node<'_>) -> Result<()> {
    let config = node
        .containerd
        .dir()
        .join("config.toml")
        .display()
        .to_string();
    let dump = node
        .tool(&["containerd", "--config", &config, "config", "dump"])?
        .ok()?
        .stdout;
    for handler in ["a3sbox", "a3sbox-microvm"] {
        let begin = dump
            .find(&format!("runtimes.{handler}]"))
            .with_context(|| format!("no handler {handler}"))?;
        let table = &dump[begin
            ..dump[begin..]
                .find("\n\n")
                .map_or(dump.len(), |end| begin + end)];
        ensure!(
            table.contains("io.containerd.a3sbox.v2") && table.contains("a3s.box/*"),
            "{table}"
        );
    }
    let info = node.tool(&["crictl", "info"])?.ok()?.stdout;
    ensure!(
        info.contains("a3sbox-microvm"),
        "CRI does not know the handlers"
    );
    for (file, handler, class) in [
        ("runtimeclass-native.yaml", "a3sbox", "native"),
        ("runtimeclass-microvm.yaml", "a3sbox-microvm", "microvm"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../manifests")
            .join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ensure!(
            text.lines().any(|l| l == format!("handler: {handler}")),
            "{file} and the stanza disagree"
        );
        ensure!(
            text.contains(&format!("a3s.box/isolation: {class}")),
            "{file} without its isolation"
        );
    }
    Ok(())
}

fn hack_install_is_reversible(node: &Node<'_>) -> Result<()> {
    let root = tempfile::tempdir()?;
    let config = root.path().join("etc/containerd/config.toml");
    std::fs::create_dir_all(config.parent().context("no parent")?)?;
    let original = node
        .tool(&["containerd", "config", "default"])?
        .ok()?
        .stdout;
    std::fs::write(&config, &original)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../hack/install")
        .display()
        .to_string();
    let dir = root.path().display().to_string();
    let mut env = node.containerd.env().clone();
    // The release folder is where hack/test built the shim.
    let shim = std::env::var("A3SBOX_SHIM_DIR")?;
    let target = Path::new(&shim)
        .parent()
        .context("no parent")?
        .display()
        .to_string();
    env.insert("CARGO_TARGET_DIR".into(), target);
    run(&env, &[&script, "--root", &dir], LIMIT)?.ok()?;
    let path = config.display().to_string();
    let dump = node
        .tool(&["containerd", "--config", &path, "config", "dump"])?
        .ok()?
        .stdout;
    ensure!(
        dump.contains("runtimes.a3sbox]"),
        "containerd does not load the stanza"
    );
    run(&env, &[&script, "--root", &dir, "--remove"], LIMIT)?.ok()?;
    ensure!(
        std::fs::read_to_string(&config)? == original,
        "the configuration is not as before"
    );
    ensure!(
        !root.path().join("usr/local/bin").join(BINARY).exists(),
        "the shim is left"
    );
    std::fs::create_dir_all(root.path().join("usr/local/bin"))?;
    std::fs::write(
        root.path().join("usr/local/bin").join(BINARY),
        "somebody else's",
    )?;
    let refused = run(&env, &[&script, "--root", &dir], LIMIT)?.refused()?;
    ensure!(refused.stderr.contains("not ours"), "{}", refused.stderr);
    ensure!(
        std::fs::read_to_string(&config)? == original,
        "the refusal changed something"
    );
    Ok(())
}
