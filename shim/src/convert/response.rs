//! Values of ours as containerd's answers.

use a3sbox_execution::task::{TaskDeleted, TaskExit, TaskPid, TaskState};
use containerd_shim_protos::api::{DeleteResponse, PidsResponse, StateResponse, WaitResponse};
use containerd_shim_protos::shim::oci::ProcessDetails;
use containerd_shim_protos::types::task::ProcessInfo;

use super::any;
use super::status::{exit_status, never, status, timestamp};

/// Task State; `id` is the container's, or the exec's.
pub(crate) fn state(id: &str, state: TaskState) -> StateResponse {
    let mut response = StateResponse::new();
    id.clone_into(&mut response.id);
    response.bundle = state.bundle.display().to_string();
    response.pid = state.pid;
    response.status = status(state.status).into();
    response.stdin = state.stdio.stdin.unwrap_or_default();
    response.stdout = state.stdio.stdout.unwrap_or_default();
    response.stderr = state.stdio.stderr.unwrap_or_default();
    response.terminal = state.stdio.terminal;
    response.exit_status = state.exit.as_ref().map_or(0, exit_status);
    response.exited_at = Some(
        state
            .exit
            .map_or_else(never, |exit| timestamp(exit.exited_at)),
    )
    .into();
    response
}

/// Task Delete.
pub(crate) fn deleted(deleted: &TaskDeleted) -> DeleteResponse {
    let mut response = DeleteResponse::new();
    response.pid = deleted.pid;
    response.exit_status = deleted.exit.as_ref().map_or(0, exit_status);
    let at = deleted.exit.as_ref();
    response.exited_at = Some(at.map_or_else(never, |exit| timestamp(exit.exited_at))).into();
    response
}

/// Task Wait.
pub(crate) fn waited(exit: &TaskExit) -> WaitResponse {
    let mut response = WaitResponse::new();
    response.exit_status = exit_status(exit);
    response.exited_at = Some(timestamp(exit.exited_at)).into();
    response
}

/// Task Pids: an exec's process carries its id, as kubelet's and ctr's lists show it.
pub(crate) fn pids(pids: Vec<TaskPid>) -> PidsResponse {
    let mut response = PidsResponse::new();
    response.processes = pids
        .into_iter()
        .map(|process| {
            let mut info = ProcessInfo::new();
            info.pid = process.pid;
            if let Some(exec_id) = process.exec_id {
                let mut details = ProcessDetails::new();
                details.exec_id = exec_id;
                info.info = Some(any("containerd.runc.v1.ProcessDetails", &details)).into();
            }
            info
        })
        .collect();
    response
}

#[cfg(test)]
mod tests {
    use a3sbox_execution::task::TaskStatus;
    use a3sbox_oci::StdioUris;
    use chrono::Utc;
    use protobuf::Message;

    use super::*;

    #[test]
    fn a_running_process_has_no_exit_and_an_unknown_exit_is_255() {
        let mut ours = TaskState {
            status: TaskStatus::Running,
            pid: 5,
            bundle: "/b".into(),
            stdio: StdioUris::default(),
            exit: None,
        };
        let response = state("c", ours.clone());
        assert_eq!(
            (response.exit_status, response.exited_at.seconds),
            (0, never().seconds)
        );
        ours.exit = Some(TaskExit {
            status: None,
            exited_at: Utc::now(),
            unknown_because: None,
        });
        assert_eq!(state("c", ours).exit_status, 255);
    }

    #[test]
    fn only_execs_carry_details() {
        let response = pids(vec![
            TaskPid {
                pid: 1,
                exec_id: None,
            },
            TaskPid {
                pid: 2,
                exec_id: Some("e".into()),
            },
        ]);
        assert!(response.processes[0].info.is_none());
        let any = response.processes[1].info.as_ref().unwrap();
        assert_eq!(any.type_url, "containerd.runc.v1.ProcessDetails");
        let details = ProcessDetails::parse_from_bytes(&any.value).unwrap();
        assert_eq!(details.exec_id, "e");
    }
}
