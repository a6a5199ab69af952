//! A small file in the bundle that tells `delete` where our state is.
//!
//! containerd runs `delete` with nothing but names and the bundle, while a handler's options may have
//! moved the state root, the engine or its root. The file is written before anything else of a container.

use std::path::{Path, PathBuf};

use a3sbox_execution::task::TaskExit;
use a3sbox_oci::EngineOptions;
use serde::{Deserialize, Serialize};

/// Name of the file in a bundle.
const TRACE_FILE: &str = "a3sbox.json";
/// Largest trace that is read.
const TRACE_MAX_BYTES: u64 = 64 << 10;

/// What `delete` needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trace {
    pub(crate) state_root: PathBuf,
    pub(crate) engine: EngineOptions,
    /// How it ended, once it is being deleted: the record goes, and the shim may die before it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<TaskExit>,
}

/// Writes the trace of a container that is about to be created.
pub(crate) fn leave_trace(
    bundle: &Path,
    state_root: &Path,
    engine: &EngineOptions,
) -> Result<(), a3sbox_durable::DurableError> {
    let trace = Trace {
        state_root: state_root.to_owned(),
        engine: engine.clone(),
        exit: None,
    };
    write(bundle, &trace)
}

/// Notes how the container ended, in the trace that is there.
pub(crate) fn note_exit(
    bundle: &Path,
    exit: &TaskExit,
) -> Result<(), a3sbox_durable::DurableError> {
    match read_trace(bundle) {
        Some(trace) if trace.exit.is_none() => write(
            bundle,
            &Trace {
                exit: Some(exit.clone()),
                ..trace
            },
        ),
        _ => Ok(()),
    }
}

fn write(bundle: &Path, trace: &Trace) -> Result<(), a3sbox_durable::DurableError> {
    // Plain strings, numbers and switches always encode.
    let bytes = serde_json::to_vec(trace).unwrap_or_default();
    a3sbox_durable::record::replace(&bundle.join(TRACE_FILE), &bytes)
}

/// Reads the trace; `None` when there is none that can be read, and then the defaults hold.
pub(crate) fn read_trace(bundle: &Path) -> Option<Trace> {
    let bytes = a3sbox_durable::record::read(&bundle.join(TRACE_FILE), TRACE_MAX_BYTES).ok()??;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_back_and_damage_is_none() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(read_trace(bundle.path()), None);
        let engine = EngineOptions {
            binary: Some("crun".into()),
            ..EngineOptions::default()
        };
        leave_trace(bundle.path(), Path::new("/s"), &engine).unwrap();
        let trace = read_trace(bundle.path()).unwrap();
        assert_eq!(
            (trace.state_root.as_path(), trace.engine, trace.exit),
            (Path::new("/s"), engine.clone(), None)
        );
        let exit = TaskExit {
            status: Some(7),
            exited_at: chrono::Utc::now(),
            unknown_because: None,
        };
        note_exit(bundle.path(), &exit).unwrap();
        let noted = read_trace(bundle.path()).unwrap();
        assert_eq!((noted.engine, noted.exit), (engine, Some(exit)));
        std::fs::write(bundle.path().join(TRACE_FILE), "{").unwrap();
        assert_eq!(read_trace(bundle.path()), None);
    }
}
