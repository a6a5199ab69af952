//! One container and its execs from create to delete, with the answers that containerd's clients know.

use a3sbox_oci::oci_spec::runtime::LinuxResources;
use a3sbox_oci::{ErrorCode, StdioUris, TerminalSize};

use super::double::{End, exited};
use super::{World, key, process, request, soon};
use crate::task::{InitState, TaskError, TaskManager, TaskStatus};

#[tokio::test]
async fn a_life_is_recorded_before_each_answer_and_leaves_nothing() {
    let mut world = World::new();
    let key = world.created("c1").await;
    assert_eq!(world.manager.live(), 1);
    let stored = world.stored(&key).unwrap();
    assert_eq!(stored.status, "created");
    let task = world.stored_task(&key);
    assert_eq!(task.init.state, InitState::Created);
    assert!(task.binding.is_some() && task.init.pid == stored.pid && stored.pid.is_some());

    let pid = soon(world.manager.release(&key)).await.unwrap();
    let stored = world.stored(&key).unwrap();
    assert_eq!((stored.status.as_str(), stored.pid), ("running", Some(pid)));
    assert!(stored.started_at.is_some());

    world.runtime.end_init(exited(7));
    let exit = soon(world.manager.wait(&key, None)).await.unwrap();
    assert_eq!(exit.status, Some(7));
    let stored = world.stored(&key).unwrap();
    assert_eq!(
        (stored.status.as_str(), stored.exit_code, stored.pid),
        ("stopped", Some(7), None)
    );
    let managed = stored.managed_execution.unwrap();
    assert!(managed.oci_runtime.is_none());
    assert!(
        managed.task.unwrap().binding.is_some(),
        "only the delete gives the container up"
    );
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!((state.status, state.pid), (TaskStatus::Stopped, pid));

    let deleted = soon(world.manager.delete(&key, None)).await.unwrap();
    assert_eq!((deleted.pid, deleted.exit), (pid, Some(exit)));
    let events = world.next_events(4).await;
    assert_eq!(events, ["created", "started", "exited 7", "deleted 7"]);
    world.assert_nothing_left();
}

#[tokio::test]
async fn verbs_in_the_wrong_state_are_refused_with_known_texts() {
    let world = World::new();
    let key = world.created("c1").await;
    let manager = &world.manager;
    let text = |error: TaskError| error.to_string();
    assert_eq!(
        text(soon(manager.pause(&key)).await.unwrap_err()),
        "cannot pause task in created state"
    );
    assert_eq!(
        text(soon(manager.resume(&key)).await.unwrap_err()),
        "cannot resume task in created state"
    );
    soon(manager.release(&key)).await.unwrap();
    for (result, expected) in [
        (
            soon(manager.release(&key)).await.map(|_| ()),
            "cannot start a running process",
        ),
        (
            soon(manager.delete(&key, None)).await.map(|_| ()),
            "cannot delete a running process",
        ),
        (
            soon(manager.resume(&key)).await,
            "cannot resume a running process",
        ),
    ] {
        assert_eq!(result, Err(TaskError::WrongState(expected.to_owned())));
    }
    let exists = soon(manager.provision(request(&key))).await.unwrap_err();
    assert_eq!(
        exists,
        TaskError::AlreadyExists("task c1: already exists".to_owned())
    );
    let resize = soon(manager.resize(&key, None, 80, 24)).await.unwrap_err();
    assert!(
        matches!(resize, TaskError::FailedPrecondition(_)),
        "{resize}"
    );

    world.runtime.end_init(exited(0));
    soon(manager.wait(&key, None)).await.unwrap();
    let finished = TaskError::NotFound("process already finished: not found".to_owned());
    assert_eq!(
        soon(manager.signal(&key, None, 15, false)).await,
        Err(finished)
    );
    assert_eq!(
        text(soon(manager.release(&key)).await.unwrap_err()),
        "cannot start a stopped process"
    );
    let update = soon(manager.update(&key, LinuxResources::default()))
        .await
        .unwrap_err();
    assert_eq!(text(update), "cannot update a stopped container");
    soon(manager.close_stdin(&key, None)).await.unwrap();
    // containerd 2 deletes a task that has no pids when it comes back.
    let init = soon(manager.state(&key, None)).await.unwrap().pid;
    let pids = soon(manager.pids(&key)).await.unwrap();
    assert_eq!(pids.iter().map(|p| p.pid).collect::<Vec<_>>(), [init]);

    soon(manager.delete(&key, None)).await.unwrap();
    let gone = TaskError::NotFound("container not created: not found".to_owned());
    assert_eq!(soon(manager.delete(&key, None)).await, Err(gone.clone()));
    assert_eq!(soon(manager.wait(&key, None)).await, Err(gone.clone()));
    assert_eq!(soon(manager.state(&key, None)).await, Err(gone.clone()));
    assert_eq!(soon(manager.signal(&key, None, 9, true)).await, Err(gone));
    world.assert_nothing_left();
}

