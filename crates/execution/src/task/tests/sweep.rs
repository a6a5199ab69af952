//! Every durable operation of an owner, broken at each of its steps.
//!
//! ```text
//! journal intent ─► record claim ─► effect ─► journal outcome ─► record ─► answer
//! ```
//!
//! A crash is a copy of the files as they were at that moment, opened by another manager, on the runtime as
//! it was left. Where the order of two files is the verb's own business, both orders are swept.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionManager, ExecutionSnapshotId};
use a3sbox_oci::ErrorCode;
use a3sbox_oci::oci_spec::runtime::LinuxResources;

use super::double::exited;
use super::{World, key, manager_of, process, request, soon};
use crate::LocalExecutionManager;
use crate::task::ledger::{Entry, Ledger, Verb};
use crate::task::types::{TaskCheckpoint, TaskKey};
use crate::task::{TaskError, TaskManager};

const EXEC: &str = "e";
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// The verbs in a row. A verb that is missing here does not compile.
const fn after(verb: Option<Verb>) -> Option<Verb> {
    Some(match verb {
        None => Verb::Create,
        Some(Verb::Create) => Verb::Start,
        Some(Verb::Start) => Verb::Exec,
        Some(Verb::Exec) => Verb::Signal,
        Some(Verb::Signal) => Verb::Pause,
        Some(Verb::Pause) => Verb::Resume,
        Some(Verb::Resume) => Verb::Thaw,
        Some(Verb::Thaw) => Verb::Update,
        Some(Verb::Update) => Verb::Resize,
        Some(Verb::Resize) => Verb::CloseStdin,
        Some(Verb::CloseStdin) => Verb::Checkpoint,
        Some(Verb::Checkpoint) => Verb::DeleteExec,
        Some(Verb::DeleteExec) => Verb::Delete,
        Some(Verb::Delete) => Verb::Recover,
        Some(Verb::Recover) => Verb::Snapshot,
        Some(Verb::Snapshot) => Verb::Kill,
        Some(Verb::Kill) => return None,
    })
}

fn all() -> impl Iterator<Item = Verb> {
    std::iter::successors(after(None), |verb| after(Some(*verb)))
}

/// The runtime's call that is the verb's effect.
const fn effect(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Start => "start",
        Verb::Exec => "exec",
        Verb::Signal | Verb::Kill => "kill",
        Verb::Pause | Verb::Snapshot => "pause",
        Verb::Resume | Verb::Thaw => "resume",
        Verb::Update => "update",
        Verb::Resize => "resize",
        Verb::CloseStdin => "close-stdin",
        Verb::Checkpoint => "checkpoint",
        Verb::DeleteExec => "delete-process",
        // Its kill is a signal of its own; what it found out is recorded before this.
        Verb::Delete | Verb::Recover => "delete",
    }
}

/// A world in which the verb makes sense.
async fn prepare(verb: Verb) -> (World, TaskKey) {
    let mut world = World::new();
    let key = match verb {
        Verb::Create => key("c1"),
        Verb::Start => world.created("c1").await,
        Verb::Resize => {
            let key = key("c1");
            let mut request = request(&key);
            request.stdio.terminal = true;
            soon(world.manager.provision(request)).await.unwrap();
            soon(world.manager.release(&key)).await.unwrap();
            key
        }
        Verb::Snapshot => {
            let key = key("c1");
            let mut request = request(&key);
            request.bundle = world.folder.path().join("bundle");
            std::fs::create_dir_all(request.bundle.join("rootfs")).unwrap();
            std::fs::write(request.bundle.join("rootfs/hello"), b"hi").unwrap();
            soon(world.manager.provision(request)).await.unwrap();
            soon(world.manager.release(&key)).await.unwrap();
            key
        }
        _ => world.running("c1").await,
    };
    match verb {
        Verb::Resume | Verb::Thaw => soon(TaskManager::pause(&world.manager, &key))
            .await
            .unwrap(),
        Verb::DeleteExec => {
            let pid = world.exec(&key, EXEC).await;
            world.runtime.end_pid(pid, exited(0));
            soon(world.manager.wait(&key, Some(EXEC))).await.unwrap();
        }
        Verb::Delete => {
            world.runtime.end_init(exited(7));
            soon(world.manager.wait(&key, None)).await.unwrap();
        }
        Verb::Recover => world = world.crash(),
        _ => {}
    }
    (world, key)
}

