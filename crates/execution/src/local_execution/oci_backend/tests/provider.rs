//! Bundle providers of the suite.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use a3sbox_core::{ExecutionIsolation, ExecutionManagerError};
use a3sbox_oci::oci_spec::runtime::Spec;
use a3sbox_oci::{OciBundle, RUNTIME_BUNDLE_HANDOFF_MOVE_V1, async_trait};

use super::super::{
    BoxRecord, ExecutionManagerResult, OciBundlePreparationContext, OciBundleProvider,
    OciPreparedExecution, OciRuntimeBinding, RUNTIME_BUNDLE_HANDOFF_EXTENSION,
};

/// How often each method ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) preflights: usize,
    pub(super) prepares: usize,
    pub(super) cleanups: usize,
    pub(super) ensures: usize,
    pub(super) drains: usize,
    pub(super) owner_losses: usize,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    console_log: Option<PathBuf>,
    refuses_projection: bool,
    expected_lower: Option<PathBuf>,
}

/// Prepares the minimal bundle in a folder that is never created.
#[derive(Debug, Default)]
pub(super) struct TestProvider {
    state: Mutex<State>,
}

impl TestProvider {
    pub(super) fn counts(&self) -> Counts {
        self.state.lock().unwrap().counts
    }

    pub(super) fn answer_console_log(&self, path: PathBuf) {
        self.state.lock().unwrap().console_log = Some(path);
    }

    pub(super) fn refuse_projection(&self, refuses: bool) {
        self.state.lock().unwrap().refuses_projection = refuses;
    }

    /// The marker of a snapshot's lower layer must be there when the bundle is prepared.
    pub(super) fn expect_lower(&self, path: PathBuf) {
        self.state.lock().unwrap().expected_lower = Some(path);
    }
}

pub(super) fn lower_marker(box_dir: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(box_dir.join(".snapshot-lower")).ok()?;
    Some(PathBuf::from(text.trim()))
}

#[async_trait]
impl OciBundleProvider for TestProvider {
    fn preflight(
        &self,
        _record: &BoxRecord,
        _context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<()> {
        self.state.lock().unwrap().counts.preflights += 1;
        Ok(())
    }

    async fn prepare(
        &self,
        record: &BoxRecord,
        _context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        let mut state = self.state.lock().unwrap();
        state.counts.prepares += 1;
        if let Some(expected) = &state.expected_lower {
            assert_eq!(lower_marker(&record.box_dir).as_ref(), Some(expected));
        }
        let directory = record.box_dir.join("oci-bundle");
        let bundle = OciBundle::from_spec(directory, minimal_spec(HashMap::new())).unwrap();
        let console_log = state.console_log.as_ref().unwrap_or(&record.console_log);
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

/// Hands its bundles over to the runtime; only for dedicated VMs.
#[derive(Debug)]
pub(super) struct HandoffProvider {
    runtime_root: PathBuf,
    counts: Mutex<Counts>,
}

impl HandoffProvider {
    pub(super) fn new(runtime_root: PathBuf) -> Self {
        Self {
            runtime_root,
            counts: Mutex::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }
}

#[async_trait]
impl OciBundleProvider for HandoffProvider {
    fn preflight(
        &self,
        record: &BoxRecord,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<()> {
        self.counts.lock().unwrap().preflights += 1;
        assert_eq!(record.isolation, ExecutionIsolation::Microvm);
        context
            .runtime_bundle_handoff_directory(&self.runtime_root)
            .map(|_| ())
    }

    async fn prepare(
        &self,
        record: &BoxRecord,
        context: &OciBundlePreparationContext,
    ) -> ExecutionManagerResult<OciPreparedExecution> {
        self.counts.lock().unwrap().prepares += 1;
        let directory = context.runtime_bundle_handoff_directory(&self.runtime_root)?;
        context.validate_runtime_bundle_handoff_directory(&directory)?;
        let dotted = directory.join("..").join("bundle");
        assert!(
            context
                .validate_runtime_bundle_handoff_directory(&dotted)
                .is_err()
        );
        let elsewhere = directory.join("bundle");
        assert!(
            context
                .validate_runtime_bundle_handoff_directory(&elsewhere)
                .is_err()
        );
        std::fs::create_dir_all(&directory).unwrap();
        let annotation = (
            RUNTIME_BUNDLE_HANDOFF_EXTENSION.to_owned(),
            RUNTIME_BUNDLE_HANDOFF_MOVE_V1.to_owned(),
        );
        let spec = minimal_spec(HashMap::from([annotation]));
        std::fs::write(
            directory.join("config.json"),
            serde_json::to_vec(&spec).unwrap(),
        )
        .unwrap();
        let bundle = OciBundle::load(&directory).await.unwrap();
        let mut prepared = OciPreparedExecution::new(bundle, &record.console_log)?
            .with_runtime_bundle_handoff(context, &self.runtime_root)?;
        prepared.anonymous_volumes = record.anonymous_volumes.clone();
        Ok(prepared)
    }
}

/// The least that a Linux config has.
pub(super) fn minimal_spec(annotations: HashMap<String, String>) -> Spec {
    let mut spec = serde_json::json!({
        "ociVersion": "1.3.0",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "cwd": "/",
        },
        "root": { "path": "rootfs", "readonly": false },
    });
    if !annotations.is_empty() {
        spec["annotations"] = serde_json::json!(annotations);
    }
    serde_json::from_value(spec).unwrap()
}
