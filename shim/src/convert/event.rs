//! Events of a task as containerd's topics and messages.

use a3sbox_execution::task::{RootfsMount, TaskEvent, TaskEventKind};
use a3sbox_oci::StdioUris;
use containerd_shim_protos::events::task::{
    TaskCheckpointed, TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskIO,
    TaskOOM, TaskPaused, TaskResumed, TaskStart,
};
use containerd_shim_protos::topics;
use containerd_shim_protos::types::mount::Mount;
use protobuf::well_known_types::any::Any;

use super::any;
use super::status::exit_status;
pub(crate) use super::status::timestamp;

/// The topic under which containerd publishes an event.
pub(crate) const fn topic(kind: &TaskEventKind) -> &'static str {
    match kind {
        TaskEventKind::Created { .. } => topics::TASK_CREATE_EVENT_TOPIC,
        TaskEventKind::Started { .. } => topics::TASK_START_EVENT_TOPIC,
        TaskEventKind::ExecAdded { .. } => topics::TASK_EXEC_ADDED_EVENT_TOPIC,
        TaskEventKind::ExecStarted { .. } => topics::TASK_EXEC_STARTED_EVENT_TOPIC,
        TaskEventKind::Paused => topics::TASK_PAUSED_EVENT_TOPIC,
        TaskEventKind::Resumed => topics::TASK_RESUMED_EVENT_TOPIC,
        TaskEventKind::Checkpointed { .. } => topics::TASK_CHECKPOINTED_EVENT_TOPIC,
        TaskEventKind::OutOfMemory => topics::TASK_OOM_EVENT_TOPIC,
        TaskEventKind::Exited { .. } => topics::TASK_EXIT_EVENT_TOPIC,
        TaskEventKind::Deleted { .. } => topics::TASK_DELETE_EVENT_TOPIC,
    }
}

/// The message of an event.
pub(crate) fn body(event: &TaskEvent) -> Any {
    let container_id = event.key.container_id.clone();
    match &event.kind {
        TaskEventKind::Created {
            pid,
            bundle,
            rootfs,
            stdio,
            checkpoint,
        } => {
            let mut message = TaskCreate::new();
            message.container_id = container_id;
            message.bundle = bundle.display().to_string();
            message.rootfs = rootfs.iter().map(mount).collect();
            message.io = Some(io(stdio)).into();
            message.checkpoint = checkpoint
                .as_ref()
                .map(|path| path.display().to_string())
                .unwrap_or_default();
            message.pid = *pid;
            any("containerd.events.TaskCreate", &message)
        }
        TaskEventKind::Started { pid } => {
            let mut message = TaskStart::new();
            message.container_id = container_id;
            message.pid = *pid;
            any("containerd.events.TaskStart", &message)
        }
        TaskEventKind::ExecAdded { exec_id } => {
            let mut message = TaskExecAdded::new();
            message.container_id = container_id;
            message.exec_id.clone_from(exec_id);
            any("containerd.events.TaskExecAdded", &message)
        }
        TaskEventKind::ExecStarted { exec_id, pid } => {
            let mut message = TaskExecStarted::new();
            message.container_id = container_id;
            message.exec_id.clone_from(exec_id);
            message.pid = *pid;
            any("containerd.events.TaskExecStarted", &message)
        }
        TaskEventKind::Paused => {
            let mut message = TaskPaused::new();
            message.container_id = container_id;
            any("containerd.events.TaskPaused", &message)
        }
        TaskEventKind::Resumed => {
            let mut message = TaskResumed::new();
            message.container_id = container_id;
            any("containerd.events.TaskResumed", &message)
        }
        TaskEventKind::Checkpointed { checkpoint } => {
            let mut message = TaskCheckpointed::new();
            message.container_id = container_id;
            message.checkpoint = checkpoint.display().to_string();
            any("containerd.events.TaskCheckpointed", &message)
        }
        TaskEventKind::OutOfMemory => {
            let mut message = TaskOOM::new();
            message.container_id = container_id;
            any("containerd.events.TaskOOM", &message)
        }
        TaskEventKind::Exited { exec_id, pid, exit } => {
            let mut message = TaskExit::new();
            // The init process goes by the container's id.
            message.id = exec_id.clone().unwrap_or_else(|| container_id.clone());
            message.container_id = container_id;
            message.pid = *pid;
            message.exit_status = exit_status(exit);
            message.exited_at = Some(timestamp(exit.exited_at)).into();
            any("containerd.events.TaskExit", &message)
        }
        TaskEventKind::Deleted { pid, exit } => {
            let mut message = TaskDelete::new();
            message.container_id = container_id;
            message.pid = *pid;
            message.exit_status = exit_status(exit);
            message.exited_at = Some(timestamp(exit.exited_at)).into();
            any("containerd.events.TaskDelete", &message)
        }
    }
}

fn io(stdio: &StdioUris) -> TaskIO {
    let mut io = TaskIO::new();
    io.stdin = stdio.stdin.clone().unwrap_or_default();
    io.stdout = stdio.stdout.clone().unwrap_or_default();
    io.stderr = stdio.stderr.clone().unwrap_or_default();
    io.terminal = stdio.terminal;
    io
}

fn mount(mount: &RootfsMount) -> Mount {
    let mut message = Mount::new();
    message.type_.clone_from(&mount.fs_type);
    message.source.clone_from(&mount.source);
    message.target.clone_from(&mount.target);
    message.options.clone_from(&mount.options);
    message
}

#[cfg(test)]
mod tests {
    use a3sbox_execution::task::{TaskExit as Exit, TaskKey};
    use chrono::Utc;
    use protobuf::Message;

    use super::*;

    fn event(kind: TaskEventKind) -> TaskEvent {
        TaskEvent {
            key: TaskKey {
                namespace: "ns".into(),
                container_id: "c".into(),
            },
            at: Utc::now(),
            kind,
        }
    }

    #[test]
    fn an_exit_of_init_goes_by_the_container_and_one_of_an_exec_by_its_id() {
        for (exec_id, id) in [(None, "c"), (Some("e".to_owned()), "e")] {
            let event = event(TaskEventKind::Exited {
                exec_id,
                pid: 7,
                exit: Exit {
                    status: None,
                    exited_at: Utc::now(),
                    unknown_because: Some("lost".into()),
                },
            });
            assert_eq!(topic(&event.kind), "/tasks/exit");
            let any = body(&event);
            assert_eq!(any.type_url, "containerd.events.TaskExit");
            let message = TaskExit::parse_from_bytes(&any.value).unwrap();
            assert_eq!(
                (message.id.as_str(), message.pid, message.exit_status),
                (id, 7, 255)
            );
            assert_eq!(message.container_id, "c");
        }
    }

    #[test]
    fn a_create_carries_mounts_and_streams() {
        let event = event(TaskEventKind::Created {
            pid: 1,
            bundle: "/b".into(),
            rootfs: vec![RootfsMount {
                fs_type: "overlay".into(),
                source: "overlay".into(),
                target: String::new(),
                options: vec!["ro".into()],
            }],
            stdio: StdioUris {
                stdout: Some("/o".into()),
                terminal: true,
                ..StdioUris::default()
            },
            checkpoint: None,
        });
        let message = TaskCreate::parse_from_bytes(&body(&event).value).unwrap();
        assert_eq!(message.rootfs[0].options, ["ro"]);
        assert_eq!(message.io.stdout, "/o");
        assert!(message.io.terminal && message.io.stdin.is_empty());
    }
}
