//! Eight clients on shared executions, checked against a sequential model.
//!
//! Each execution has a manager and a backend of its own over one store; the clients are threads. What they
//! saw is put in the order of the generations, and that sequence must be one that a single client could
//! have made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManager, ExecutionManagerError,
    ExecutionManagerResult, ExecutionResourceUpdate, ExecutionSnapshotId, KillOutcome,
    RestartExecutionOptions,
};

use super::open;
use super::probe::{Probe, Runtime};
use crate::LocalExecutionManager;
use crate::ManagedExecutionState;
use crate::store::test_fixture::{operation, request};
use crate::task::tests::races::{Dice, on_threads, scaled};

const CLIENTS: u64 = 8;
const VERBS: u64 = 10_000;
const SLOTS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Won {
    Pause,
    Resume,
    Restart,
}

/// What the clients saw of one execution.
#[derive(Debug, Default)]
struct Seen {
    /// The verb that led to a generation.
    won: BTreeMap<u64, Vec<(Won, String)>>,
    updates: BTreeMap<String, Vec<u64>>,
    killed: u64,
    snapshots: u64,
    conflicts: u64,
    overtaken: u64,
}

struct Slot {
    probe: Arc<Probe>,
    manager: LocalExecutionManager,
    id: ExecutionId,
    seen: Mutex<Seen>,
}

#[tokio::test]
async fn clients_that_race_leave_what_one_client_could_have_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut slots = Vec::new();
    for number in 0..SLOTS {
        let probe = Arc::new(Probe::default());
        let manager = open(&dir, &probe);
        let op = operation(&format!("create-{number}"));
        let lease = manager
            .create_and_start(request("alpine:3.20"), &op)
            .await
            .unwrap();
        let rootfs = dir
            .path()
            .join("home/boxes")
            .join(lease.execution_id.as_str())
            .join("rootfs");
        std::fs::create_dir_all(&rootfs).unwrap();
        std::fs::write(rootfs.join("hello"), b"hi").unwrap();
        slots.push(Slot {
            probe,
            manager,
            id: lease.execution_id,
            seen: Mutex::default(),
        });
    }
    let slots = Arc::new(slots);
    let verbs = scaled(VERBS) / CLIENTS;
    let shared = Arc::clone(&slots);
    on_threads(CLIENTS, move |number| {
        let slots = Arc::clone(&shared);
        Box::pin(async move {
            let mut dice = Dice::new(number + 1);
            for step in 0..verbs {
                let slot = &slots[usize::try_from(dice.roll(SLOTS)).unwrap()];
                act(slot, &mut dice, number, step).await;
            }
        })
    })
    .await;
    for slot in slots.iter() {
        check(slot).await;
    }
}

async fn act(slot: &Slot, dice: &mut Dice, client: u64, step: u64) {
    let (manager, id) = (&slot.manager, &slot.id);
    let record = manager.get(id).await.unwrap().unwrap();
    let current = record.generation().unwrap();
    let asked = match dice.roll(16) {
        0 => ExecutionGeneration::new(current.get() + 1).unwrap(),
        1 if current.get() > 1 => ExecutionGeneration::new(current.get() - 1).unwrap(),
        _ => current,
    };
    // Neighbours share operation ids: of the same content for a restart, of another for an update.
    let name = format!("{}-{step}", client / 2);
    match dice.roll(100) {
        0..27 => {
            let paused = manager.pause(id, asked, true).await;
            slot.won(
                Won::Pause,
                &name,
                asked,
                paused.map(|lease| lease.generation),
            );
        }
        27..54 => {
            let resumed = manager.resume(id, asked).await;
            slot.won(
                Won::Resume,
                &name,
                asked,
                resumed.map(|lease| lease.generation),
            );
        }
        54..74 => {
            let options = RestartExecutionOptions::default();
            let op = operation(&format!("restart-{name}"));
            let restarted = manager.restart_with_options(id, asked, &op, options).await;
            slot.restarted(&name, restarted.map(|lease| lease.generation));
        }
        74..90 => {
            let update = ExecutionResourceUpdate {
                pids_limit: Some(100 + client),
                ..ExecutionResourceUpdate::default()
            };
            let op = operation(&format!("update-{name}"));
            let updated = manager.update_resources(id, asked, &op, update).await;
            if slot.sort(updated).is_some() {
                let mut seen = slot.seen.lock().unwrap();
                seen.updates.entry(name).or_default().push(100 + client);
            }
        }
        90..96 => {
            let snapshot = ExecutionSnapshotId::new(format!("s-{client}-{step}")).unwrap();
            let taken = manager
                .create_filesystem_snapshot(id, asked, &snapshot)
                .await;
            if slot.sort(taken).is_some() {
                slot.seen.lock().unwrap().snapshots += 1;
            }
        }
        _ => {
            if slot.sort(manager.kill(id, asked).await) == Some(KillOutcome::Killed) {
                slot.seen.lock().unwrap().killed += 1;
            }
        }
    }
}

