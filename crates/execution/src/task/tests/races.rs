//! Eight clients of both faces on shared containers, against a sequential model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManager, ExecutionManagerError,
    ExecutionManagerResult, ExecutionResourceUpdate, OperationId,
};
use a3sbox_oci::oci_spec::runtime::LinuxResources;

use super::{World, key, request, soon};
use crate::task::{TaskError, TaskKey, TaskManager};
use crate::{LocalExecutionManager, ManagedExecutionState};

const CLIENTS: u64 = 8;
const CONTAINERS: usize = 4;
const VERBS: u64 = 10_000;

/// The suite's scale; the whole count is run by hand.
pub(crate) fn scaled(count: u64) -> u64 {
    let scale = std::env::var("A3SBOX_TEST_SCALE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    count / u64::max(scale, 1)
}

/// A small generator, so that a run can be told from its seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What the clients saw of one execution.
#[derive(Debug, Default)]
struct Seen {
    /// Generations that a program's pause or resume led to.
    fenced: Vec<u64>,
    /// Pauses and resumes of containerd that succeeded.
    task: u64,
    last: Option<u64>,
}

type Ledger = Arc<Mutex<BTreeMap<String, Seen>>>;

/// containerd's verbs name a container, not an execution: while one of them is counted, nobody puts
/// another execution under the name.
type Names = Arc<tokio::sync::Semaphore>;
const ALL_CLIENTS: u32 = 8;

/// The runtime that drives the owners.
static OWNERS: std::sync::OnceLock<tokio::runtime::Handle> = std::sync::OnceLock::new();

/// Runs `client` on threads of its own while this runtime drives the owners.
pub(crate) async fn on_threads(
    clients: u64,
    client: impl Fn(u64) -> client::Work + Send + Sync + Clone + 'static,
) {
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let client = client.clone();
            std::thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap()
                    .block_on(client(number));
            })
        })
        .collect();
    tokio::task::spawn_blocking(move || {
        for thread in threads {
            thread.join().unwrap();
        }
    })
    .await
    .unwrap();
}

mod client {
    use std::pin::Pin;

    pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;
}

#[tokio::test]
async fn both_faces_race_and_every_generation_has_one_winner() {
    OWNERS.set(tokio::runtime::Handle::current()).unwrap();
    let mut world = World::new();
    let mut events = std::mem::replace(&mut world.events, tokio::sync::mpsc::channel(1).1);
    let drain = tokio::spawn(async move { while events.recv().await.is_some() {} });
    let keys: Vec<TaskKey> = (0..CONTAINERS).map(|n| key(&format!("c{n}"))).collect();
    for key in &keys {
        soon(world.manager.provision(request(key))).await.unwrap();
        soon(world.manager.release(key)).await.unwrap();
    }
    let ledger = Ledger::default();
    let names: Names = Arc::new(tokio::sync::Semaphore::new(
        usize::try_from(CLIENTS).unwrap(),
    ));
    let verbs = scaled(VERBS) / CLIENTS;
    let (manager, shared, tally) = (world.manager.clone(), keys.clone(), Arc::clone(&ledger));
    on_threads(CLIENTS, move |number| {
        let (manager, keys, ledger) = (manager.clone(), shared.clone(), Arc::clone(&tally));
        let names = Arc::clone(&names);
        Box::pin(async move {
            let mut dice = Dice::new(number + 1);
            for step in 0..verbs {
                let key = &keys[usize::try_from(dice.roll(4)).unwrap()];
                act(&manager, key, &mut dice, (&ledger, &names), (number, step)).await;
            }
        })
    })
    .await;

    for key in &keys {
        let record = world.stored(key).unwrap();
        let managed = record.managed_execution.unwrap();
        let mut ledger = ledger.lock().unwrap();
        ledger.entry(record.id).or_default().last = Some(managed.generation.get());
    }
    let ledger = ledger.lock().unwrap();
    let mut wins = 0;
    for (id, seen) in ledger.iter() {
        let distinct: BTreeSet<_> = seen.fenced.iter().collect();
        assert_eq!(
            distinct.len(),
            seen.fenced.len(),
            "{id}: a generation has two winners"
        );
        let won = u64::try_from(seen.fenced.len()).unwrap() + seen.task;
        wins += won;
        assert_eq!(
            seen.last,
            Some(1 + won),
            "{id}: an update was lost or invented"
        );
    }
    assert!(wins > 0);
    drain.abort();
}

