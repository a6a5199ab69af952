//! Two containers that share one shim: the one that is broken, and one that must not notice.

use std::path::PathBuf;
use std::time::Duration;

use a3sbox_e2e::{Api, BUSYBOX, Node, TaskIo, eventually};
use anyhow::{Context, Result, ensure};
use containerd_client::tonic::Code;

const LIMIT: Duration = Duration::from_secs(10);
const SIGKILL: u32 = 9;
/// Status of the second container's process when it was told to end by SIGTERM.
pub(crate) const EXIT_CODE: u32 = 7;

/// The pod's containers exist in containerd for the whole sweep; their tasks come and go.
pub(crate) struct Pod<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) api: Api,
    /// Runs all the time.
    pub(crate) holder: String,
    /// The verb is called on it.
    pub(crate) subject: String,
    /// Shared with the subject: what its process did is seen there when the container is long gone.
    pub(crate) folder: tempfile::TempDir,
}

impl<'a> Pod<'a> {
    pub(crate) fn new(node: &Node<'a>) -> Result<Self> {
        let pod = Self {
            node: *node,
            api: node.api()?,
            holder: node.id("holder"),
            subject: node.id("subject"),
            folder: tempfile::Builder::new().prefix("a3s-sweep-").tempdir()?,
        };
        // PID 1 gets no signal that it has no handler for: the trap comes first.
        let script = format!(
            ": {}; trap 'echo > /seen/term; kill $!; exit {EXIT_CODE}' TERM; echo > /seen/ready; sleep 1000 & wait",
            pod.subject
        );
        pod.make(&pod.holder, "sleep 1000")?;
        pod.make(&pod.subject, &script)?;
        Ok(pod)
    }

    fn make(&self, id: &str, script: &str) -> Result<()> {
        let group = format!("io.containerd.runc.v2.group={}", self.holder);
        let mount = format!(
            "type=bind,src={},dst=/seen,options=rbind:rw",
            self.folder.path().display()
        );
        let mut args = vec!["container", "create", "--runtime"];
        args.extend([self.node.shim.runtime_type(), "--annotation", &group]);
        args.extend(["--mount", &mount, BUSYBOX, id, "sh", "-c", script]);
        self.node.ctr(&args)?.ok().map(drop)
    }

    /// Starts the first container's task, and with it the server, unless it runs.
    pub(crate) fn bring_up(&self) -> Result<()> {
        for mark in ["ready", "term"] {
            let _ = std::fs::remove_file(self.folder.path().join(mark));
        }
        if self.api.state(&self.holder, "").is_ok() {
            return Ok(());
        }
        self.api
            .create(&self.holder, &TaskIo::default())
            .context("create of the first container")?;
        self.api
            .start(&self.holder, "")
            .context("start of the first container")?;
        Ok(())
    }

    pub(crate) fn await_ready(&self) -> Result<()> {
        eventually("the process is ready", LIMIT, || {
            Ok(self.is_ready().then_some(()))
        })
    }

    /// Whether the subject's program has begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.folder.path().join("ready").exists()
    }

    /// Whether the subject's process took the SIGTERM and ended by itself.
    pub(crate) fn took_the_signal(&self) -> bool {
        self.folder.path().join("term").exists()
    }

    /// Pid of the pod's server and the path of its socket.
    pub(crate) fn server(&self) -> Result<(u32, PathBuf)> {
        let address = self.node.containerd.dir().join("containerd.sock");
        let address = address.display().to_string();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
                continue;
            };
            let words: Vec<_> = line
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let socket = words.iter().skip_while(|word| *word != "-socket").nth(1);
            if words.contains(&address)
                && words.iter().any(|word| word == "serve")
                && let Some(socket) = socket
            {
                return Ok((pid, PathBuf::from(socket)));
            }
        }
        anyhow::bail!("no server of {}", self.holder)
    }

    /// Kills and deletes a task through containerd as a client would, and tells the exit status that it was
    /// given. `None` when there was no task.
    pub(crate) fn take_away(&self, id: &str) -> Result<Option<u32>> {
        match self.api.state(id, "") {
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(status).context("state of what is to be deleted"),
            Ok(_) => {}
        }
        match self.api.kill(id, "", SIGKILL, true) {
            Err(status) if status.code() != Code::NotFound => {
                return Err(status).context("kill of what is to be deleted");
            }
            _ => {}
        }
        let waited = self.api.wait(id, "", LIMIT).context("wait")?.exit_status;
        let deleted = self.api.delete(id).context("delete")?.exit_status;
        ensure!(
            waited == deleted,
            "wait says {waited} and delete says {deleted}"
        );
        Ok(Some(deleted))
    }

    /// Ends both tasks and removes both containers.
    pub(crate) fn end(&self) -> Result<()> {
        for id in [&self.subject, &self.holder] {
            self.take_away(id)?;
            self.node.ctr(&["container", "rm", id])?.ok()?;
        }
        Ok(())
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        for id in [&self.subject, &self.holder] {
            let _ = self.take_away(id);
            let _ = self.node.ctr(&["container", "rm", id]);
        }
    }
}
