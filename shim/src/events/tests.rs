use a3sbox_execution::task::{TaskExit, TaskKey};
use chrono::Utc;

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

fn exit(pid: u32) -> TaskEvent {
    event(TaskEventKind::Exited {
        exec_id: None,
        pid,
        exit: TaskExit {
            status: Some(0),
            exited_at: Utc::now(),
            unknown_because: None,
        },
    })
}

#[test]
fn a_full_outbox_gives_up_what_is_pointless_and_keeps_every_exit_in_order() {
    let outbox = Outbox::new();
    for pid in 0..u32::try_from(OUTBOX_LIMIT).unwrap() {
        outbox.put(exit(pid));
        outbox.put(event(TaskEventKind::Paused));
    }
    let waiting = outbox.waiting();
    assert_eq!(waiting.events.len(), OUTBOX_LIMIT);
    let pids: Vec<u32> = waiting
        .events
        .iter()
        .filter_map(|event| match event.kind {
            TaskEventKind::Exited { pid, .. } => Some(pid),
            _ => None,
        })
        .collect();
    assert_eq!(pids.len(), OUTBOX_LIMIT);
    assert!(pids.is_sorted());
}

#[test]
fn finals_alone_may_exceed_the_limit() {
    let outbox = Outbox::new();
    for pid in 0..=u32::try_from(OUTBOX_LIMIT).unwrap() {
        outbox.put(exit(pid));
    }
    assert_eq!(outbox.waiting().events.len(), OUTBOX_LIMIT + 1);
}
