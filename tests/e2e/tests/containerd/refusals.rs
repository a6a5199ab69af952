//! Bad input: a clear error, and nothing that remains.

use std::time::Duration;

use a3sbox_e2e::{BUSYBOX, Bundle, Case, Containerd, Leftovers, Node, eventually};
use anyhow::{Result, ensure};
use serde_json::json;

const GONE_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::full("refusals::a_missing_engine", a_missing_engine),
        Case::full("refusals::a_spec_version_too_new", a_spec_version_too_new).ours_alone(),
        Case::full(
            "refusals::a_malformed_configuration",
            a_malformed_configuration,
        ),
        Case::full(
            "refusals::a_rootfs_that_is_not_there",
            a_rootfs_that_is_not_there,
        ),
        Case::full(
            "refusals::an_unknown_runtime_option",
            an_unknown_runtime_option,
        )
        .ours_alone(),
        Case::full("refusals::a_microvm_that_is_not_available", a_microvm).ours_alone(),
        Case::full(
            "refusals::less_isolation_than_the_handler_gives",
            less_isolation,
        )
        .ours_alone(),
        Case::full("refusals::checkpoint_without_criu", checkpoint_without_criu).ours_alone(),
        Case::full("refusals::a_full_state_root", a_full_state_root).ours_alone(),
        Case::full(
            "refusals::a_state_root_that_cannot_be_written",
            an_unwritable_state_root,
        )
        .ours_alone(),
        Case::full(
            "refusals::a_record_of_an_unknown_version",
            a_record_of_an_unknown_version,
        )
        .ours_alone(),
    ]
}

fn nothing_left(node: &Node<'_>, id: &str) -> Result<()> {
    let _ = node.ctr(&["container", "rm", id]);
    eventually("nothing is left", GONE_LIMIT, || {
        Ok(Leftovers::of_container(node, id).is_empty().then_some(()))
    })
    .map_err(|e| e.context(format!("{:?}", Leftovers::of_container(node, id))))
}

fn a_missing_engine(node: &Node<'_>) -> Result<()> {
    let id = node.id("noengine");
    // Only for runc's own runtime type does ctr have a flag; ours reads the option from its file.
    let path = config_file(node, &id, "BinaryName = \"/no/such/engine\"\n")?;
    let option = if node.is_ours() {
        ["--runtime-config-path", &path]
    } else {
        ["--runc-binary", "/no/such/engine"]
    };
    let out = node.run(&id, &option, &["true"])?.refused()?;
    ensure!(out.stderr.contains("/no/such/engine"), "{}", out.stderr);
    nothing_left(node, &id)
}

fn a_spec_version_too_new(node: &Node<'_>) -> Result<()> {
    let id = node.id("future");
    let out = Bundle::bare(node.containerd, &id, &["true"])?
        .with(json!({"ociVersion": "2.0.0"}))
        .run(node, &id, &["--rm"])?;
    ensure!(
        out.refused()?.stderr.contains("2.0.0"),
        "the version is not named"
    );
    nothing_left(node, &id)
}

fn a_malformed_configuration(node: &Node<'_>) -> Result<()> {
    let id = node.id("malformed");
    let out = Bundle::bare(node.containerd, &id, &["true"])?
        .with(json!({"process": {"args": [], "cwd": ""}}))
        .run(node, &id, &["--rm"])?
        .refused()?;
    ensure!(!out.stderr.is_empty());
    nothing_left(node, &id)
}

fn a_rootfs_that_is_not_there(node: &Node<'_>) -> Result<()> {
    let id = node.id("norootfs");
    node.ctr(&[
        "container",
        "create",
        "--runtime",
        node.shim.runtime_type(),
        "--",
        BUSYBOX,
        &id,
        "true",
    ])?
    .ok()?;
    let mount = containerd_client::types::Mount {
        r#type: "bind".into(),
        source: "/no/such/rootfs".into(),
        options: vec!["rbind".into()],
        ..Default::default()
    };
    let error = node
        .api()?
        .create_with(&id, &a3sbox_e2e::TaskIo::default(), None, vec![mount]);
    let error = error
        .err()
        .ok_or_else(|| anyhow::anyhow!("a task without a rootfs was created"))?;
    ensure!(
        error.message().contains("no such file") || error.message().contains("/no/such/rootfs"),
        "{error}"
    );
    nothing_left(node, &id)
}

