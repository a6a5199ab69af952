//! A journal of any content: repaired or refused, and never shortened by more than its torn end.

use a3sbox_durable::{Journal, JournalLimits};

thread_local! {
    static FOLDER: tempfile::TempDir = crate::record::folder();
}

pub(crate) fn open(data: &[u8]) {
    FOLDER.with(|folder| {
        let path = folder.path().join("journal.log");
        std::fs::write(&path, data).unwrap();
        let Ok(opened) = Journal::open(&path, JournalLimits::DEFAULT) else {
            // Refused: whoever can read it finds it as it was.
            assert_eq!(std::fs::read(&path).unwrap(), data);
            return;
        };
        let mut journal = opened.journal;
        journal.append(b"{\"one\":\"more\"}").unwrap();
        drop(journal);
        let mut expected = opened.entries;
        expected.push(b"{\"one\":\"more\"}".to_vec());
        let again = Journal::open(&path, JournalLimits::DEFAULT).unwrap();
        assert_eq!(again.entries, expected);
    });
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let folder = crate::record::folder();
    let path = folder.path().join("journal.log");
    let mut journal = Journal::open(&path, JournalLimits::DEFAULT)
        .unwrap()
        .journal;
    for entry in [
        r#"{"fact":"created","identity":{"pid":4711,"start_ticks":99},"cgroup":{}}"#,
        r#"{"fact":"started","operation":{"id":"op-1","digest":"00112233445566778899aabbccddeeff"}}"#,
        r#"{"fact":"exited","process":"init","exit":{"known":{"exit_code":7,"oom_killed":false}}}"#,
    ] {
        journal.append(entry.as_bytes()).unwrap();
    }
    vec![std::fs::read(path).unwrap(), Vec::new()]
}
