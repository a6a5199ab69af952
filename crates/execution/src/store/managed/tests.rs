use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use super::super::test_fixture::{
    execution, key, operation, record, record_of, request, task_record,
};
use super::*;
use crate::store::{BoxStateStore, RuntimeUpdate};

use ManagedExecutionState as State;

const FIRST: ExecutionGeneration = ExecutionGeneration::INITIAL;

mod faults;

struct Fixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
    store: ManagedExecutionStore,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("boxes.json");
    Fixture {
        store: ManagedExecutionStore::new(&path),
        path,
        _dir: dir,
    }
}

fn containers() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k8s.io");
    Fixture {
        store: ManagedExecutionStore::for_containers(&path),
        path,
        _dir: dir,
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn start(store: &ManagedExecutionStore, id: &str) -> StoreResult<BoxRecord> {
    store.transition(
        &execution(id),
        FIRST,
        State::Created,
        State::Starting,
        RuntimeUpdate::None,
    )
}

#[test]
fn a_reservation_is_read_back_and_reading_creates_nothing() {
    let f = fixture();
    assert!(f.store.get(&execution("one")).unwrap().is_none());
    assert!(f.store.find_operation(&operation("op")).unwrap().is_none());
    assert!(!f.path.exists());
    let reserved = f.store.reserve(record("one", "op")).unwrap();
    assert!(matches!(reserved, ManagedExecutionReservation::Reserved(_)));
    let again = ManagedExecutionStore::new(&f.path);
    assert_eq!(again.get(&execution("one")).unwrap().unwrap().id, "one");
    assert_eq!(
        again.find_operation(&operation("op")).unwrap().unwrap().id,
        "one"
    );
    assert_eq!(
        names(&f.path.join("one")),
        BTreeSet::from([RECORD_FILE.to_owned(), LOCK_FILE.to_owned()])
    );
    let mode = std::fs::metadata(f.path.join("one")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_repeated_operation_gives_the_same_execution_or_a_conflict() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let before = std::fs::read(f.path.join("one").join(RECORD_FILE)).unwrap();
    let repeated = f.store.reserve(record("two", "op")).unwrap();
    assert!(
        matches!(&repeated, ManagedExecutionReservation::Existing(existing) if existing.id == "one")
    );
    let other = f.store.reserve(record_of("three", "op", request("other")));
    assert!(
        matches!(&other, Err(StoreError::Conflict { execution_id, .. }) if *execution_id == execution("one")),
        "{other:?}"
    );
    let after = std::fs::read(f.path.join("one").join(RECORD_FILE)).unwrap();
    assert_eq!(before, after);
    assert_eq!(f.store.list().unwrap().len(), 1);
}

#[test]
fn intent_does_not_depend_on_the_order_of_maps() {
    let mut wanted = request("alpine");
    for index in 0..20 {
        let option = (format!("key{index}"), "value".to_owned());
        wanted.policy.log_config.options.extend([option]);
    }
    let digest = |request| {
        let record = record_of("x", "op", request);
        record.managed_execution.unwrap().creation_intent_digest
    };
    let mut rebuilt = wanted.clone();
    rebuilt.policy.log_config.options = wanted
        .policy
        .log_config
        .options
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert_eq!(digest(wanted), digest(rebuilt));
}

#[test]
fn a_claim_that_never_got_its_record_is_taken_over() {
    let f = fixture();
    f.store.reserve(record("lost", "op")).unwrap();
    std::fs::remove_file(f.path.join("lost").join(RECORD_FILE)).unwrap();
    let reserved = f.store.reserve(record("next", "op")).unwrap();
    assert!(matches!(reserved, ManagedExecutionReservation::Reserved(_)));
    let found = f.store.find_operation(&operation("op")).unwrap().unwrap();
    assert_eq!(found.id, "next");
}

#[test]
fn leftover_temporaries_are_swept_and_never_read() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let leftover = f.path.join("one/.a3sbox-tmp-1-0-ff");
    std::fs::write(&leftover, b"{half").unwrap();
    let reopened = ManagedExecutionStore::new(&f.path);
    assert!(reopened.get(&execution("one")).unwrap().is_some());
    start(&reopened, "one").unwrap();
    assert!(!leftover.exists());
}

#[test]
fn an_unknown_schema_is_refused_whatever_its_shape() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let path = f.path.join("one").join(RECORD_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let newer = text.replacen("\"schema_version\":2", "\"schema_version\":3", 1);
    for contents in [newer.as_str(), r#"{"schema_version":9,"other":true}"#] {
        std::fs::write(&path, contents).unwrap();
        let error = f.store.get(&execution("one")).unwrap_err();
        assert!(matches!(error, StoreError::UnknownSchema { .. }), "{error}");
        let error = start(&f.store, "one").unwrap_err();
        assert!(matches!(error, StoreError::UnknownSchema { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), contents);
    }
    for contents in [
        "",
        "{}",
        "[]",
        r#"{"schema_version":1}"#,
        &text[..text.len() - 2],
    ] {
        std::fs::write(&path, contents).unwrap();
        let error = f.store.get(&execution("one")).unwrap_err();
        assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    }
}

#[test]
fn a_record_in_the_wrong_folder_is_refused() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    std::fs::create_dir(f.path.join("two")).unwrap();
    std::fs::copy(
        f.path.join("one").join(RECORD_FILE),
        f.path.join("two").join(RECORD_FILE),
    )
    .unwrap();
    let error = f.store.get(&execution("two")).unwrap_err();
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::InvalidData
    );
}

