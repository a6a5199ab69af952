use a3sbox_oci::{ExitStatus, OperationId, ProcessId};

use super::*;
use crate::native::cgroup::CgroupPaths;
use crate::native::identity::ProcessIdentity;
use crate::owner::state::Status;

mod mutated;
mod torn;

const INIT: ProcessIdentity = ProcessIdentity {
    pid: 4711,
    start_ticks: 99,
};

fn operation(id: &str) -> Operation {
    Operation {
        id: OperationId::new(id).unwrap(),
        digest: RequestDigest::of("verb", &id).unwrap(),
    }
}

fn created() -> Entry {
    Entry::Created {
        identity: INIT,
        cgroup: CgroupPaths::default(),
        restored: false,
    }
}

fn exec(id: &str) -> Entry {
    Entry::Exec(ExecEntry {
        process: ProcessId::new(id).unwrap(),
        operation: Some(operation(id)),
        identity: INIT,
        terminal: false,
        stdio: None,
    })
}

fn exited(id: &str, code: i32) -> Entry {
    Entry::Exited {
        process: ProcessId::new(id).unwrap(),
        exit: Exit::Known(ExitStatus::exited(code).unwrap()),
    }
}

#[test]
fn what_was_committed_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    for entry in [
        created(),
        Entry::Started {
            operation: operation("start"),
        },
        exec("e1"),
        exited("e1", 7),
        exited("init", 42),
    ] {
        journal.commit(entry).unwrap();
    }
    drop(journal);
    let image = ContainerJournal::open(folder.path()).unwrap().image;
    assert_eq!(image.status, Status::Stopped);
    assert_eq!(image.init, Some(INIT));
    assert_eq!(
        image.exit,
        Some(Exit::Known(ExitStatus::exited(42).unwrap()))
    );
    assert_eq!(image.execs.len(), 1);
    assert_eq!(
        image.operations.find(&operation("start")).unwrap(),
        Some(Status::Running)
    );
}

#[test]
fn an_entry_that_cannot_follow_does_not_reach_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    journal.commit(created()).unwrap();
    let refused = journal.commit(Entry::Paused {
        operation: operation("pause"),
    });
    assert!(matches!(refused, Err(JournalError::Illegal(_))));
    drop(journal);
    let image = ContainerJournal::open(folder.path()).unwrap().image;
    assert_eq!(image.status, Status::Created);
}

#[test]
fn a_signal_that_was_not_sent_may_be_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    journal.commit(created()).unwrap();
    journal
        .commit(Entry::Signaled {
            operation: operation("kill"),
            process: None,
        })
        .unwrap();
    assert!(
        journal
            .image
            .operations
            .find(&operation("kill"))
            .unwrap()
            .is_some()
    );
    journal
        .commit(Entry::NotSignaled {
            operation: operation("kill").id,
            process: None,
        })
        .unwrap();
    drop(journal);
    let image = ContainerJournal::open(folder.path()).unwrap().image;
    assert_eq!(image.operations.find(&operation("kill")).unwrap(), None);
}

/// A tenth, or what `A3SBOX_TEST_SCALE` says.
fn scaled(count: usize) -> usize {
    let share = std::env::var("A3SBOX_TEST_SCALE")
        .ok()
        .and_then(|share| share.parse().ok())
        .unwrap_or(10);
    (count / std::cmp::Ord::max(share, 1)).max(1)
}

/// On memory, where the state root is by default: a sync costs nothing there.
fn memory_folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("a3sbox-journal-test-")
        .tempdir_in("/dev/shm")
        .unwrap()
}

/// Probes that end as `last` says; the journal's largest size on the way.
fn probe(journal: &mut ContainerJournal, folder: &Path, last: impl Fn(ProcessId) -> Entry) -> u64 {
    let mut largest = 0;
    for probe in 0..scaled(100_000) {
        let id = format!("probe-{probe}");
        let process = ProcessId::new(id.as_str()).unwrap();
        for entry in [exec(&id), exited(&id, 0), last(process)] {
            journal.commit(entry).unwrap();
        }
        let size = std::fs::metadata(folder.join(JOURNAL_FILE)).unwrap().len();
        largest = largest.max(size);
    }
    largest
}

#[test]
fn a_hundred_thousand_probes_leave_a_small_journal() {
    for expires in [false, true] {
        let folder = memory_folder();
        let mut journal = ContainerJournal::open(folder.path()).unwrap();
        journal.commit(created()).unwrap();
        journal
            .commit(Entry::Started {
                operation: operation("start"),
            })
            .unwrap();
        journal.commit(exec("kept")).unwrap();
        let largest = probe(&mut journal, folder.path(), |process| {
            if expires {
                Entry::Expired { process }
            } else {
                Entry::Forgotten { process }
            }
        });
        assert!(largest < 2 * COMPACT_FROM_BYTES, "{largest}");
        drop(journal);
        let image = ContainerJournal::open(folder.path()).unwrap().image;
        assert_eq!(image.status, Status::Running);
        assert_eq!(image.execs.len(), 1);
        let start = image.operations.find(&operation("start")).unwrap();
        assert_eq!(start, Some(Status::Running));
        // The last probe is past: it is refused, by its process too when nobody deleted it.
        let last = format!("probe-{}", scaled(100_000) - 1);
        let last_operation = operation(&last).id;
        assert!(image.past.refuse_operation(&last_operation).is_err());
        let last_process = ProcessId::new(last).unwrap();
        assert_eq!(image.past.refuse_process(&last_process).is_err(), expires);
    }
}

#[test]
fn updates_for_ever_displace_neither_the_start_nor_the_bound() {
    let folder = memory_folder();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    journal.commit(created()).unwrap();
    journal
        .commit(Entry::Started {
            operation: operation("start"),
        })
        .unwrap();
    for number in 0..scaled(100_000) {
        let operation = operation(&format!("update-{number}"));
        journal.commit(Entry::Updated { operation }).unwrap();
    }
    let size = std::fs::metadata(folder.path().join(JOURNAL_FILE))
        .unwrap()
        .len();
    assert!(size < 4 * COMPACT_FROM_BYTES, "{size}");
    drop(journal);
    let image = ContainerJournal::open(folder.path()).unwrap().image;
    let start = image.operations.find(&operation("start")).unwrap();
    assert_eq!(start, Some(Status::Running));
    let displaced = operation(&format!("update-{}", scaled(100_000) - 300));
    assert_eq!(image.operations.find(&displaced).unwrap(), None);
    assert!(image.past.refuse_operation(&displaced.id).is_err());
}

#[test]
fn a_torn_last_line_is_as_if_it_had_not_been_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(JOURNAL_FILE);
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    journal.commit(created()).unwrap();
    let before = std::fs::metadata(&path).unwrap().len();
    journal
        .commit(Entry::Started {
            operation: operation("start"),
        })
        .unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    for length in usize::try_from(before).unwrap()..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let image = ContainerJournal::open(folder.path()).unwrap().image;
        assert_eq!(image.status, Status::Created, "torn at byte {length}");
    }
}
