//! OCI hooks that stall or fail (field case 06), and seccomp (field case 12).

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use a3sbox_e2e::{Bundle, Case, Leftovers, Node, eventually};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

const GONE_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        // runc 1.1 waits the whole 30 s of the stalled hook and skips the hooks after a failed one:
        // here the runtime specification decides, so the stock shim is no measure.
        Case::full(
            "hooks::case_06_a_stalled_hook_runs_out_of_time",
            a_stalled_hook,
        )
        .ours_alone(),
        Case::full(
            "hooks::case_06_a_failed_poststop_hook_stops_no_other",
            a_failed_poststop_hook,
        )
        .ours_alone(),
        Case::full(
            "hooks::case_06_poststop_runs_when_create_failed",
            poststop_after_failed_create,
        )
        .ours_alone(),
        Case::full("hooks::a_good_life_runs_every_hook_once", every_hook_once),
        Case::full("hooks::know_the_container_by_its_id", the_containers_id),
        Case::full(
            "security::case_12_an_unknown_syscall_name_is_skipped",
            unknown_syscall_name,
        ),
        Case::full(
            "security::case_12_an_exec_is_filtered_alike",
            an_exec_is_filtered_alike,
        ),
        Case::full(
            "security::case_12_a_profile_that_cannot_be_loaded_stops_the_start",
            unloadable_profile,
        ),
    ]
}

struct Hooks {
    script: String,
    log: std::path::PathBuf,
}

impl Hooks {
    fn new(node: &Node<'_>, id: &str) -> Result<Self> {
        let dir = node.containerd.dir();
        let (script, log) = (
            dir.join(format!("{id}.hk")),
            dir.join(format!("{id}.hooklog")),
        );
        std::fs::write(
            &script,
            format!(
                "#!/bin/sh\nstate=$(cat)\nstatus=$(printf %s \"$state\" | sed 's/.*\"status\": *\"\\([a-z]*\\)\".*/\\1/')\necho \"$1 $status\" >>{}\ncase $1 in slow) sleep 30.0625 ;; bad) exit 9 ;; esac\n",
                log.display()
            ),
        )?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            script: script.display().to_string(),
            log,
        })
    }

    fn hook(&self, word: &str) -> Value {
        json!({"path": self.script, "args": ["hk", word], "env": ["PATH=/usr/bin:/bin"]})
    }

    fn log(&self) -> Vec<String> {
        std::fs::read_to_string(&self.log)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

fn a_stalled_hook(node: &Node<'_>) -> Result<()> {
    let id = node.id("slowhook");
    let hooks = Hooks::new(node, &id)?;
    let mut slow = hooks.hook("slow");
    slow["timeout"] = json!(2);
    let bundle = Bundle::bare(node.containerd, &id, &["echo", "main"])?
        .with(json!({"hooks": {"createRuntime": [slow]}}));
    let out = bundle.run(node, &id, &["--rm"])?.refused()?;
    ensure!(out.took < Duration::from_secs(5), "it took {:?}", out.took);
    let said = out.stderr.to_lowercase();
    ensure!(
        said.contains("hook") && (said.contains("time") || said.contains("deadline")),
        "{}",
        out.stderr
    );
    ensure!(!out.stdout.contains("main"), "the container ran");
    ensure!(hooks.log() == ["slow creating"], "{:?}", hooks.log());
    eventually(
        "neither the script nor its sleep is left",
        GONE_LIMIT,
        || {
            let alive = std::fs::read_dir("/proc")?.flatten().any(|entry| {
                std::fs::read(entry.path().join("cmdline")).is_ok_and(|c| {
                    let c = String::from_utf8_lossy(&c).into_owned();
                    c.contains("30.0625") || c.contains(&hooks.script)
                })
            });
            Ok((!alive).then_some(()))
        },
    )?;
    nothing_left(node, &id)
}

fn nothing_left(node: &Node<'_>, id: &str) -> Result<()> {
    let _ = node.ctr(&["container", "rm", id]);
    eventually("nothing is left", GONE_LIMIT, || {
        Ok(Leftovers::of_container(node, id).is_empty().then_some(()))
    })
    .map_err(|e| e.context(format!("{:?}", Leftovers::of_container(node, id))))
}

fn a_failed_poststop_hook(node: &Node<'_>) -> Result<()> {
    let id = node.id("badpost");
    let hooks = Hooks::new(node, &id)?;
    let bundle = Bundle::bare(node.containerd, &id, &["echo", "main"])?
        .with(json!({"hooks": {"poststop": [hooks.hook("bad"), hooks.hook("ok")]}}));
    let out = bundle.run(node, &id, &["--rm"])?.ok()?;
    ensure!(out.stdout == "main\n", "{:?}", out.stdout);
    ensure!(
        hooks.log() == ["bad stopped", "ok stopped"],
        "{:?}",
        hooks.log()
    );
    nothing_left(node, &id)
}

fn poststop_after_failed_create(node: &Node<'_>) -> Result<()> {
    let id = node.id("badcreate");
    let hooks = Hooks::new(node, &id)?;
    let bundle = Bundle::bare(node.containerd, &id, &["echo", "main"])?.with(
        json!({"hooks": {"createRuntime": [hooks.hook("bad")], "poststop": [hooks.hook("ps")]}}),
    );
    bundle.run(node, &id, &["--rm"])?.refused()?;
    ensure!(
        hooks.log() == ["bad creating", "ps stopped"],
        "{:?}",
        hooks.log()
    );
    nothing_left(node, &id)
}

fn every_hook_once(node: &Node<'_>) -> Result<()> {
    let id = node.id("hooks");
    let hooks = Hooks::new(node, &id)?;
    let bundle = Bundle::bare(node.containerd, &id, &["echo", "main"])?.with(json!({"hooks": {
        "createRuntime": [hooks.hook("cr")], "poststart": [hooks.hook("po")], "poststop": [hooks.hook("ps")]}}));
    let out = bundle.run(node, &id, &["--rm"])?.ok()?;
    ensure!(out.stdout == "main\n", "{:?}", out.stdout);
    let words: Vec<_> = hooks
        .log()
        .iter()
        .filter_map(|l| l.split(' ').next().map(str::to_owned))
        .collect();
    ensure!(words == ["cr", "po", "ps"], "{words:?}");
    Ok(())
}

/// nerdctl's network hooks look their container up by the id in the state that they are given.
fn the_containers_id(node: &Node<'_>) -> Result<()> {
    let id = node.id("named");
    let bundle = Bundle::bare(node.containerd, &id, &["true"])?;
    let dir = bundle.dir().to_owned();
    let hook = |name: &str| {
        let script = format!("cat >{}/{name}", dir.display());
        json!({"path": "/bin/sh", "args": ["sh", "-c", script]})
    };
    // Two poststop hooks are run by the driver, one by the engine.
    bundle
        .with(json!({"hooks": {
            "createRuntime": [hook("cr")], "poststop": [hook("ps1"), hook("ps2")]}}))
        .run(node, &id, &["--rm"])?
        .ok()?;
    for name in ["cr", "ps1", "ps2"] {
        let state: Value = serde_json::from_slice(&std::fs::read(dir.join(name))?)?;
        ensure!(state["id"] == json!(id), "{name}: {state}");
    }
    Ok(())
}

fn profile() -> Value {
    json!({"linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
        {"names": ["made_up_syscall_9", "mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95},
        {"names": ["chroot"], "action": "SCMP_ACT_ERRNO"}]}}})
}

