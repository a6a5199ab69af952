//! What waits for what, and what does not; the order of events.

use std::sync::Arc;

use a3sbox_oci::{ExitStatus, StdioUris};

use super::double::{End, exited};
use super::{World, key, name, process, request, soon};
use crate::task::{TaskError, TaskEventKind, TaskManager, TaskStatus};

#[tokio::test]
async fn exits_of_execs_come_before_the_exit_of_the_init_process() {
    let mut world = World::new();
    let key = world.running("c1").await;
    let first = world.exec(&key, "a").await;
    let second = world.exec(&key, "b").await;
    world.runtime.end_init(exited(0));
    // The exit is held back, and no further exec begins.
    soon(async {
        loop {
            match world
                .manager
                .exec_add(&key, "late", process(), StdioUris::default())
                .await
            {
                Ok(()) => {
                    world.manager.delete(&key, Some("late")).await.unwrap();
                }
                Err(error) => {
                    break assert_eq!(error.to_string(), "cannot exec in a stopped state");
                }
            }
        }
    })
    .await;
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!((state.status, state.exit), (TaskStatus::Running, None));
    assert!(
        world.stored_task(&key).init.exit.is_some(),
        "what was seen is on disk"
    );
    world.runtime.end_pid(first, exited(1));
    world.runtime.end_pid(second, exited(2));
    soon(world.manager.wait(&key, None)).await.unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|last| last != "exited 0") {
        events.push(name(&world.next_event().await));
    }
    let exits: Vec<_> = events
        .iter()
        .filter(|event| event.starts_with("exited"))
        .collect();
    assert_eq!(exits.len(), 3);
    assert_eq!(exits[2], "exited 0");
    let delete = soon(world.manager.delete(&key, None)).await.unwrap();
    assert_eq!(delete.exit.unwrap().status, Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_exec_that_never_ends_holds_the_exit_back_for_its_deadline_only() {
    let mut world = World::new();
    let key = world.running("c1").await;
    world.exec(&key, "stuck").await;
    let before = tokio::time::Instant::now();
    world.runtime.end_init(exited(5));
    // The clock is paused: it jumps to the next deadline when nothing else can happen.
    assert_eq!(
        world.manager.wait(&key, None).await.unwrap().status,
        Some(5)
    );
    let waited = before.elapsed();
    assert!(
        waited >= crate::task::limits::Deadlines::DEFAULT.exec_drain,
        "{waited:?}"
    );
    assert_eq!(
        world.next_events(5).await,
        [
            "created",
            "started",
            "added stuck",
            "started stuck",
            "exited 5"
        ]
    );
}

#[tokio::test]
async fn out_of_memory_is_told_before_the_exit() {
    for _ in 0..50 {
        let mut world = World::new();
        let key = world.running("c1").await;
        world.runtime.run_out_of_memory();
        world
            .runtime
            .end_init(End::Status(ExitStatus::signaled(9, true).unwrap()));
        assert_eq!(
            soon(world.manager.wait(&key, None)).await.unwrap().status,
            Some(137)
        );
        assert_eq!(
            world.next_events(4).await,
            ["created", "started", "oom", "exited 137"]
        );
        assert_eq!(world.stored_task(&key).oom_events, 1);
    }
}

#[tokio::test]
async fn out_of_memory_that_ends_nothing_is_told_too() {
    let mut world = World::new();
    let key = world.running("c1").await;
    world.runtime.run_out_of_memory();
    assert_eq!(world.next_events(3).await, ["created", "started", "oom"]);
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!(state.status, TaskStatus::Running);
}

#[tokio::test]
async fn a_slow_exec_blocks_neither_kill_nor_wait_nor_another_exec() {
    let world = World::new();
    let key = world.running("c1").await;
    soon(
        world
            .manager
            .exec_add(&key, "slow", process(), StdioUris::default()),
    )
    .await
    .unwrap();
    world.runtime.hold("exec");
    let manager = world.manager.clone();
    let of = key.clone();
    let slow = tokio::spawn(async move { manager.exec_start(&of, "slow").await });
    soon(world.runtime.entered("exec", 1)).await;
    // A signal for the exec itself waits for its start; nothing else does.
    let manager = world.manager.clone();
    let of = key.clone();
    let signal = tokio::spawn(async move { manager.signal(&of, Some("slow"), 15, false).await });
    soon(
        world
            .manager
            .exec_add(&key, "other", process(), StdioUris::default()),
    )
    .await
    .unwrap();
    soon(world.manager.state(&key, Some("slow"))).await.unwrap();
    world.runtime.trap(1);
    soon(world.manager.signal(&key, None, 1, false))
        .await
        .unwrap();
    assert!(!slow.is_finished() && !signal.is_finished());
    world.runtime.let_go("exec");
    soon(slow).await.unwrap().unwrap();
    soon(signal).await.unwrap().unwrap();
    assert_eq!(
        soon(world.manager.wait(&key, Some("slow")))
            .await
            .unwrap()
            .status,
        Some(143)
    );
}

#[tokio::test]
async fn a_slow_pause_blocks_no_kill() {
    let world = World::new();
    let key = world.running("c1").await;
    world.runtime.hold("pause");
    let manager = world.manager.clone();
    let of = key.clone();
    let pause = tokio::spawn(async move { manager.pause(&of).await });
    soon(world.runtime.entered("pause", 1)).await;
    let state = soon(world.manager.state(&key, None)).await.unwrap();
    assert_eq!(state.status, TaskStatus::Pausing);
    soon(world.manager.signal(&key, None, 9, false))
        .await
        .unwrap();
    assert_eq!(
        soon(world.manager.wait(&key, None)).await.unwrap().status,
        Some(137)
    );
    world.runtime.let_go("pause");
    let paused = soon(pause).await.unwrap().unwrap_err();
    assert_eq!(paused.to_string(), "cannot pause a stopped container");
    soon(world.runtime.entered("resume", 1)).await;
    assert!(!world.runtime.is_paused(), "nothing stays frozen");
}

#[tokio::test]
async fn a_slow_create_blocks_no_other_container() {
    let world = World::new();
    let other = world.running("other").await;
    world.runtime.hold("create");
    let manager = world.manager.clone();
    let slow = tokio::spawn(async move { manager.provision(request(&key("slow"))).await });
    soon(world.runtime.entered("create", 2)).await;
    let unknown = soon(world.manager.state(&key("slow"), None))
        .await
        .unwrap_err();
    assert_eq!(unknown.to_string(), "container not created: not found");
    let twice = soon(world.manager.provision(request(&key("slow"))))
        .await
        .unwrap_err();
    assert!(matches!(twice, TaskError::AlreadyExists(_)));
    soon(world.manager.pause(&other)).await.unwrap();
    assert_eq!(world.manager.live(), 2);
    world.runtime.let_go("create");
    soon(slow).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_effect_is_finished_when_its_caller_hangs_up() {
    let world = World::new();
    world.runtime.hold("create");
    let manager = world.manager.clone();
    let caller = tokio::spawn(async move { manager.provision(request(&key("c1"))).await });
    soon(world.runtime.entered("create", 1)).await;
    caller.abort();
    assert!(soon(caller).await.unwrap_err().is_cancelled());
    world.runtime.let_go("create");
    let key = key("c1");
    soon(async {
        while world.manager.state(&key, None).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;

    world.runtime.hold("start");
    let manager = world.manager.clone();
    let of = key.clone();
    let caller = tokio::spawn(async move { manager.release(&of).await });
    soon(world.runtime.entered("start", 1)).await;
    caller.abort();
    assert!(soon(caller).await.unwrap_err().is_cancelled());
    world.runtime.let_go("start");
    soon(async {
        while world.manager.state(&key, None).await.unwrap().status != TaskStatus::Running {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.stored(&key).unwrap().status, "running");
}

#[tokio::test]
async fn an_exit_during_the_start_is_told_after_it() {
    let mut world = World::new();
    let key = world.created("c1").await;
    world.runtime.hold("start");
    let manager = world.manager.clone();
    let of = key.clone();
    let start = tokio::spawn(async move { manager.release(&of).await });
    soon(world.runtime.entered("start", 1)).await;
    world.runtime.end_init(exited(9));
    soon(async {
        while world.stored_task(&key).init.exit.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.runtime.let_go("start");
    soon(start).await.unwrap().unwrap();
    assert_eq!(
        soon(world.manager.wait(&key, None)).await.unwrap().status,
        Some(9)
    );
    assert_eq!(
        world.next_events(3).await,
        ["created", "started", "exited 9"]
    );
}

#[tokio::test]
async fn every_waiter_gets_the_same_answer_before_and_after() {
    let world = World::new();
    let key = world.running("c1").await;
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            let (manager, key) = (world.manager.clone(), key.clone());
            tokio::spawn(async move { manager.wait(&key, None).await })
        })
        .collect();
    world.runtime.end_init(exited(42));
    let exit = soon(world.manager.wait(&key, None)).await.unwrap();
    for waiter in waiters {
        assert_eq!(soon(waiter).await.unwrap().unwrap(), exit);
    }
    for _ in 0..3 {
        assert_eq!(soon(world.manager.wait(&key, None)).await.unwrap(), exit);
    }
    let waits = world
        .runtime
        .log()
        .iter()
        .filter(|line| *line == "wait")
        .count();
    assert_eq!(waits, 1, "one pending wait feeds them all");
}

#[tokio::test]
async fn two_deletes_at_once_share_one_effect() {
    let mut world = World::new();
    let key = world.running("c1").await;
    world.runtime.end_init(exited(0));
    soon(world.manager.wait(&key, None)).await.unwrap();
    world.runtime.hold("delete");
    let deletes: Vec<_> = (0..2)
        .map(|_| {
            let (manager, key) = (world.manager.clone(), key.clone());
            tokio::spawn(async move { manager.delete(&key, None).await })
        })
        .collect();
    soon(world.runtime.entered("delete", 1)).await;
    world.runtime.let_go("delete");
    let mut answers = 0;
    for delete in deletes {
        match soon(delete).await.unwrap() {
            Ok(deleted) => {
                answers += 1;
                assert_eq!(deleted.exit.unwrap().status, Some(0));
            }
            Err(error) => assert!(matches!(error, TaskError::NotFound(_)), "{error}"),
        }
    }
    assert!(answers >= 1);
    assert_eq!(
        world
            .runtime
            .log()
            .iter()
            .filter(|line| *line == "delete")
            .count(),
        1
    );
    assert_eq!(
        world.next_events(4).await,
        ["created", "started", "exited 0", "deleted 0"]
    );
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_full_event_queue_blocks_nothing_and_loses_nothing() {
    let mut world = World::new();
    let rounds = crate::task::limits::EVENT_QUEUE / 4 + 10;
    for round in 0..rounds {
        let key = world.running(&format!("c{round}")).await;
        world.runtime.end_init(exited(0));
        soon(world.manager.wait(&key, None)).await.unwrap();
        soon(world.manager.delete(&key, None)).await.unwrap();
    }
    assert_eq!(world.manager.live(), 0);
    let mut last_of: std::collections::HashMap<String, String> = std::collections::HashMap::new();
    for _ in 0..rounds * 4 {
        let event = soon(world.events.recv()).await.unwrap();
        let step = name(&event.kind);
        let before = last_of.insert(event.key.container_id, step.clone());
        let expected = match step.as_str() {
            "created" => None,
            "started" => Some("created"),
            "exited 0" => Some("started"),
            _ => Some("exited 0"),
        };
        assert_eq!(before.as_deref(), expected);
    }
    assert!(last_of.values().all(|last| last == "deleted 0"));
}

#[tokio::test]
async fn fifty_containers_at_once() {
    let world = World::new();
    let manager = Arc::new(world.manager.clone());
    let creates: Vec<_> = (0..50)
        .map(|index| {
            let manager = Arc::clone(&manager);
            tokio::spawn(async move {
                let key = key(&format!("c{index}"));
                manager.provision(request(&key)).await.unwrap();
                manager.release(&key).await.unwrap();
                manager.signal(&key, None, 9, true).await.unwrap();
                assert_eq!(manager.wait(&key, None).await.unwrap().status, Some(137));
                manager.delete(&key, None).await.unwrap();
            })
        })
        .collect();
    for create in creates {
        soon(create).await.unwrap();
    }
    world.assert_nothing_left();
}

#[tokio::test]
async fn the_created_event_carries_what_containerd_gave() {
    let mut world = World::new();
    world.created("c1").await;
    let TaskEventKind::Created {
        bundle,
        rootfs,
        pid,
        ..
    } = world.next_event().await
    else {
        panic!("not the create");
    };
    assert_eq!((bundle.to_str(), rootfs.len()), (Some("/run/bundle"), 1));
    assert!(pid > 0);
}

#[tokio::test]
async fn a_pause_during_the_start_waits_for_it() {
    let mut world = World::new();
    let key = world.created("c1").await;
    world.runtime.hold("start");
    let (manager, of) = (world.manager.clone(), key.clone());
    let start = tokio::spawn(async move { manager.release(&of).await });
    soon(world.runtime.entered("start", 1)).await;
    let (manager, of) = (world.manager.clone(), key.clone());
    let pause = tokio::spawn(async move { manager.pause(&of).await });
    // Behind the pause in the queue, and not behind it in time.
    world.runtime.trap(1);
    soon(world.manager.signal(&key, None, 1, false))
        .await
        .unwrap();
    assert!(!world.runtime.log().contains(&"pause".to_owned()));
    world.runtime.let_go("start");
    soon(start).await.unwrap().unwrap();
    soon(pause).await.unwrap().unwrap();
    assert_eq!(world.next_events(3).await, ["created", "started", "paused"]);
}
