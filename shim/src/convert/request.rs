//! containerd's requests as values of ours.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use a3sbox_core::{BoxConfig, CreateExecutionRequest, ExecutionIsolation, ExecutionRecordPolicy};
use a3sbox_execution::task::{ProvisionRequest, RootfsMount, TaskCheckpoint, TaskKey};
use a3sbox_oci::oci_spec::runtime::{LinuxResources, Process};
use a3sbox_oci::{EngineOptions, StdioUris, TerminalSize};
use containerd_shim_protos::api::{CheckpointTaskRequest, CreateTaskRequest, ExecProcessRequest};
use containerd_shim_protos::types::mount::Mount;
use protobuf::well_known_types::any::Any;
use serde_json::{Map, Value};

use crate::grouping;
use crate::options::{self, OptionsError, RuncOptions};
use crate::policy::Isolation;

/// Size of a terminal whose size nobody named.
const USUAL_COLUMNS: u16 = 80;
const USUAL_ROWS: u16 = 24;
/// Annotations that become labels of the execution: ours, and those by which a pod is known.
const LABEL_PREFIXES: [&str; 2] = ["a3s.box/", "io.kubernetes.cri."];

/// Why a request could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("bundle {0:?} is not an absolute path")]
    RelativeBundle(String),
    #[error("malformed {what}")]
    Json {
        what: &'static str,
        source: serde_json::Error,
    },
    #[error("invalid signal {0}")]
    Signal(u32),
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// Everything about a create that is not in the request itself.
#[derive(Debug, Clone)]
pub(crate) struct CreateContext<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) annotations: &'a HashMap<String, String>,
    pub(crate) isolation: Isolation,
    pub(crate) runc: &'a RuncOptions,
    /// Engine state when no `Root` is given.
    pub(crate) default_engine_root: &'a Path,
}

/// Task Create.
pub(crate) fn provision(
    request: &CreateTaskRequest,
    context: &CreateContext<'_>,
) -> Result<ProvisionRequest, RequestError> {
    if request.id.is_empty() {
        return Err(RequestError::Missing {
            field: "container id",
        });
    }
    if !request.bundle.starts_with('/') {
        return Err(RequestError::RelativeBundle(request.bundle.clone()));
    }
    let bundle = PathBuf::from(&request.bundle);
    let runc = context.runc;
    let engine = EngineOptions {
        // nerdctl's network hooks, among others, find the container by it.
        container_id: Some(request.id.clone()).filter(|id| EngineOptions::is_container_id(id)),
        binary: runc.binary_name.clone(),
        // Both are per namespace: two namespaces may use one container id.
        root: Some(match &runc.root {
            Some(root) => root.join(context.namespace),
            None => context.default_engine_root.to_owned(),
        }),
        systemd_cgroup: runc.systemd_cgroup,
        no_pivot_root: runc.no_pivot_root,
        no_new_keyring: runc.no_new_keyring,
        criu_path: runc.criu_path.clone(),
        restore_from: path(&request.checkpoint),
        criu_work_path: Some(
            runc.criu_work_path
                .clone()
                .unwrap_or_else(|| bundle.join("work")),
        ),
    };
    Ok(ProvisionRequest {
        key: TaskKey {
            namespace: context.namespace.to_owned(),
            container_id: request.id.clone(),
        },
        request: execution(request, context),
        rootfs: request.rootfs.iter().map(mount).collect(),
        stdio: StdioUris {
            stdin: some(&request.stdin),
            stdout: some(&request.stdout),
            stderr: some(&request.stderr),
            subject: Some(request.id.clone()),
            terminal: request.terminal,
            uid: runc.io_uid,
            gid: runc.io_gid,
        },
        engine,
        bundle,
    })
}