/// The verb, called as its client would.
async fn call(verb: Verb, world: &World, key: &TaskKey) -> Result<(), String> {
    let manager = &world.manager;
    let told = |error: TaskError| error.to_string();
    match verb {
        Verb::Create => manager
            .provision(request(key))
            .await
            .map(drop)
            .map_err(told),
        Verb::Start => manager.release(key).await.map(drop).map_err(told),
        Verb::Exec => {
            let io = a3sbox_oci::StdioUris::default();
            match manager.exec_add(key, EXEC, process(), io).await {
                Ok(()) | Err(TaskError::AlreadyExists(_)) => {}
                Err(error) => return Err(told(error)),
            }
            manager.exec_start(key, EXEC).await.map(drop).map_err(told)
        }
        Verb::Signal => manager
            .signal(key, None, SIGTERM, false)
            .await
            .map_err(told),
        Verb::Pause => TaskManager::pause(manager, key).await.map_err(told),
        Verb::Resume => TaskManager::resume(manager, key).await.map_err(told),
        Verb::Thaw => {
            world.runtime.end_init(exited(7));
            manager.wait(key, None).await.map(drop).map_err(told)
        }
        Verb::Update => manager
            .update(key, LinuxResources::default())
            .await
            .map_err(told),
        Verb::Resize => manager.resize(key, None, 80, 24).await.map_err(told),
        Verb::CloseStdin => manager.close_stdin(key, None).await.map_err(told),
        Verb::Checkpoint => manager.checkpoint(key, image()).await.map_err(told),
        Verb::DeleteExec => manager
            .delete(key, Some(EXEC))
            .await
            .map(drop)
            .map_err(told),
        Verb::Delete => manager.delete(key, None).await.map(drop).map_err(told),
        Verb::Recover => manager
            .task_recover_and_delete(key)
            .await
            .map(drop)
            .map_err(told),
        Verb::Snapshot => {
            let (id, generation) = lease(world, key);
            let snapshot = ExecutionSnapshotId::new("snap-1").unwrap();
            let taken = manager.create_filesystem_snapshot(&id, generation, &snapshot);
            taken.await.map(drop).map_err(|error| error.to_string())
        }
        Verb::Kill => {
            let (id, generation) = lease(world, key);
            let killed = ExecutionManager::kill(manager, &id, generation).await;
            killed.map(drop).map_err(|error| error.to_string())
        }
    }
}

fn image() -> TaskCheckpoint {
    TaskCheckpoint {
        image_path: "/image".into(),
        work_path: None,
        exit: false,
        open_tcp: false,
        external_unix_sockets: false,
        terminal: false,
        file_locks: false,
        empty_namespaces: Vec::new(),
        cgroups_mode: None,
    }
}

fn lease(world: &World, key: &TaskKey) -> (ExecutionId, ExecutionGeneration) {
    let record = world.stored(key).unwrap();
    let generation = record.managed_execution.unwrap().generation;
    (ExecutionId::new(record.id).unwrap(), generation)
}

/// Record and journal of the container, as files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Disk {
    record: Option<Vec<u8>>,
    journal: Option<Vec<u8>>,
}

fn place(folder: &Path) -> PathBuf {
    folder.join("ns/c1")
}

impl Disk {
    fn of(world: &World) -> Self {
        let read = |name| std::fs::read(place(world.folder.path()).join(name)).ok();
        Self {
            record: read("record.json"),
            journal: read("journal.log"),
        }
    }

    /// The folder as a crash leaves it: with a temporary of the write that was under way.
    fn lay_out(&self, folder: &Path) {
        let place = place(folder);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join(".a3sbox-tmp-1-1-1"), b"{\"half").unwrap();
        for (name, bytes) in [
            ("record.json", &self.record),
            ("journal.log", &self.journal),
        ] {
            if let Some(bytes) = bytes {
                std::fs::write(place.join(name), bytes).unwrap();
            }
        }
    }
}

/// Where the owner dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Intended,
    Claimed,
    BeforeTheEffect,
    AfterTheEffect,
    OutcomeJournaled,
    OutcomeRecorded,
    Settled,
}

impl Point {
    const ALL: [Self; 7] = [
        Self::Intended,
        Self::Claimed,
        Self::BeforeTheEffect,
        Self::AfterTheEffect,
        Self::OutcomeJournaled,
        Self::OutcomeRecorded,
        Self::Settled,
    ];

    const fn has_effect(self) -> bool {
        !matches!(self, Self::Intended | Self::Claimed | Self::BeforeTheEffect)
    }

