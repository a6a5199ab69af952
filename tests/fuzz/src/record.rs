//! A record of any content: loaded as the execution whose folder it is in, or refused and left as it is.

use std::path::Path;

use a3sbox_core::{
    BoxConfig, CreateExecutionRequest, ExecutionGeneration, ExecutionId, ExecutionIsolation,
    ExecutionManager as _, ExecutionManagerError, ExecutionManagerResult, KillOutcome, OperationId,
};
use a3sbox_execution::{
    BoxRecord, LocalExecutionBackend, LocalExecutionHandle, LocalExecutionManager,
    LocalExecutionObservation, ManagedExecutionStore,
};
use a3sbox_oci::async_trait;

thread_local! {
    static STORE: (tempfile::TempDir, ExecutionId, std::path::PathBuf) = stored();
}

/// On memory: the disk is not what is tested.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("a3sbox-fuzz-")
        .tempdir_in(place)
        .unwrap()
}

pub(crate) fn load(data: &[u8]) {
    STORE.with(|(folder, id, path)| {
        std::fs::write(path, data).unwrap();
        let store = ManagedExecutionStore::new(folder.path().join("boxes"));
        let loaded = store.get(id);
        if let Ok(Some(record)) = &loaded {
            assert_eq!(record.id, id.as_str());
        }
        // A look changes nothing.
        assert_eq!(std::fs::read(path).unwrap(), data);
        let _ = serde_json::from_slice::<BoxRecord>(data);
    });
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let (_folder, _, path) = stored();
    vec![std::fs::read(path).unwrap()]
}

/// A store with one execution in it: its folder, the execution, the file of its record.
fn stored() -> (tempfile::TempDir, ExecutionId, std::path::PathBuf) {
    let folder = folder();
    let state = folder.path().join("boxes");
    let home = folder.path().join("home");
    let manager = LocalExecutionManager::new(&state, home, std::sync::Arc::new(Nothing));
    let request = CreateExecutionRequest {
        external_sandbox_id: "sandbox".to_owned(),
        config: BoxConfig {
            image: "busybox".to_owned(),
            isolation: ExecutionIsolation::Sandbox,
            ..BoxConfig::default()
        },
        labels: std::collections::BTreeMap::new(),
        policy: a3sbox_core::ExecutionRecordPolicy::default(),
        rootfs_snapshot_id: None,
    };
    let operation = OperationId::new("create").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let reservation = runtime
        .block_on(manager.create(request, &operation))
        .unwrap();
    assert_eq!(reservation.generation, ExecutionGeneration::INITIAL);
    let id = reservation.execution_id;
    let path = state.join(id.as_str()).join("record.json");
    assert!(path.is_file(), "{}", path.display());
    (folder, id, path)
}

/// Reserves, and runs nothing.
struct Nothing;

fn nothing<T>() -> ExecutionManagerResult<T> {
    Err(ExecutionManagerError::Unavailable(
        "nothing runs here".to_owned(),
    ))
}

#[async_trait]
impl LocalExecutionBackend for Nothing {
    async fn start(&self, _: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        nothing()
    }

    async fn inspect(&self, _: &BoxRecord) -> ExecutionManagerResult<LocalExecutionObservation> {
        nothing()
    }

    async fn pause(&self, _: &BoxRecord, _: bool) -> ExecutionManagerResult<LocalExecutionHandle> {
        nothing()
    }

    async fn resume(&self, _: &BoxRecord) -> ExecutionManagerResult<LocalExecutionHandle> {
        nothing()
    }

    async fn kill(&self, _: &BoxRecord) -> ExecutionManagerResult<KillOutcome> {
        nothing()
    }
}