#[test]
fn odd_container_ids_are_found_by_their_own_names() {
    let f = containers();
    let long = "a".repeat(300);
    let ids = [
        "plain",
        "..",
        ".hidden",
        "a/b",
        "../../etc",
        "sp ace",
        "ü",
        long.as_str(),
        "nul\0",
    ];
    for (index, id) in ids.iter().enumerate() {
        let key = key(id);
        let _owner = f.store.lock_owner(&key).unwrap();
        f.store
            .reserve(task_record(
                &format!("e{index}"),
                &format!("op{index}"),
                &key,
            ))
            .unwrap();
    }
    let reopened = ManagedExecutionStore::for_containers(&f.path);
    for (index, id) in ids.iter().enumerate() {
        let name = format!("e{index}");
        assert!(reopened.get(&execution(&name)).unwrap().is_none());
        let found = reopened.find_container(&key(id)).unwrap().unwrap();
        assert_eq!(found.id, name, "{id:?}");
        assert!(reopened.get(&execution(&name)).unwrap().is_some());
        let folder = reopened.container_folder(&key(id));
        assert_eq!(folder.parent(), Some(f.path.as_path()));
    }
    assert_eq!(names(&f.path).len(), ids.len());
    assert!(reopened.find_container(&key("unknown")).unwrap().is_none());
}

#[test]
fn a_container_of_another_namespace_is_not_believed() {
    let f = containers();
    f.store
        .reserve(task_record("one", "op", &key("c")))
        .unwrap();
    let other = TaskKey {
        namespace: "default".into(),
        container_id: "c".into(),
    };
    assert!(matches!(
        f.store.find_container(&other),
        Err(StoreError::Invalid { .. })
    ));
}

#[test]
fn a_taken_container_id_is_a_conflict() {
    let f = containers();
    f.store
        .reserve(task_record("one", "op-1", &key("c")))
        .unwrap();
    let second = f.store.reserve(task_record("two", "op-2", &key("c")));
    assert!(matches!(second, Err(StoreError::Conflict { .. })));
    assert!(f.store.remove(&execution("one")).unwrap());
    f.store
        .reserve(task_record("two", "op-2", &key("c")))
        .unwrap();
}

