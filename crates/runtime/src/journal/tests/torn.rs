//! The last entry torn at every byte, for every kind of fact.

use std::fmt::Write as _;

use super::*;

/// One fact of each kind that can be a journal's last line. One that is missing here does not compile.
const fn next(entry: &Entry) -> Option<fn() -> Entry> {
    Some(match entry {
        Entry::Created { .. } => || Entry::Started {
            operation: operation("start"),
        },
        Entry::Started { .. } => || Entry::Paused {
            operation: operation("pause"),
        },
        Entry::Paused { .. } => || Entry::Resumed {
            operation: operation("resume"),
        },
        Entry::Resumed { .. } => || Entry::Updated {
            operation: operation("update"),
        },
        Entry::Updated { .. } => || Entry::Signaled {
            operation: operation("signal"),
            process: None,
        },
        Entry::Signaled { .. } => || Entry::NotSignaled {
            operation: OperationId::new("signal").unwrap(),
            process: None,
        },
        Entry::NotSignaled { .. } => || exec("e1"),
        Entry::Exec(_) => || exited("e1", 7),
        Entry::Exited { .. } => || Entry::Forgotten {
            process: ProcessId::new("e1").unwrap(),
        },
        Entry::Forgotten { .. } => || Entry::Expired {
            process: ProcessId::new("e1").unwrap(),
        },
        Entry::Expired { .. } => || Entry::Outcome {
            operation: operation("outcome"),
            status: Status::Running,
            process: None,
            lasting: false,
        },
        Entry::Outcome { .. } => || Entry::Settled {
            status: Status::Running,
        },
        // Lines of a compaction; the ids' line is one of several that are written in one replacement.
        Entry::Settled { .. } | Entry::Past { .. } => return None,
    })
}

#[test]
fn a_fact_torn_at_any_byte_is_there_or_is_not() {
    let mut rows = String::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(JOURNAL_FILE);
    let mut entry = created();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    loop {
        let without = std::fs::read(&path).unwrap();
        let before = journal.image.entries();
        journal.commit(entry.clone()).unwrap();
        let after = journal.image.entries();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        assert!(whole.len() > without.len(), "{entry:?}");
        for length in without.len()..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let reopened = ContainerJournal::open(folder.path()).unwrap();
            let expected = if length == whole.len() {
                &after
            } else {
                &before
            };
            assert_eq!(&reopened.image.entries(), expected, "{entry:?} at {length}");
            let repaired = std::fs::read(&path).unwrap();
            assert!(
                repaired == whole || repaired == without,
                "{entry:?} at {length}"
            );
        }
        let kind = serde_json::to_value(&entry).unwrap()["fact"].clone();
        let kind = kind.as_str().unwrap().to_owned();
        let bytes = whole.len() - without.len() + 1;
        writeln!(
            rows,
            "{kind}\ttorn\tfact, at every byte\tthe state before or after it\t{bytes}"
        )
        .unwrap();
        journal = ContainerJournal::open(folder.path()).unwrap();
        match next(&entry) {
            Some(following) => entry = following(),
            None => break,
        }
    }
    if let Some(folder) = std::env::var_os("A3SBOX_CRASH_ROWS") {
        std::fs::write(Path::new(&folder).join("runtime-torn.rows"), rows).unwrap();
    }
}

#[test]
fn a_fact_that_could_not_be_written_is_made_up_for_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = ContainerJournal::open(folder.path()).unwrap();
    journal.commit(created()).unwrap();
    journal
        .commit(Entry::Started {
            operation: operation("start"),
        })
        .unwrap();
    // As a note does when the disk is full.
    let paused = Entry::Paused {
        operation: operation("pause"),
    };
    journal.image.apply(paused).unwrap();
    journal.is_behind = true;
    // Without the pause, a resume cannot follow.
    journal
        .commit(Entry::Resumed {
            operation: operation("resume"),
        })
        .unwrap();
    let expected = journal.image.entries();
    drop(journal);
    let image = ContainerJournal::open(folder.path()).unwrap().image;
    assert_eq!(image.entries(), expected);
    assert_eq!(image.status, Status::Running);
}
