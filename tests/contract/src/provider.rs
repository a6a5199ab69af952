//! Bundles on a busybox rootfs, with a folder that test and container share.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use a3sbox_execution::{
    BoxRecord, OciBundlePreparationContext, OciBundleProvider, OciPreparedExecution,
    OciRuntimeBinding,
};
use a3sbox_oci::{OciBundle, async_trait};
use serde_json::json;

use crate::rootfs;

/// How often each method ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub prepares: usize,
    pub cleanups: usize,
    pub ensures: usize,
    pub drains: usize,
    pub owner_losses: usize,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    console_log: Option<PathBuf>,
    refuses_projection: bool,
}

/// What the container runs when its request names no command: it says that it was started, then what signals
/// it gets, and it ends with a code of its own for some of them.
const PROGRAM: &str = "
trap 'echo term >> /out/signals; exit 7' TERM
trap 'echo hup >> /out/signals' HUP
trap 'exit 17' USR1
trap 'exit 23' USR2
echo started >> /out/starts
while :; do usleep 20000; done";

#[derive(Debug)]
pub struct BusyboxProvider {
    out: PathBuf,
    state: Mutex<State>,
}

impl BusyboxProvider {
    /// A provider whose containers see `out` as `/out`.
    pub fn new(out: PathBuf) -> Self {
        Self {
            out,
            state: Mutex::default(),
        }
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().unwrap().counts
    }

    /// Prepare bundles that claim another console log.
    pub fn answer_console_log(&self, path: PathBuf) {
        self.state.lock().unwrap().console_log = Some(path);
    }

    /// Whether log projection fails.
    pub fn refuse_projection(&self, refuses: bool) {
        self.state.lock().unwrap().refuses_projection = refuses;
    }

    /// The cgroup of an execution below each hierarchy.
    pub fn cgroup_of(id: &str) -> PathBuf {
        PathBuf::from(format!("a3sbox-contract-{id}"))
    }

    fn config(&self, record: &BoxRecord) -> serde_json::Value {
        let asked = record
            .managed_execution
            .as_ref()
            .map(|metadata| metadata.request.config.cmd.clone())
            .unwrap_or_default();
        let args = if asked.is_empty() {
            ["sh", "-c", PROGRAM].map(str::to_owned).to_vec()
        } else {
            asked
        };
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": args,
                "env": ["PATH=/bin"],
                "cwd": "/",
                "capabilities": { "bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"] },
            },
            "root": { "path": record.box_dir.join("rootfs"), "readonly": false },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
                { "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"] },
                { "destination": "/out", "type": "bind", "source": self.out, "options": ["rbind", "rw"] },
            ],
            "linux": {
                "cgroupsPath": Path::new("/").join(Self::cgroup_of(record.id.as_str())),
                "namespaces": [
                    { "type": "pid" }, { "type": "ipc" }, { "type": "uts" },
                    { "type": "mount" }, { "type": "network" },
                ],
            },
        })
    }
}

#[async_trait]
impl OciBundleProvider for BusyboxProvider {
    async fn prepare(
        &self,
        record: &BoxRecord,
        _context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        self.state.lock().unwrap().counts.prepares += 1;
        rootfs::fill(&record.box_dir.join("rootfs"));
        let directory = record.box_dir.join("oci-bundle");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(
            directory.join("config.json"),
            self.config(record).to_string(),
        )
        .unwrap();
        let bundle = OciBundle::load(&directory).await.unwrap();
        let console_log = self.state.lock().unwrap().console_log.clone();
        let console_log = console_log.as_ref().unwrap_or(&record.console_log);
        let mut prepared = OciPreparedExecution::new(bundle, console_log)?;
        prepared.anonymous_volumes = record.anonymous_volumes.clone();
        Ok(prepared)
    }

    async fn ensure_log_projection(
        &self,
        _record: &BoxRecord,
        _binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        let mut state = self.state.lock().unwrap();
        state.counts.ensures += 1;
        if state.refuses_projection {
            return Err(ExecutionManagerError::Unavailable(
                "no log projection today".to_owned(),
            ));
        }
        Ok(())
    }

    async fn wait_log_projection_drained(
        &self,
        _record: &BoxRecord,
        _binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        self.state.lock().unwrap().counts.drains += 1;
        Ok(())
    }

    async fn wait_log_projection_stopped_after_owner_loss(
        &self,
        _record: &BoxRecord,
        _binding: &OciRuntimeBinding,
    ) -> ExecutionManagerResult<()> {
        self.state.lock().unwrap().counts.owner_losses += 1;
        Ok(())
    }

    async fn cleanup(&self, _record: &BoxRecord) -> ExecutionManagerResult<()> {
        self.state.lock().unwrap().counts.cleanups += 1;
        Ok(())
    }
}
