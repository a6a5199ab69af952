use super::*;

const LIMITS: JournalLimits = JournalLimits {
    max_entry_bytes: 64,
    max_journal_bytes: 256,
};

fn entries(path: &Path) -> Vec<Vec<u8>> {
    Journal::open(path, LIMITS).unwrap().entries
}

#[test]
fn checksum_is_the_common_crc32() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(crc32(b""), 0);
}

#[test]
fn appended_entries_come_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut opened = Journal::open(&path, LIMITS).unwrap();
    assert!(opened.entries.is_empty());
    opened.journal.append(b"one").unwrap();
    opened.journal.append_all(&[b"two", b"three"]).unwrap();
    assert_eq!(opened.journal.entry_count(), 3);
    assert_eq!(
        entries(&path),
        [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]
    );
    assert_eq!(read(&path, LIMITS).unwrap().unwrap().len(), 3);
    assert!(read(&dir.path().join("none"), LIMITS).unwrap().is_none());
}

#[test]
fn last_entry_torn_at_every_byte_is_cut_and_appending_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut journal = Journal::open(&path, LIMITS).unwrap().journal;
    journal.append(b"first").unwrap();
    let whole = std::fs::read(&path).unwrap().len();
    journal.append(b"{\"second\":2}").unwrap();
    let full = std::fs::read(&path).unwrap();

    for length in whole..full.len() {
        std::fs::write(&path, &full[..length]).unwrap();
        let opened = Journal::open(&path, LIMITS).unwrap();
        assert_eq!(opened.entries, [b"first".to_vec()], "torn at {length}");
        assert_eq!(opened.repaired_bytes, (length - whole) as u64);
        assert_eq!(std::fs::read(&path).unwrap().len(), whole);
        let mut journal = opened.journal;
        journal.append(b"again").unwrap();
        assert_eq!(entries(&path), [b"first".to_vec(), b"again".to_vec()]);
    }
}

#[test]
fn last_entry_with_any_byte_changed_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut journal = Journal::open(&path, LIMITS).unwrap().journal;
    journal.append(b"first").unwrap();
    let whole = std::fs::read(&path).unwrap().len();
    journal.append(b"second").unwrap();
    let full = std::fs::read(&path).unwrap();
    for index in whole..full.len() {
        let mut damaged = full.clone();
        damaged[index] ^= 0x20;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(entries(&path), [b"first".to_vec()], "byte {index}");
    }
}

#[test]
fn damage_before_a_valid_entry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut journal = Journal::open(&path, LIMITS).unwrap().journal;
    journal.append(b"first").unwrap();
    journal.append(b"second").unwrap();
    let mut contents = std::fs::read(&path).unwrap();
    contents[10] ^= 1;
    std::fs::write(&path, &contents).unwrap();
    let error = Journal::open(&path, LIMITS).unwrap_err();
    assert!(
        matches!(error, DurableError::Damaged { offset: 0, .. }),
        "{error:?}"
    );
    assert_eq!(
        std::fs::read(&path).unwrap(),
        contents,
        "a refused journal is left as it is"
    );
}

#[test]
fn bounds_are_errors_and_leave_the_journal_usable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut journal = Journal::open(&path, LIMITS).unwrap().journal;
    let large = [b'x'; 65];
    assert!(matches!(
        journal.append(&large),
        Err(DurableError::EntryTooLarge { size: 65, .. })
    ));
    assert!(matches!(
        journal.append(b""),
        Err(DurableError::EntryMalformed(_))
    ));
    assert!(matches!(
        journal.append(b"a\nb"),
        Err(DurableError::EntryMalformed(_))
    ));
    let entry = [b'y'; 64];
    for _ in 0..3 {
        journal.append(&entry).unwrap();
    }
    assert!(matches!(
        journal.append(&entry),
        Err(DurableError::JournalFull { limit: 256, .. })
    ));
    assert_eq!(entries(&path).len(), 3);
}

#[test]
fn compaction_replaces_everything_and_appending_continues_in_the_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut journal = Journal::open(&path, LIMITS).unwrap().journal;
    for _ in 0..5 {
        journal.append(b"old").unwrap();
    }
    journal.compact(&[b"kept"]).unwrap();
    journal.append(b"new").unwrap();
    assert_eq!(entries(&path), [b"kept".to_vec(), b"new".to_vec()]);
    assert_eq!(journal.entry_count(), 2);
}

#[test]
fn a_failed_append_leaves_no_half_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.log");
    let mut journal = Journal::open(&path, LIMITS).unwrap().journal;
    journal.append(b"first").unwrap();
    // A read-only descriptor makes the write fail; the journal must recover with a good one.
    let good = std::mem::replace(&mut journal.file, File::open(&path).unwrap());
    journal.append(b"lost").unwrap_err();
    assert!(journal.torn);
    // What a short write would have left.
    (&good).write_all(b"0000").unwrap();
    journal.file = good;
    journal.append(b"second").unwrap();
    assert_eq!(entries(&path), [b"first".to_vec(), b"second".to_vec()]);
}