#[tokio::test]
async fn an_exit_between_create_and_start_is_an_exit() {
    let mut world = World::new();
    let key = world.created("c1").await;
    soon(world.manager.signal(&key, None, 9, false))
        .await
        .unwrap();
    assert_eq!(
        soon(world.manager.wait(&key, None)).await.unwrap().status,
        Some(137)
    );
    let start = soon(world.manager.release(&key)).await.unwrap_err();
    assert_eq!(start.to_string(), "cannot start a stopped process");
    let deleted = soon(world.manager.delete(&key, None)).await.unwrap();
    assert_eq!(deleted.exit.unwrap().status, Some(137));
    assert_eq!(
        world.next_events(3).await,
        ["created", "exited 137", "deleted 137"]
    );
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_created_container_can_be_deleted_at_once() {
    let mut world = World::new();
    let key = world.created("c1").await;
    soon(world.manager.delete(&key, None)).await.unwrap();
    assert_eq!(
        world.next_events(3).await,
        ["created", "exited 137", "deleted 137"]
    );
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_failed_create_leaves_nothing_and_frees_the_id() {
    let world = World::new();
    world.runtime.fail(
        "create",
        ErrorCode::Internal,
        "OCI runtime create failed: boom",
    );
    let error = soon(world.manager.provision(request(&key("c1"))))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        TaskError::Internal("OCI runtime create failed: boom".to_owned())
    );
    world.assert_nothing_left();
    world.created("c1").await;
}

#[tokio::test]
async fn a_failed_start_can_be_repeated() {
    let world = World::new();
    let key = world.created("c1").await;
    world.runtime.fail("start", ErrorCode::Internal, "no");
    soon(world.manager.release(&key)).await.unwrap_err();
    assert_eq!(world.stored(&key).unwrap().status, "created");
    soon(world.manager.release(&key)).await.unwrap();
}

#[tokio::test]
async fn pause_and_resume_grow_the_generation() {
    let mut world = World::new();
    let key = world.running("c1").await;
    let generation = |world: &World| {
        world
            .stored(&key)
            .unwrap()
            .managed_execution
            .unwrap()
            .generation
            .get()
    };
    assert_eq!(generation(&world), 1);
    soon(world.manager.pause(&key)).await.unwrap();
    assert_eq!(generation(&world), 2);
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!(state.status, TaskStatus::Paused);
    let again = soon(world.manager.pause(&key)).await.unwrap_err();
    assert_eq!(again.to_string(), "cannot pause a paused container");
    let exec = soon(
        world
            .manager
            .exec_add(&key, "e", process(), StdioUris::default()),
    )
    .await;
    assert_eq!(
        exec.unwrap_err().to_string(),
        "cannot exec in a paused state"
    );
    let delete = soon(world.manager.delete(&key, None)).await.unwrap_err();
    assert_eq!(delete.to_string(), "cannot delete a paused process");
    soon(world.manager.resume(&key)).await.unwrap();
    assert_eq!(generation(&world), 3);
    assert_eq!(world.stored(&key).unwrap().status, "running");
    let events = world.next_events(4).await;
    assert_eq!(events, ["created", "started", "paused", "resumed"]);
}

#[tokio::test]
async fn an_end_while_paused_is_thawed_and_told() {
    let world = World::new();
    let key = world.running("c1").await;
    soon(world.manager.pause(&key)).await.unwrap();
    world.runtime.end_init(exited(1));
    assert_eq!(
        soon(world.manager.wait(&key, None)).await.unwrap().status,
        Some(1)
    );
    soon(world.runtime.entered("resume", 1)).await;
    soon(world.manager.delete(&key, None)).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn exec_ids_are_names_of_ours_alone_and_can_be_reused() {
    let world = World::new();
    let key = world.running("c1").await;
    for exec_id in ["init", "con", "a/b:ä", "init"] {
        let pid = world.exec(&key, exec_id).await;
        let taken = soon(
            world
                .manager
                .exec_add(&key, exec_id, process(), StdioUris::default()),
        )
        .await;
        assert_eq!(
            taken,
            Err(TaskError::AlreadyExists(format!(
                "id {exec_id}: already exists"
            )))
        );
        let running = soon(world.manager.delete(&key, Some(exec_id)))
            .await
            .unwrap_err();
        assert_eq!(running.to_string(), "cannot delete a running process");
        world.runtime.end_pid(pid, exited(3));
        let exit = soon(world.manager.wait(&key, Some(exec_id))).await.unwrap();
        assert_eq!(exit.status, Some(3));
        let deleted = soon(world.manager.delete(&key, Some(exec_id)))
            .await
            .unwrap();
        assert_eq!((deleted.pid, deleted.exit.unwrap().status), (pid, Some(3)));
        let gone = soon(world.manager.state(&key, Some(exec_id)))
            .await
            .unwrap_err();
        assert_eq!(
            gone.to_string(),
            format!("process does not exist {exec_id}: not found")
        );
    }
    let names: std::collections::HashSet<String> = world
        .runtime
        .log()
        .into_iter()
        .filter(|line| line.starts_with("exec a3sbox"))
        .collect();
    assert_eq!(names.len(), 4, "each start is a process of its own");
    assert!(world.stored_task(&key).execs.is_empty());
}

#[tokio::test]
async fn an_exec_that_never_ran_can_be_deleted_and_one_that_failed_retried() {
    let world = World::new();
    let key = world.running("c1").await;
    let manager = &world.manager;
    soon(manager.exec_add(&key, "e", process(), StdioUris::default()))
        .await
        .unwrap();
    let early = soon(manager.signal(&key, Some("e"), 9, false))
        .await
        .unwrap_err();
    assert_eq!(
        early,
        TaskError::FailedPrecondition("process not created: failed precondition".to_owned())
    );
    let deleted = soon(manager.delete(&key, Some("e"))).await.unwrap();
    assert_eq!((deleted.pid, deleted.exit), (0, None));

    soon(manager.exec_add(&key, "e", process(), StdioUris::default()))
        .await
        .unwrap();
    world.runtime.fail(
        "exec",
        ErrorCode::Internal,
        "OCI runtime exec failed: no such file",
    );
    let failed = soon(manager.exec_start(&key, "e")).await.unwrap_err();
    assert!(failed.to_string().contains("no such file"));
    let wait = soon(manager.wait(&key, Some("e"))).await.unwrap_err();
    assert!(
        matches!(wait, TaskError::FailedPrecondition(_)),
        "no status is invented: {wait}"
    );
    let pid = soon(manager.exec_start(&key, "e")).await.unwrap();
    world.runtime.end_pid(pid, exited(0));
    soon(manager.wait(&key, Some("e"))).await.unwrap();
    soon(manager.delete(&key, Some("e"))).await.unwrap();
}

#[tokio::test]
async fn what_comes_before_the_start_of_an_exec_is_kept_for_it() {
    let world = World::new();
    let key = world.running("c1").await;
    let stdio = StdioUris {
        terminal: true,
        ..StdioUris::default()
    };
    soon(world.manager.exec_add(&key, "tty", process(), stdio))
        .await
        .unwrap();
    soon(world.manager.resize(&key, Some("tty"), 132, 43))
        .await
        .unwrap();
    soon(world.manager.close_stdin(&key, Some("tty")))
        .await
        .unwrap();
    soon(world.manager.exec_start(&key, "tty")).await.unwrap();
    soon(world.runtime.entered("close-stdin", 1)).await;
    assert_eq!(
        world.runtime.sizes(),
        [TerminalSize {
            width: 132,
            height: 43
        }]
    );
}

#[tokio::test]
async fn a_trapped_signal_ends_nothing_and_a_second_one_is_a_second_effect() {
    let world = World::new();
    let key = world.running("c1").await;
    world.runtime.trap(1);
    for _ in 0..2 {
        soon(world.manager.signal(&key, None, 1, false))
            .await
            .unwrap();
    }
    let hups = world
        .runtime
        .log()
        .iter()
        .filter(|line| *line == "kill 1 all=false")
        .count();
    assert_eq!(hups, 2);
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!(state.status, TaskStatus::Running);
    soon(world.manager.signal(&key, None, 9, true))
        .await
        .unwrap();
    assert_eq!(
        soon(world.manager.wait(&key, None)).await.unwrap().status,
        Some(137)
    );
}

#[tokio::test]
async fn an_exit_that_nobody_saw_is_unknown_with_a_reason() {
    let world = World::new();
    let key = world.running("c1").await;
    world.runtime.end_init(End::Lost);
    let exit = soon(world.manager.wait(&key, None)).await.unwrap();
    assert_eq!(exit.status, None);
    assert!(exit.unknown_because.unwrap().contains("owner was lost"));
    assert_eq!(world.stored(&key).unwrap().exit_code, None);
    soon(world.manager.delete(&key, None)).await.unwrap();
}

#[tokio::test]
async fn long_and_odd_names_work() {
    let world = World::new();
    let long = "x".repeat(76);
    for id in [long.as_str(), "a b/..\\ü:%", "..", "con", "-"] {
        let key = world.created(id).await;
        soon(world.manager.release(&key)).await.unwrap();
        assert_eq!(world.stored_task(&key).key, key);
        world.runtime.end_init(exited(0));
        soon(world.manager.wait(&key, None)).await.unwrap();
        soon(world.manager.delete(&key, None)).await.unwrap();
    }
    world.assert_nothing_left();
    let empty = soon(world.manager.provision(request(&key(""))))
        .await
        .unwrap_err();
    assert!(matches!(empty, TaskError::InvalidArgument(_)));
}

#[tokio::test]
async fn many_execs_leave_record_and_journal_flat_and_no_secret() {
    let world = World::new();
    let key = world.running("c1").await;
    let folder = world.store().container_folder(&key);
    let mut longest = 0;
    for _ in 0..60 {
        let pid = world.exec(&key, "probe").await;
        world.runtime.end_pid(pid, exited(0));
        soon(world.manager.wait(&key, Some("probe"))).await.unwrap();
        soon(world.manager.delete(&key, Some("probe")))
            .await
            .unwrap();
        let journal = std::fs::read_to_string(folder.join("journal.log")).unwrap();
        assert!(!journal.contains("hunter2"));
        longest = longest.max(journal.lines().count());
    }
    assert!(longest <= 80, "{longest} lines");
    let record = std::fs::read_to_string(folder.join("record.json")).unwrap();
    assert!(!record.contains("probe") && !record.contains("hunter2"));
    soon(world.manager.pids(&key)).await.unwrap();
}

#[tokio::test]
async fn a_state_root_that_cannot_be_written_refuses_the_create_before_any_effect() {
    let world = World::new();
    std::fs::write(world.folder.path().join("ns"), b"not a folder").unwrap();
    soon(world.manager.provision(request(&key("c1"))))
        .await
        .unwrap_err();
    assert_eq!(world.runtime.containers(), 0);
    assert!(world.runtime.log().is_empty());
    assert_eq!(world.provider.prepared(), 0);
    assert_eq!(world.manager.live(), 0);
    std::fs::remove_file(world.folder.path().join("ns")).unwrap();
    world.created("c1").await;
}

#[tokio::test]
async fn a_record_that_cannot_be_written_refuses_the_start_and_hides_no_exit() {
    let world = World::new();
    let key = world.created("c1").await;
    let folder = world.store().container_folder(&key);
    let aside = world.folder.path().join("aside");
    // Renaming is what makes every write below fail, whoever runs this.
    #[expect(clippy::disallowed_methods, reason = "it breaks state on purpose")]
    std::fs::rename(&folder, &aside).unwrap();
    soon(world.manager.release(&key)).await.unwrap_err();
    assert!(!world.runtime.log().contains(&"start".to_owned()));
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!(state.status, TaskStatus::Created);
    world.runtime.end_init(exited(4));
    let exit = soon(world.manager.wait(&key, None)).await.unwrap();
    assert_eq!(exit.status, Some(4));
    #[expect(clippy::disallowed_methods, reason = "it mends what it broke")]
    std::fs::rename(&aside, &folder).unwrap();
    soon(world.manager.delete(&key, None)).await.unwrap();
    world.assert_nothing_left();
}