#[test]
fn the_owner_of_a_container_is_named_and_its_death_frees_the_lock() {
    let f = containers();
    let held = f.store.lock_owner(&key("c")).unwrap();
    match ManagedExecutionStore::for_containers(&f.path).lock_owner(&key("c")) {
        Err(StoreError::Owned { owner, .. }) => assert_eq!(owner, Some(std::process::id())),
        other => panic!("unexpected {other:?}"),
    }
    drop(held);
    f.store.lock_owner(&key("c")).unwrap();
}

#[test]
fn a_stale_expectation_is_a_conflict_and_changes_nothing() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let path = f.path.join("one").join(RECORD_FILE);
    let before = std::fs::read(&path).unwrap();
    let second = ExecutionGeneration::new(2).unwrap();
    for expected in [(State::Running, FIRST), (State::Created, second)] {
        let result = f
            .store
            .update(&execution("one"), expected, |record| record.pid = Some(1));
        assert!(matches!(result, Err(StoreError::Conflict { .. })));
    }
    let illegal = f.store.transition(
        &execution("one"),
        FIRST,
        State::Created,
        State::Paused,
        RuntimeUpdate::None,
    );
    assert!(matches!(illegal, Err(StoreError::IllegalTransition { .. })));
    let skipped = f
        .store
        .update(&execution("one"), (State::Created, FIRST), |record| {
            record.managed_execution.as_mut().unwrap().generation =
                ExecutionGeneration::new(3).unwrap();
        });
    assert!(matches!(skipped, Err(StoreError::Conflict { .. })));
    let unclaimed = f
        .store
        .update(&execution("one"), (State::Created, FIRST), |record| {
            record.status = "pausing".into();
        });
    assert!(matches!(unclaimed, Err(StoreError::Invalid { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(matches!(
        f.store
            .update(&execution("gone"), (State::Created, FIRST), |_| {}),
        Err(StoreError::NotFound(_))
    ));
}

#[test]
fn concurrent_transactions_lose_no_change() {
    const THREADS: u32 = 4;
    const CHANGES: u32 = 25;
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let store = ManagedExecutionStore::new(&f.path);
                for _ in 0..CHANGES {
                    store
                        .update(&execution("one"), (State::Created, FIRST), |record| {
                            record.restart_count += 1;
                        })
                        .unwrap();
                }
            });
        }
    });
    let record = f.store.get(&execution("one")).unwrap().unwrap();
    assert_eq!(record.restart_count, THREADS * CHANGES);
}

#[test]
fn concurrent_reservations_of_one_operation_make_one_execution() {
    let f = fixture();
    let reserved: BTreeSet<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|index| {
                let path = &f.path;
                scope.spawn(move || {
                    let store = ManagedExecutionStore::new(path);
                    let id = format!("e{index}");
                    store.reserve(record(&id, "op")).unwrap().into_record().id
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(reserved.len(), 1, "{reserved:?}");
}

#[test]
fn a_removed_execution_is_gone_and_its_operation_is_free() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    std::fs::write(f.store.journal_path(&execution("one")).unwrap(), b"").unwrap();
    assert!(f.store.remove(&execution("one")).unwrap());
    assert!(!f.store.remove(&execution("one")).unwrap());
    assert!(!f.path.join("one").exists());
    assert!(f.store.find_operation(&operation("op")).unwrap().is_none());
    f.store.reserve(record("two", "op")).unwrap();
}

#[test]
fn saving_a_record_that_breaks_its_rules_is_invalid_data() {
    let f = fixture();
    let mut broken = record("one", "op");
    broken.status = "zombie".into();
    let saved = BoxStateStore::from_records(&f.path, vec![record("ok", "op-0"), broken]).save();
    assert_eq!(saved.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    assert!(
        !f.path.exists(),
        "nothing is written before all are checked"
    );
    let good = vec![record("one", "op-1"), record("two", "op-2")];
    BoxStateStore::from_records(&f.path, good).save().unwrap();
    assert_eq!(BoxStateStore::load(&f.path).unwrap().records().len(), 2);
}