const FILTERED: &str = "mkdir /tmp/q; /bin/busybox chroot / true; /bin/busybox sync; echo $?";

fn is_filtered(out: &a3sbox_e2e::Output) -> Result<()> {
    ensure!(
        out.stderr.contains("Operation not supported"),
        "{}",
        out.everything()
    );
    ensure!(
        out.stderr.contains("Operation not permitted"),
        "{}",
        out.everything()
    );
    ensure!(out.stdout == "0\n", "{}", out.everything());
    Ok(())
}

fn unknown_syscall_name(node: &Node<'_>) -> Result<()> {
    let id = node.id("seccomp");
    let bundle = Bundle::bare(node.containerd, &id, &["sh", "-c", FILTERED])?.with(profile());
    is_filtered(&bundle.run(node, &id, &["--rm"])?)
}

fn an_exec_is_filtered_alike(node: &Node<'_>) -> Result<()> {
    let id = node.id("seccomp");
    let bundle = Bundle::bare(node.containerd, &id, &["sleep", "1000"])?.with(profile());
    bundle.run(node, &id, &["-d"])?.ok()?;
    let out = node.exec(&id, "f", &[], &["sh", "-c", FILTERED]);
    let _ = node.ctr(&["task", "rm", "-f", &id]);
    let _ = node.ctr(&["container", "rm", &id]);
    is_filtered(&out?)
}

fn unloadable_profile(node: &Node<'_>) -> Result<()> {
    let id = node.id("seccomp");
    let bundle = Bundle::bare(node.containerd, &id, &["echo", "main"])?
        .with(json!({"linux": {"seccomp": {"defaultAction": "SCMP_ACT_NO_SUCH", "syscalls": []}}}));
    let out = bundle.run(node, &id, &["--rm"])?.refused()?;
    ensure!(!out.stdout.contains("main"), "it ran without its profile");
    nothing_left(node, &id)
}
