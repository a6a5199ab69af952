//! `delete`: containerd lost the shim of a container, and everything of that container must go.
//!
//! | found | done |
//! |---|---|
//! | a server that answers | it is asked to kill and delete, as any client would |
//! | a record | the manager recovers: look, kill what is left, take away, tell the exit |
//! | a record that cannot be read, or a recovery that fails | by bundle and engine, exit unknown |
//! | nothing | nothing to do but mount and socket |
//!
//! In the end the rootfs is unmounted and a socket that nobody serves is gone. The answer is a protobuf
//! `DeleteResponse` on stdout. What went wrong is a warning on stderr, which containerd logs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_execution::ManagedExecutionStore;
use a3sbox_execution::task::{TaskDeleted, TaskError, TaskExit, TaskKey, TaskManager};
use chrono::Utc;
use containerd_shim_protos::api::{
    DeleteRequest, DeleteResponse, KillRequest, StateRequest, WaitRequest,
};
use containerd_shim_protos::shim_async::{Client, TaskClient};
use protobuf::Message;
use tracing::warn;
use ttrpc::context;

use crate::args::Args;
use crate::assembly::{self, Paths};
use crate::bundle::{self, Trace};
use crate::convert::response;
use crate::engine;
use crate::grouping;
use crate::logging::chain;
use crate::options::RuntimeOptions;
use crate::policy::{self, Policy};

/// Longest wait for another `delete` of the same pod, or for a server that is ending.
const LOCK_DEADLINE: Duration = Duration::from_secs(20);
/// Longest time that a server that is there may take for each answer.
const SERVER_DEADLINE: Duration = Duration::from_secs(10);
const SIGKILL: u32 = 9;

/// Deletes what is left of one container, and returns the answer for containerd.
pub(crate) fn delete(args: &Args, cwd: &Path) -> std::io::Result<Vec<u8>> {
    let bundle = bundle_of(args, cwd);
    let socket = socket_of(args, &bundle);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let response = runtime.block_on(take_away(args, &bundle, socket.as_deref()));
    if let Err(error) = bundle::unmount_stack(&bundle::rootfs(&bundle)) {
        warn!(error = chain(&error), "the rootfs stays mounted");
    }
    if let Some(socket) = socket
        && let Err(error) = crate::bootstrap::remove_stale_socket(&socket)
    {
        warn!(error = chain(&error), "cannot remove the socket");
    }
    Ok(response.write_to_bytes()?)
}

/// The bundle: as it is named, or beside the working folder, which may be that of another container.
fn bundle_of(args: &Args, cwd: &Path) -> PathBuf {
    match &args.bundle {
        Some(bundle) => bundle.clone(),
        None => cwd.parent().unwrap_or(Path::new("/")).join(&args.id),
    }
}

/// Where the container's server listens, or listened: as it was written down, else as it would be.
fn socket_of(args: &Args, bundle: &Path) -> Option<PathBuf> {
    let written = std::fs::read_to_string(bundle.join("address")).ok();
    if let Some(path) = written
        .as_deref()
        .and_then(|text| text.trim().strip_prefix("unix://"))
    {
        return Some(PathBuf::from(path));
    }
    let annotations = grouping::read_annotations(bundle).ok()?;
    let group = grouping::group_of(&annotations, &args.id);
    grouping::socket_path(None, &args.address, &args.namespace, group).ok()
}