fn config_file(node: &Node<'_>, id: &str, text: &str) -> Result<String> {
    let path = node.containerd.dir().join(format!("{id}.toml"));
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn an_unknown_runtime_option(node: &Node<'_>) -> Result<()> {
    let id = node.id("option");
    let path = config_file(node, &id, "NoSuchOption = true\n")?;
    let out = node
        .run(&id, &["--runtime-config-path", &path], &["true"])?
        .refused()?;
    ensure!(out.stderr.contains("NoSuchOption"), "{}", out.stderr);
    nothing_left(node, &id)
}

fn a_microvm(node: &Node<'_>) -> Result<()> {
    let id = node.id("microvm");
    let path = config_file(node, &id, "isolation = \"microvm\"\n")?;
    let out = node
        .run(&id, &["--runtime-config-path", &path], &["echo", "ran"])?
        .refused()?;
    ensure!(
        out.stderr.to_lowercase().contains("microvm"),
        "{}",
        out.stderr
    );
    ensure!(!out.stdout.contains("ran"), "it ran on the node's kernel");
    nothing_left(node, &id)
}

fn less_isolation(node: &Node<'_>) -> Result<()> {
    let id = node.id("weaker");
    let path = config_file(node, &id, "isolation = \"microvm\"\n")?;
    let out = node
        .run(
            &id,
            &[
                "--runtime-config-path",
                &path,
                "--annotation",
                "a3s.box/isolation=native",
            ],
            &["echo", "ran"],
        )?
        .refused()?;
    ensure!(
        out.stderr.contains("allow_weaker") || out.stderr.contains("a3s.box/isolation"),
        "{}",
        out.stderr
    );
    ensure!(!out.stdout.contains("ran"), "it ran");
    nothing_left(node, &id)
}

fn checkpoint_without_criu(node: &Node<'_>) -> Result<()> {
    let id = node.id("criu");
    let path = config_file(node, &id, "CriuPath = \"/no/such/criu\"\n")?;
    let running = node.background(&id, &["--runtime-config-path", &path], &["sleep", "1000"])?;
    let out = node.ctr(&["task", "checkpoint", running.id()])?.refused()?;
    ensure!(out.stderr.contains("/no/such/criu"), "{}", out.stderr);
    ensure!(
        node.status(running.id())?
            .is_some_and(|(_, s)| s == "RUNNING"),
        "{:?}",
        node.status(running.id())?
    );
    Ok(())
}

/// A state root of its own through the handler's options.
fn with_state_root(
    node: &Node<'_>,
    id: &str,
    root: &std::path::Path,
) -> Result<a3sbox_e2e::Output> {
    let path = config_file(node, id, &format!("state_root = \"{}\"\n", root.display()))?;
    node.run(id, &["--runtime-config-path", &path], &["true"])
}

struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(dir: std::path::PathBuf, options: &str) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&dir)
            .status()?;
        ensure!(status.success(), "mount -o {options}: {status}");
        Ok(Self(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn a_full_state_root(node: &Node<'_>) -> Result<()> {
    let id = node.id("full");
    let disk = Mounted::tmpfs(node.containerd.dir().join(format!("{id}.disk")), "size=64k")?;
    let _ = std::fs::write(disk.0.join("filler"), vec![0; 60 << 10]);
    let out = with_state_root(node, &id, &disk.0)?.refused()?;
    ensure!(
        out.stderr.to_lowercase().contains("no space"),
        "{}",
        out.stderr
    );
    nothing_left(node, &id)
}

fn an_unwritable_state_root(node: &Node<'_>) -> Result<()> {
    let id = node.id("readonly");
    let disk = Mounted::tmpfs(
        node.containerd.dir().join(format!("{id}.disk")),
        "size=1m,ro",
    )?;
    let out = with_state_root(node, &id, &disk.0)?.refused()?;
    ensure!(
        out.stderr.to_lowercase().contains("read-only"),
        "{}",
        out.stderr
    );
    nothing_left(node, &id)
}

fn find_record(root: &std::path::Path, id: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(root).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name().to_string_lossy() == id && path.join("record.json").exists() {
                return Some(path.join("record.json"));
            }
            if let Some(found) = find_record(&path, id) {
                return Some(found);
            }
        }
    }
    None
}

/// A newer release wrote the record and its shim is gone: `delete` cleans up and invents no exit code.
fn a_record_of_an_unknown_version(node: &Node<'_>) -> Result<()> {
    let own = Containerd::start(node.containerd.version())?;
    let node = &Node {
        containerd: &own,
        shim: node.shim,
    };
    let id = node.id("newer");
    let running = node.background(&id, &[], &["sleep", "1000"])?;
    let pid = node.status(&id)?.map_or(0, |(pid, _)| pid);
    let path =
        find_record(&own.state_root(), &id).ok_or_else(|| anyhow::anyhow!("no record of {id}"))?;
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    ensure!(
        record.get("schema_version").is_some(),
        "a record without a schema version"
    );
    record["schema_version"] = json!(99);
    std::fs::write(&path, record.to_string())?;
    crate::recovery::kill_shim(node, &id)?;
    eventually("its process is gone", GONE_LIMIT * 2, || {
        Ok((!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()))
    })?;
    drop(running);
    nothing_left(node, &id)
}