impl Slot {
    fn won(
        &self,
        verb: Won,
        name: &str,
        asked: ExecutionGeneration,
        result: ExecutionManagerResult<ExecutionGeneration>,
    ) {
        if let Some(generation) = self.sort(result) {
            assert_eq!(generation.get(), asked.get() + 1, "a winner moves by one");
            self.add(verb, name, generation);
        }
    }

    /// A restart's identity comes before its fence: a repeat of it gets the first one's lease.
    fn restarted(&self, name: &str, result: ExecutionManagerResult<ExecutionGeneration>) {
        if let Some(generation) = self.sort(result) {
            self.add(Won::Restart, name, generation);
        }
    }

    fn add(&self, verb: Won, name: &str, generation: ExecutionGeneration) {
        let mut seen = self.seen.lock().unwrap();
        let won = seen.won.entry(generation.get()).or_default();
        let win = (verb, name.to_owned());
        let is_replay = verb == Won::Restart && won.contains(&win);
        if !is_replay {
            won.push(win);
        }
    }

    /// The value of a winner. A loser lost the claim, which is a conflict, or was overtaken by a kill or
    /// restart after it had it.
    #[track_caller]
    fn sort<T>(&self, result: ExecutionManagerResult<T>) -> Option<T> {
        let mut seen = self.seen.lock().unwrap();
        match result {
            Ok(value) => Some(value),
            Err(ExecutionManagerError::Conflict { .. }) => {
                seen.conflicts += 1;
                None
            }
            Err(ExecutionManagerError::Unavailable(_)) => {
                seen.overtaken += 1;
                None
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

async fn check(slot: &Slot) {
    let record = slot.manager.get(&slot.id).await.unwrap().unwrap();
    let metadata = record.metadata().unwrap();
    let seen = slot.seen.lock().unwrap();
    let last = metadata.generation.get();
    // Every generation has one winner. One without an answer belongs to a restart that a kill overtook
    // between its stop and its start: the stop had its effect and its generation.
    let mut is_paused = false;
    for generation in 2..=last {
        let winners = seen.won.get(&generation).map_or(&[][..], Vec::as_slice);
        assert!(winners.len() <= 1, "generation {generation}: {winners:?}");
        match winners.first().map(|(verb, _)| *verb) {
            Some(Won::Pause) => {
                assert!(!is_paused, "generation {generation}: paused twice");
                is_paused = true;
            }
            Some(Won::Resume) => {
                assert!(is_paused, "generation {generation}: resumed what ran");
                is_paused = false;
            }
            Some(Won::Restart) | None => is_paused = false,
        }
    }
    assert!(seen.won.keys().all(|generation| *generation <= last));
    // The last update that took effect is one that its client was told of; the record remembers that one.
    if let Some(done) = &metadata.last_resource_update {
        let name = done.operation_id.as_str().trim_start_matches("update-");
        let content = done.update.pids_limit.unwrap();
        assert!(
            seen.updates
                .get(name)
                .is_some_and(|told| told.contains(&content)),
            "{done:?} was told to nobody"
        );
        assert_eq!(
            record.resource_limits.pids_limit,
            Some(content),
            "a lost update"
        );
    }
    let state = record.state().unwrap();
    assert!(
        !state.is_transitional(),
        "a claim without an owner stays: {state}"
    );
    let runs = match state {
        ManagedExecutionState::Running => {
            assert!(!is_paused);
            slot.probe.runtime() == Runtime::Running
        }
        ManagedExecutionState::Paused => {
            assert!(is_paused);
            slot.probe.runtime() == Runtime::Paused
        }
        _ => slot.probe.runtime() == Runtime::Absent,
    };
    assert!(
        runs,
        "{state}, and the runtime is {:?}",
        slot.probe.runtime()
    );
    assert!(seen.conflicts > 0 && !seen.won.is_empty());
}