/// The product's own request. On the Task path containerd's spec is the authority for limits, mounts and
/// security, so it says the isolation and who the container is, and nothing that the spec says.
fn execution(request: &CreateTaskRequest, context: &CreateContext<'_>) -> CreateExecutionRequest {
    let labels: BTreeMap<String, String> = context
        .annotations
        .iter()
        .filter(|(key, _)| LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    CreateExecutionRequest {
        external_sandbox_id: grouping::group_of(context.annotations, &request.id).to_owned(),
        config: BoxConfig {
            isolation: match context.isolation {
                Isolation::Native => ExecutionIsolation::Sandbox,
                Isolation::MicroVm => ExecutionIsolation::Microvm,
            },
            ..BoxConfig::default()
        },
        labels,
        policy: ExecutionRecordPolicy {
            name: Some(request.id.clone()),
            ..ExecutionRecordPolicy::default()
        },
        rootfs_snapshot_id: None,
    }
}

/// Task Exec: the whole OCI process, and its streams with the owner that the container's have.
pub(crate) fn exec(
    request: &ExecProcessRequest,
    container: &StdioUris,
) -> Result<(Process, StdioUris), RequestError> {
    if request.exec_id.is_empty() {
        return Err(RequestError::Missing { field: "exec id" });
    }
    let mut process: Process = json_object("process spec", request.spec.as_ref(), fill_process)?;
    // The request decides about the terminal, as in the stock shim.
    process.set_terminal(Some(request.terminal));
    let stdio = StdioUris {
        stdin: some(&request.stdin),
        stdout: some(&request.stdout),
        stderr: some(&request.stderr),
        subject: Some(request.exec_id.clone()),
        terminal: request.terminal,
        uid: container.uid,
        gid: container.gid,
    };
    Ok((process, stdio))
}

/// Task Update: containerd sends JSON in an `Any`.
pub(crate) fn resources(any: Option<&Any>) -> Result<LinuxResources, RequestError> {
    json_object("resources", any, |_| {})
}

/// Task Checkpoint.
pub(crate) fn checkpoint(request: &CheckpointTaskRequest) -> Result<TaskCheckpoint, RequestError> {
    let options = match request.options.as_ref() {
        Some(any) => options::parse_checkpoint(&any.type_url, &any.value)?,
        None => options::parse_checkpoint("", &[])?,
    };
    let image_path = path(&request.path)
        .or_else(|| path(&options.image_path))
        .ok_or(RequestError::Missing {
            field: "checkpoint path",
        })?;
    Ok(TaskCheckpoint {
        image_path,
        work_path: path(&options.work_path),
        exit: options.exit,
        open_tcp: options.open_tcp,
        external_unix_sockets: options.external_unix_sockets,
        terminal: options.terminal,
        file_locks: options.file_locks,
        empty_namespaces: options.empty_namespaces,
        cgroups_mode: some(&options.cgroups_mode),
    })
}

/// A signal number; the kernel knows 1 to 64, and 0 asks only whether the process is there.
pub(crate) fn signal(number: u32) -> Result<i32, RequestError> {
    const SIGNAL_MAX: u32 = 64;
    match i32::try_from(number) {
        Ok(signal) if number <= SIGNAL_MAX => Ok(signal),
        _ => Err(RequestError::Signal(number)),
    }
}

/// The exec id of a request; an empty one is the init process.
pub(crate) fn process(exec_id: &str) -> Option<&str> {
    (!exec_id.is_empty()).then_some(exec_id)
}

/// The size of a terminal. A side of zero says that the client does not know, as one without a terminal
/// of its own does; a side that no terminal can have is the largest that it can.
pub(crate) fn terminal_size(width: u32, height: u32) -> TerminalSize {
    let side = |value: u32, usual: u16| match u16::try_from(value) {
        Ok(0) => usual,
        Ok(value) => value,
        Err(_) => u16::MAX,
    };
    TerminalSize {
        width: side(width, USUAL_COLUMNS),
        height: side(height, USUAL_ROWS),
    }
}

/// Reads an object as Go reads it: what is not named there is zero. `fill` adds what our types require.
fn json_object<T: serde::de::DeserializeOwned>(
    what: &'static str,
    any: Option<&Any>,
    fill: impl FnOnce(&mut Map<String, Value>),
) -> Result<T, RequestError> {
    let any = any.ok_or(RequestError::Missing { field: what })?;
    let read = || {
        let mut object: Map<String, Value> = serde_json::from_slice(&any.value)?;
        fill(&mut object);
        serde_json::from_value(Value::Object(object))
    };
    read().map_err(|source| RequestError::Json { what, source })
}

/// The members that a process must have, as their zero values. An empty folder is refused at the start.
fn fill_process(process: &mut Map<String, Value>) {
    process.entry("cwd").or_insert_with(|| Value::from(""));
    let user = process
        .entry("user")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(user) = user {
        for id in ["uid", "gid"] {
            user.entry(id).or_insert_with(|| Value::from(0));
        }
    }
}

fn mount(mount: &Mount) -> RootfsMount {
    RootfsMount {
        fs_type: mount.type_.clone(),
        source: mount.source.clone(),
        target: mount.target.clone(),
        options: mount.options.clone(),
    }
}

fn some(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

fn path(value: &str) -> Option<PathBuf> {
    some(value).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context<'a>(
        annotations: &'a HashMap<String, String>,
        runc: &'a RuncOptions,
    ) -> CreateContext<'a> {
        CreateContext {
            namespace: "ns",
            annotations,
            isolation: Isolation::Native,
            runc,
            default_engine_root: Path::new("/run/a3sbox/i/ns/.runc"),
        }
    }

    fn create() -> CreateTaskRequest {
        let mut request = CreateTaskRequest::new();
        request.id = "c".into();
        request.bundle = "/b".into();
        request.stdout = "/o".into();
        request
    }

    #[test]
    fn a_create_keeps_names_streams_and_engine_switches() {
        let annotations = HashMap::from([
            ("io.kubernetes.cri.sandbox-id".to_owned(), "pod".to_owned()),
            ("secret".to_owned(), "s".to_owned()),
        ]);
        let runc = RuncOptions {
            io_uid: 7,
            root: Some("/r".into()),
            ..RuncOptions::default()
        };
        let provision = provision(&create(), &context(&annotations, &runc)).unwrap();
        assert_eq!(provision.key.container_id, "c");
        assert_eq!(provision.request.external_sandbox_id, "pod");
        assert_eq!(
            provision.request.config.isolation,
            ExecutionIsolation::Sandbox
        );
        assert_eq!(provision.request.labels.len(), 1);
        assert_eq!(provision.engine.root.as_deref(), Some(Path::new("/r/ns")));
        assert_eq!(
            provision.engine.criu_work_path.as_deref(),
            Some(Path::new("/b/work"))
        );
        assert_eq!(provision.stdio.uid, 7);
        assert_eq!(provision.stdio.stdin, None);
        assert_eq!(provision.stdio.stdout.as_deref(), Some("/o"));
    }

    #[test]
    fn a_create_without_a_whole_bundle_path_is_refused() {
        let annotations = HashMap::new();
        let runc = RuncOptions::default();
        let mut request = create();
        request.bundle = "b".into();
        assert!(provision(&request, &context(&annotations, &runc)).is_err());
    }

    #[test]
    fn an_exec_takes_the_process_and_a_broken_one_is_refused() {
        let mut request = ExecProcessRequest::new();
        request.exec_id = "e".into();
        request.terminal = true;
        let mut any = Any::new();
        any.value = br#"{"cwd":"/tmp","args":["id"],"user":{"uid":1,"gid":2}}"#.to_vec();
        request.spec = Some(any).into();
        let container = StdioUris {
            gid: 9,
            ..StdioUris::default()
        };
        let (process, stdio) = exec(&request, &container).unwrap();
        assert_eq!(process.terminal(), Some(true));
        assert_eq!(process.user().uid(), 1);
        assert_eq!(stdio.gid, 9);
        request.spec.as_mut().unwrap().value = b"{".to_vec();
        assert!(exec(&request, &container).is_err());
        request.spec = None.into();
        assert!(exec(&request, &container).is_err());
    }

    #[test]
    fn a_terminal_has_a_size_whatever_the_client_knows() {
        let size = |width, height| TerminalSize { width, height };
        assert_eq!(terminal_size(120, 40), size(120, 40));
        assert_eq!(terminal_size(0, 0), size(80, 24));
        assert_eq!(terminal_size(100_000, 1), size(u16::MAX, 1));
    }

    #[test]
    fn a_process_may_leave_out_what_is_zero_and_a_list_is_none() {
        let read = |text: &str| {
            let mut any = Any::new();
            any.value = text.as_bytes().to_vec();
            json_object::<Process>("process spec", Some(&any), fill_process)
        };
        let process = read(r#"{"args": ["true"], "cwd": "/", "user": {"uid": 5}}"#).unwrap();
        assert_eq!((process.user().uid(), process.user().gid()), (5, 0));
        assert!(read(r#"{"args": ["true"]}"#).is_ok());
        assert!(read("[]").is_err());
        assert!(read("\"text\"").is_err());
    }

    #[test]
    fn signals_are_those_of_the_kernel() {
        assert_eq!(signal(9).unwrap(), 9);
        assert_eq!(signal(64).unwrap(), 64);
        assert!(signal(65).is_err());
        assert!(signal(u32::MAX).is_err());
    }
}