async fn take_away(args: &Args, bundle: &Path, socket: Option<&Path>) -> DeleteResponse {
    let key = TaskKey {
        namespace: args.namespace.clone(),
        container_id: args.id.clone(),
    };
    let trace = bundle::read_trace(bundle);
    let state_root = match &trace {
        Some(trace) => trace.state_root.clone(),
        None => {
            Policy::load(&policy::base_path(), &RuntimeOptions::None)
                .unwrap_or_default()
                .state_root
        }
    };
    if let Some(socket) = socket {
        if crate::bootstrap::is_served(socket).unwrap_or(false)
            && let Some(response) = ask_server(socket, &args.id, trace.as_ref()).await
        {
            return response;
        }
        let paths = Paths::new(&state_root, &args.address, &args.namespace, socket);
        // The usual case: the shim deleted the container before it ended.
        if !ManagedExecutionStore::for_containers(&paths.namespace_root)
            .container_folder(&key)
            .exists()
        {
            assembly::remove_leftovers(&paths);
            return from_trace(trace.as_ref(), "no record of it is there");
        }
        match recover(&paths, &key).await {
            Ok(Some(deleted)) => return response::deleted(&deleted),
            Ok(None) => return from_trace(trace.as_ref(), "nothing was recorded of it"),
            Err(reason) => {
                warn!(
                    namespace = key.namespace.as_str(),
                    container_id = key.container_id.as_str(),
                    reason = reason.as_str(),
                    "cannot recover from the record; cleaning by bundle and engine"
                );
            }
        }
        by_engine(bundle, trace.as_ref(), &paths);
        let folder =
            ManagedExecutionStore::for_containers(&paths.namespace_root).container_folder(&key);
        if let Err(error) = a3sbox_durable::folder::remove_all(&folder) {
            warn!(error = chain(&error), "the record's folder stays");
        }
        assembly::remove_leftovers(&paths);
        return from_trace(trace.as_ref(), "its record could not be used");
    }
    nothing_known("its bundle says nothing")
}

/// Has a living server do it. `None` when it does not answer, and then its state is ours to look at.
async fn ask_server(socket: &Path, id: &str, trace: Option<&Trace>) -> Option<DeleteResponse> {
    let address = format!("unix://{}", socket.display());
    let client = TaskClient::new(Client::connect(&address).await.ok()?);
    let deadline = || context::with_duration(SERVER_DEADLINE);
    let mut state = StateRequest::new();
    id.clone_into(&mut state.id);
    match client.state(deadline(), &state).await {
        Ok(_) => {}
        Err(ttrpc::Error::RpcStatus(status)) if status.code() == ttrpc::Code::NOT_FOUND => {
            return Some(from_trace(trace, "the pod's shim does not have it"));
        }
        Err(_) => return None,
    }
    let mut kill = KillRequest::new();
    id.clone_into(&mut kill.id);
    kill.signal = SIGKILL;
    kill.all = true;
    // It may have ended already; the wait tells.
    let _ = client.kill(deadline(), &kill).await;
    let mut wait = WaitRequest::new();
    id.clone_into(&mut wait.id);
    client.wait(deadline(), &wait).await.ok()?;
    let mut delete = DeleteRequest::new();
    id.clone_into(&mut delete.id);
    client.delete(deadline(), &delete).await.ok()
}

/// `None`: a folder without a record, from before the reservation or from the end of a delete.
async fn recover(paths: &Paths, key: &TaskKey) -> Result<Option<TaskDeleted>, String> {
    let assembled = assembly::open(paths, LOCK_DEADLINE)
        .await
        .map_err(|error| chain(&error))?;
    let result = assembled.manager.task_recover_and_delete(key).await;
    drop(assembled.manager);
    assembly::remove_empty(paths, assembled.lock);
    match result {
        Ok(deleted) => Ok(Some(deleted)),
        Err(TaskError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The engine knows its containers by bundle, whatever became of our records.
fn by_engine(bundle: &Path, trace: Option<&Trace>, paths: &Paths) {
    let engine = trace.map(|trace| trace.engine.clone()).unwrap_or_default();
    let root = engine
        .root
        .clone()
        .unwrap_or_else(|| paths.engine_root.clone());
    let binary = engine.binary.as_deref().unwrap_or("runc");
    if let Err(reason) = engine::delete_by_bundle(binary, &root, engine.systemd_cgroup, bundle) {
        warn!(reason, "the engine could not take the container away");
    }
}

/// Without a record: the exit that a delete noted before it took the record away, if there is one.
fn from_trace(trace: Option<&Trace>, reason: &str) -> DeleteResponse {
    match trace.and_then(|trace| trace.exit.clone()) {
        Some(exit) => response::deleted(&TaskDeleted {
            pid: 0,
            exit: Some(exit),
        }),
        None => nothing_known(reason),
    }
}

fn nothing_known(reason: &str) -> DeleteResponse {
    response::deleted(&TaskDeleted {
        pid: 0,
        exit: Some(unknown(reason.to_owned())),
    })
}

fn unknown(reason: String) -> TaskExit {
    TaskExit {
        status: None,
        exited_at: Utc::now(),
        unknown_because: Some(reason),
    }
}