    fn disk(self, before: &Disk, door: &Disk, after: &Disk) -> Disk {
        let (record, journal) = match self {
            Self::Intended => (before, door),
            Self::Claimed => (door, before),
            Self::BeforeTheEffect | Self::AfterTheEffect => (door, door),
            Self::OutcomeJournaled => (door, after),
            Self::OutcomeRecorded => (after, door),
            Self::Settled => (after, after),
        };
        Disk {
            record: record.record.clone(),
            journal: journal.journal.clone(),
        }
    }
}

/// Calls by name, without their arguments.
fn counts(log: &[String]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in log.iter().filter(|line| !line.contains(' ')) {
        *counts.entry(line.clone()).or_default() += 1;
    }
    counts
}

fn count(world: &World, call: &str) -> usize {
    counts(&world.runtime.log()).get(call).copied().unwrap_or(0)
}

/// What a recovery may say of the exit; the double has seen every end that is one.
fn exits(verb: Verb, point: Point) -> &'static [Option<u32>] {
    match (verb, point.has_effect()) {
        (Verb::Create, false) => &[None],
        (Verb::Thaw | Verb::Delete, _) => &[Some(7)],
        (Verb::Signal, true) => &[Some(143)],
        _ => &[Some(137)],
    }
}

#[tokio::test]
async fn a_crash_at_any_step_of_any_verb_is_taken_over_with_one_effect() {
    let mut rows = String::new();
    for verb in all() {
        for point in Point::ALL {
            // Reserved before anything else, so that there is nothing without a record.
            if (verb, point) == (Verb::Create, Point::Intended) {
                continue;
            }
            let outcome = crash_and_recover(verb, point).await;
            writeln!(rows, "{}\tcrash\t{point:?}\t{outcome}\t1", verb.label()).unwrap();
        }
    }
    keep_rows("manager-crash", &rows);
}

async fn crash_and_recover(verb: Verb, point: Point) -> &'static str {
    let case = format!("{verb:?} {point:?}");
    println!("{case}");
    let call_name = effect(verb);
    let (world, key) = prepare(verb).await;
    let before = Disk::of(&world);
    let earlier = count(&world, call_name);
    world.runtime.hold(call_name);
    let at_the_door = async {
        world.runtime.entered(call_name, earlier + 1).await;
        let door = Disk::of(&world);
        if point.has_effect() {
            world.runtime.let_go(call_name);
        } else {
            world.runtime.abandon(call_name);
        }
        door
    };
    let door;
    let after;
    if point.has_effect() {
        let (result, files) =
            soon(async { tokio::join!(call(verb, &world, &key), at_the_door) }).await;
        result.unwrap_or_else(|error| panic!("{case}: {error}"));
        (door, after) = (files, Disk::of(&world));
    } else {
        let called = call(verb, &world, &key);
        tokio::pin!(called, at_the_door);
        let mut is_answered = false;
        door = soon(async {
            loop {
                tokio::select! {
                    door = &mut at_the_door => break door,
                    result = &mut called, if !is_answered => {
                        // Nobody waits for a thaw.
                        assert_eq!(verb, Verb::Thaw, "{case}: it ended: {result:?}");
                        is_answered = true;
                    }
                }
            }
        })
        .await;
        after = Disk::default();
    }
    assert_ne!(before.journal, door.journal, "{case}: no intent");
    let disk = point.disk(&before, &door, &after);

    let folder = tempfile::tempdir().unwrap();
    disk.lay_out(folder.path());
    let socket = world.folder.path().join("runtime.sock");
    let next = manager_of(&socket, folder.path(), &world.runtime, &world.provider);
    let log = world.runtime.log().len();
    let recovered = soon(next.task_recover_and_delete(&key)).await;
    let outcome = match (&disk.record, recovered) {
        (Some(_), Ok(deleted)) => {
            let status = deleted.exit.as_ref().and_then(|exit| exit.status);
            assert!(exits(verb, point).contains(&status), "{case}: {status:?}");
            match status {
                None => "all gone; no exit invented",
                Some(137) => "all gone; exit 137",
                Some(_) => "all gone; the exit that was seen",
            }
        }
        (None, Err(TaskError::NotFound(_))) => "all gone; there was no record",
        (_, other) => panic!("{case}: {other:?}"),
    };
    let calls = counts(&world.runtime.log()[log..]);
    for (name, times) in &calls {
        let is_look = ["state", "wait", "wait-process", "events"].contains(&name.as_str());
        // A frozen container is thawed behind the kill.
        let is_end = ["kill", "resume", "delete", "delete-process"].contains(&name.as_str());
        assert!(is_look || (is_end && *times == 1), "{case}: {calls:?}");
    }
    assert_nothing_left(&world, &next, folder.path(), &case);
    let again = soon(next.task_recover_and_delete(&key)).await;
    assert!(
        matches!(again, Err(TaskError::NotFound(_))),
        "{case}: {again:?}"
    );
    assert_nothing_left(&world, &next, folder.path(), &case);
    outcome
}