async fn act(
    manager: &LocalExecutionManager,
    key: &TaskKey,
    dice: &mut Dice,
    (ledger, names): (&Ledger, &Names),
    (client, step): (u64, u64),
) {
    // Between a delete and the next create there is nothing to act on.
    let Ok(Some(record)) = manager.store.find_container(key) else {
        return;
    };
    let id = ExecutionId::new(record.id.clone()).unwrap();
    let current = record.managed_execution.as_ref().unwrap().generation;
    // One call in eight was decided on a generation that is long gone, or is yet to come.
    let asked = match dice.roll(16) {
        0 => ExecutionGeneration::new(current.get() + 1).unwrap(),
        1 if current.get() > 1 => ExecutionGeneration::new(current.get() - 1).unwrap(),
        _ => current,
    };
    match dice.roll(100) {
        0..25 => {
            let paused = soon(ExecutionManager::pause(manager, &id, asked, true)).await;
            fenced(ledger, &id, asked, paused.map(|lease| lease.generation));
        }
        25..50 => {
            let resumed = soon(ExecutionManager::resume(manager, &id, asked)).await;
            fenced(ledger, &id, asked, resumed.map(|lease| lease.generation));
        }
        roll @ 50..74 => {
            let _counted = names.acquire().await.unwrap();
            let done = if roll < 62 {
                soon(TaskManager::pause(manager, key)).await
            } else {
                soon(TaskManager::resume(manager, key)).await
            };
            task(ledger, done, key, manager);
        }
        74..86 => {
            let update = ExecutionResourceUpdate {
                pids_limit: Some(10 + step),
                ..ExecutionResourceUpdate::default()
            };
            // Two clients share an operation id, with contents of their own.
            let operation = OperationId::new(format!("up-{}-{step}", client / 2)).unwrap();
            let updated = soon(manager.update_resources(&id, asked, &operation, update)).await;
            losers_are_conflicts(updated.map(|_| ()));
        }
        86..98 => {
            let _ = soon(manager.update(key, LinuxResources::default())).await;
        }
        _ => replace(manager, key, &id, asked, (ledger, names)).await,
    }
}

/// Kill, delete, create anew: the next execution under the same container id.
async fn replace(
    manager: &LocalExecutionManager,
    key: &TaskKey,
    id: &ExecutionId,
    asked: ExecutionGeneration,
    (ledger, names): (&Ledger, &Names),
) {
    if losers_are_conflicts(
        soon(ExecutionManager::kill(manager, id, asked))
            .await
            .map(|_| ()),
    ) {
        let _alone = names.acquire_many(ALL_CLIENTS).await.unwrap();
        let Ok(Some(record)) = manager.store.find_container(key) else {
            return;
        };
        if record.id != id.as_str() || record.state().unwrap() != ManagedExecutionState::Stopped {
            return;
        }
        let last = record.managed_execution.unwrap().generation.get();
        ledger.lock().unwrap().entry(record.id).or_default().last = Some(last);
        soon(manager.delete(key, None)).await.unwrap();
        // The owner lives in the runtime that creates it, which must outlive this client.
        let (creator, wanted) = (manager.clone(), request(key));
        let created = OWNERS
            .get()
            .unwrap()
            .spawn(async move { creator.provision(wanted).await });
        soon(created).await.unwrap().unwrap();
        soon(manager.release(key)).await.unwrap();
    }
}

fn fenced(
    ledger: &Ledger,
    id: &ExecutionId,
    asked: ExecutionGeneration,
    result: ExecutionManagerResult<ExecutionGeneration>,
) {
    match result {
        Ok(generation) => {
            assert_eq!(generation.get(), asked.get() + 1, "a winner moves by one");
            let mut ledger = ledger.lock().unwrap();
            let seen = ledger.entry(id.to_string()).or_default();
            seen.fenced.push(generation.get());
        }
        Err(error) => {
            losers_are_conflicts(Err(error));
        }
    }
}

fn task(
    ledger: &Ledger,
    result: Result<(), TaskError>,
    key: &TaskKey,
    manager: &LocalExecutionManager,
) {
    match result {
        Ok(()) => {
            let now = manager.store.find_container(key).unwrap().unwrap();
            ledger.lock().unwrap().entry(now.id).or_default().task += 1;
        }
        Err(TaskError::WrongState(_) | TaskError::NotFound(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
}

/// True for a success. A loser lost to another verb, or to the end of the execution.
#[track_caller]
fn losers_are_conflicts(result: ExecutionManagerResult<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(ExecutionManagerError::Conflict { .. } | ExecutionManagerError::NotFound(_)) => false,
        // Its owner came or went while it was asked.
        Err(ExecutionManagerError::Unavailable(text))
            if text.contains("is being created") || text.contains("lost its owner") =>
        {
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}
