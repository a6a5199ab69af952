use a3sbox_oci::{ExitStatus, OperationId, ProcessId};

use super::*;
use crate::native::cgroup::CgroupPaths;
use crate::native::identity::ProcessIdentity;
use crate::owner::state::Status;

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

#[test]
fn thousands_of_probes_leave_a_small_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    journal.commit(created()).unwrap();
    journal
        .commit(Entry::Started {
            operation: operation("start"),
        })
        .unwrap();
    journal.commit(exec("kept")).unwrap();
    for probe in 0..5000 {
        let id = format!("probe-{probe}");
        for entry in [
            exec(&id),
            exited(&id, 0),
            Entry::Forgotten {
                process: ProcessId::new(id.as_str()).unwrap(),
            },
        ] {
            journal.commit(entry).unwrap();
        }
    }
    let size = std::fs::metadata(folder.path().join(JOURNAL_FILE))
        .unwrap()
        .len();
    assert!(size < 2 * COMPACT_FROM_BYTES, "{size}");
    drop(journal);
    let image = ContainerJournal::open(folder.path()).unwrap().image;
    assert_eq!(image.status, Status::Running);
    assert_eq!(image.execs.len(), 1);
    assert!(
        image
            .operations
            .find(&operation("start"))
            .unwrap()
            .is_some()
    );
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
