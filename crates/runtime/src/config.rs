//! What a runtime service is opened with.

use std::path::PathBuf;
use std::time::Duration;

use a3sbox_oci::EngineOptions;

/// Engine binary where nobody names one.
pub(crate) const DEFAULT_ENGINE: &str = "runc";

/// How long an added process with captured output is kept after its end, when nobody asks for it.
const SESSION_KEPT_FOR: Duration = Duration::from_secs(300);

/// Configuration of one runtime service.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Folder of the service's own state; made when it is missing. One service at a time uses it.
    pub root: PathBuf,
    /// What a logging binary gets as `CONTAINER_NAMESPACE`.
    pub namespace: String,
    /// Engine and switches for containers that do not bring their own. A missing engine root is the
    /// folder `.engine` below `root`.
    pub engine: EngineOptions,
    /// Reap orphans that nobody watches. For a process whose children are all started by this crate or
    /// under a [`crate::SpawnHold`]; others would lose the exit status of their children.
    pub sweep_orphans: bool,
    /// How long a session, an added process with captured output, is kept after its end when nobody asks for
    /// it. Then its operations shrink to their ids: a repetition that comes later is refused, and never run.
    pub session_kept_for: Duration,
}

impl RuntimeConfig {
    /// A service with its state below `root`, engine `runc`, that leaves foreign children alone.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            namespace: "default".to_owned(),
            engine: EngineOptions::default(),
            sweep_orphans: false,
            session_kept_for: SESSION_KEPT_FOR,
        }
    }

    /// The options of one container over those of the service.
    pub(crate) fn engine_for(&self, asked: Option<EngineOptions>) -> EngineOptions {
        let mut options = asked.unwrap_or_else(|| self.engine.clone());
        if options.binary.is_none() {
            options.binary = Some(
                self.engine
                    .binary
                    .clone()
                    .unwrap_or_else(|| DEFAULT_ENGINE.to_owned()),
            );
        }
        if options.root.is_none() {
            options.root = Some(
                self.engine
                    .root
                    .clone()
                    .unwrap_or_else(|| self.root.join(".engine")),
            );
        }
        options
    }
}