fn assert_nothing_left(world: &World, manager: &LocalExecutionManager, folder: &Path, case: &str) {
    let left: Vec<_> = std::fs::read_dir(folder.join("ns"))
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    assert!(left.is_empty(), "{case}: {left:?}");
    assert_eq!(world.runtime.containers(), 0, "{case}");
    assert_eq!(world.provider.prepared(), 0, "{case}");
    assert_eq!(manager.live(), 0, "{case}");
}

/// What is done to a verb whose owner lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fail,
    Repeat,
    FailThenRepeatUndo,
}

#[tokio::test]
async fn a_failed_or_repeated_verb_is_settled_and_can_be_taken_away() {
    let mut rows = String::new();
    for verb in all() {
        for fault in [Fault::Fail, Fault::Repeat, Fault::FailThenRepeatUndo] {
            let outcome = live(verb, fault).await;
            writeln!(rows, "{}\t{fault:?}\teffect\t{outcome}\t1", verb.label()).unwrap();
        }
    }
    keep_rows("manager-live", &rows);
}

async fn live(verb: Verb, fault: Fault) -> &'static str {
    let case = format!("{verb:?} {fault:?}");
    println!("{case}");
    let call_name = effect(verb);
    let (world, key) = prepare(verb).await;
    let earlier = count(&world, call_name);
    let is_failing = fault != Fault::Repeat;
    if is_failing {
        world
            .runtime
            .fail(call_name, ErrorCode::Internal, "injected");
    }
    let first = soon(call(verb, &world, &key)).await;
    // Nobody waits for a thaw; for everything else the reason arrives.
    if is_failing && verb != Verb::Thaw {
        let text = first.clone().expect_err(&case);
        assert!(text.contains("injected"), "{case}: {text}");
    } else {
        first.unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    soon(world.runtime.entered(call_name, earlier + 1)).await;
    let outcome = if fault == Fault::Repeat {
        let second = soon(call(verb, &world, &key)).await;
        let happens_once = match verb {
            Verb::Create
            | Verb::Start
            | Verb::Exec
            | Verb::Pause
            | Verb::Resume
            | Verb::Thaw
            | Verb::DeleteExec
            | Verb::Delete
            | Verb::Recover
            | Verb::Snapshot
            | Verb::Kill => true,
            // Each call is an operation of its own.
            Verb::Signal | Verb::Update | Verb::Resize | Verb::CloseStdin | Verb::Checkpoint => {
                false
            }
        };
        if happens_once {
            assert_eq!(count(&world, call_name), earlier + 1, "{case}: {second:?}");
        }
        if second.is_ok() {
            "answered alike"
        } else {
            "refused; one effect"
        }
    } else {
        "told why"
    };
    assert_settled(&world, &key, &case).await;
    take_away(&world, &key, fault, &case).await;
    assert_nothing_left(&world, &world.manager, world.folder.path(), &case);
    outcome
}

/// Each intent has its outcome. The owner journals it behind its answer.
async fn assert_settled(world: &World, key: &TaskKey, case: &str) {
    let path = place(world.folder.path()).join("journal.log");
    let open = || -> Vec<Entry> {
        let limits = a3sbox_durable::journal::JournalLimits::DEFAULT;
        let lines = a3sbox_durable::journal::read(&path, limits).unwrap_or_default();
        let entries: Vec<Entry> = lines
            .unwrap_or_default()
            .iter()
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let is_settled = |id: &a3sbox_core::OperationId| {
            entries
                .iter()
                .any(|entry| matches!(entry, Entry::Outcome { operation, .. } if operation == id))
        };
        entries
            .iter()
            .filter(
                |entry| matches!(entry, Entry::Intent { operation, .. } if !is_settled(operation)),
            )
            .cloned()
            .collect()
    };
    // A recovery that failed is an operation that the next recovery finds unsettled, by design.
    if world.manager.live() == 0 {
        return;
    }
    let settled = soon(async {
        while !open().is_empty() {
            // Whatever asks the owner is answered behind what it has to write first.
            let _ = world.manager.state(key, None).await;
            tokio::task::yield_now().await;
        }
    });
    settled.await;
    assert!(open().is_empty(), "{case}");
}

/// The container is ended by a client; with a failing undo, the delete fails once more.
async fn take_away(world: &World, key: &TaskKey, fault: Fault, case: &str) {
    if world.manager.live() == 0 {
        // Deleted, never created, or the work of a recovery that can be repeated.
        if world.stored(key).is_some() {
            if fault == Fault::FailThenRepeatUndo {
                world
                    .runtime
                    .fail("delete", ErrorCode::Internal, "injected");
                soon(world.manager.task_recover_and_delete(key))
                    .await
                    .expect_err(case);
            }
            soon(world.manager.task_recover_and_delete(key))
                .await
                .expect(case);
        }
        return;
    }
    match soon(world.manager.signal(key, None, SIGKILL, true)).await {
        Ok(()) | Err(TaskError::NotFound(_)) => {}
        Err(error) => panic!("{case}: {error}"),
    }
    soon(world.manager.wait(key, None)).await.expect(case);
    if fault == Fault::FailThenRepeatUndo {
        world
            .runtime
            .fail("delete", ErrorCode::Internal, "injected");
        let refused = soon(world.manager.delete(key, None)).await.expect_err(case);
        assert!(
            refused.to_string().contains("injected"),
            "{case}: {refused}"
        );
    }
    soon(world.manager.delete(key, None)).await.expect(case);
}

/// Every how many bytes a journal is torn: at each in a full run (`A3SBOX_TEST_SCALE=1`).
fn stride() -> usize {
    const NORMAL_STRIDE: usize = 7;
    match std::env::var("A3SBOX_TEST_SCALE").as_deref() {
        Ok("1") => 1,
        _ => NORMAL_STRIDE,
    }
}

/// For `hack/crash-matrix`.
fn keep_rows(name: &str, rows: &str) {
    if let Some(folder) = std::env::var_os("A3SBOX_CRASH_ROWS") {
        std::fs::write(PathBuf::from(folder).join(format!("{name}.rows")), rows).unwrap();
    }
}

#[tokio::test]
async fn a_journal_torn_at_any_byte_of_its_last_entry_is_the_one_before_or_after_it() {
    let mut rows = String::new();
    for verb in all() {
        let (world, key) = prepare(verb).await;
        world.runtime.hold(effect(verb));
        // The last entry is the intent, as in a crash that tore it.
        let earlier = count(&world, effect(verb));
        let (called, at_the_door) = (
            call(verb, &world, &key),
            world.runtime.entered(effect(verb), earlier + 1),
        );
        tokio::pin!(called, at_the_door);
        let mut is_answered = false;
        soon(async {
            loop {
                tokio::select! {
                    () = &mut at_the_door => break,
                    _ = &mut called, if !is_answered => is_answered = true,
                }
            }
        })
        .await;
        let disk = Disk::of(&world);
        world.runtime.abandon(effect(verb));
        let whole = disk.journal.clone().unwrap();
        let last = whole[..whole.len() - 1]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        for length in (last..whole.len()).step_by(stride()).chain([whole.len()]) {
            let folder = tempfile::tempdir().unwrap();
            let torn = Disk {
                record: disk.record.clone(),
                journal: Some(whole[..length].to_vec()),
            };
            torn.lay_out(folder.path());
            let store = crate::ManagedExecutionStore::for_containers(folder.path().join("ns"));
            let record = store.find_container(&key).unwrap().unwrap();
            // It reads every line as an entry, and cuts what is none.
            drop(Ledger::open(store, record).unwrap());
            let repaired = std::fs::read(place(folder.path()).join("journal.log")).unwrap();
            let expected = if length == whole.len() {
                &whole[..]
            } else {
                &whole[..last]
            };
            assert_eq!(repaired, expected, "{verb:?} at {length}");
        }
        // And the torn one is recovered from.
        let folder = tempfile::tempdir().unwrap();
        let torn = Disk {
            record: disk.record,
            journal: Some(whole[..usize::midpoint(last, whole.len())].to_vec()),
        };
        torn.lay_out(folder.path());
        let socket = world.folder.path().join("runtime.sock");
        let next = manager_of(&socket, folder.path(), &world.runtime, &world.provider);
        soon(next.task_recover_and_delete(&key)).await.unwrap();
        assert_nothing_left(&world, &next, folder.path(), &format!("{verb:?} torn"));
        let bytes = (whole.len() - last).div_ceil(stride()) + 1;
        writeln!(
            rows,
            "{}\ttorn\tintent, at every byte\tthe state before or after it\t{bytes}",
            verb.label()
        )
        .unwrap();
    }
    keep_rows("manager-torn", &rows);
}
