//! What storage can do to records: nothing is lost, and the error says where and what to do.

use std::path::{Path, PathBuf};

use super::*;
use crate::store::with_remedy;

#[track_caller]
fn assert_named(error: &StoreError, path: &Path, remedy: &str) {
    let text = with_remedy(error);
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains(remedy), "{text}");
}

/// A small filesystem of its own. `None`, with the reason on stderr, where this process may not mount.
struct SmallFilesystem(PathBuf);

impl SmallFilesystem {
    fn mount(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let options = std::ffi::CString::new(format!("size={size},mode=0700")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("tmpfs", at, "tmpfs", flags, Some(options.as_c_str())) {
            Ok(()) => Some(Self(at.to_path_buf())),
            Err(error) => {
                eprintln!("skipped: cannot mount a tmpfs here: {error}");
                None
            }
        }
    }

    fn make_read_only(&self) {
        let flags = rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(&self.0, flags, "").unwrap();
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_refuses_the_change_and_keeps_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallFilesystem::mount(&dir.path().join("disk"), "64k") else {
        return;
    };
    let path = dir.path().join("disk/boxes.json");
    let store = ManagedExecutionStore::new(&path);
    store.reserve(record("one", "op")).unwrap();
    let ballast = dir.path().join("disk/ballast");
    let filled = std::fs::write(&ballast, vec![0; 256 * 1024]);
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);

    let error = start(&store, "one").unwrap_err();
    assert_named(&error, &path.join("one"), "free space");
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::StorageFull
    );
    let kept = store.get(&execution("one")).unwrap().unwrap();
    assert_eq!(kept.status, "created");
    let error = store.reserve(record("two", "op-2")).unwrap_err();
    assert!(matches!(
        a3sbox_core::ExecutionManagerError::from(error),
        a3sbox_core::ExecutionManagerError::Unavailable(_)
    ));
    assert!(store.get(&execution("two")).unwrap().is_none());

    std::fs::remove_file(&ballast).unwrap();
    start(&store, "one").unwrap();
    store.reserve(record("two", "op-2")).unwrap();
    for folder in ["one", "two", ".operations"] {
        let temporaries = names(&path.join(folder));
        assert!(
            !temporaries
                .iter()
                .any(|name| name.starts_with(".a3sbox-tmp")),
            "{temporaries:?}"
        );
    }
}

#[test]
fn a_read_only_state_can_be_read_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallFilesystem::mount(&dir.path().join("disk"), "256k") else {
        return;
    };
    let path = dir.path().join("disk/boxes.json");
    let store = ManagedExecutionStore::new(&path);
    store.reserve(record("one", "op")).unwrap();
    disk.make_read_only();
    assert!(store.get(&execution("one")).unwrap().is_some());
    let error = start(&store, "one").unwrap_err();
    assert_named(&error, &path.join("one"), "writable");
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
}

/// Root passes every mode: the attempt is made by a thread that is nobody.
#[test]
fn a_folder_that_may_not_be_written_is_named() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let store = f.store.clone();
    let error = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        if rustix::thread::set_thread_uid(nobody).is_err() {
            eprintln!("skipped: this process may not become nobody");
            return None;
        }
        Some(start(&store, "one").unwrap_err())
    })
    .join()
    .unwrap();
    let Some(error) = error else { return };
    assert_named(&error, &f.path.join("one"), "owner, mode");
    let kept = f.store.get(&execution("one")).unwrap().unwrap();
    assert_eq!(kept.status, "created");
    start(&f.store, "one").unwrap();
}

#[test]
fn a_folder_that_was_removed_ends_nothing_else() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    f.store.reserve(record("two", "op-2")).unwrap();
    std::fs::remove_dir_all(f.path.join("one")).unwrap();
    assert!(f.store.get(&execution("one")).unwrap().is_none());
    let error = start(&f.store, "one").unwrap_err();
    assert!(matches!(error, StoreError::NotFound(_)), "{error}");
    assert!(!f.store.remove(&execution("one")).unwrap());
    start(&f.store, "two").unwrap();
    // Its operation may be used again: what it named is gone.
    f.store.reserve(record("three", "op")).unwrap();
}

#[test]
fn a_record_of_an_older_form_is_migrated_behind_a_backup() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let path = f.path.join("one").join(RECORD_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let older = text.replacen("\"schema_version\":2", "\"schema_version\":1", 1);
    std::fs::write(&path, &older).unwrap();

    let store = ManagedExecutionStore::new(&f.path);
    let read = store.get(&execution("one")).unwrap().unwrap();
    assert_eq!(read.status, "created");
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        older,
        "reading changes nothing"
    );
    start(&store, "one").unwrap();
    let migrated = std::fs::read_to_string(&path).unwrap();
    assert!(migrated.starts_with("{\"schema_version\":2"), "{migrated}");
    let backup = f.path.join("one/record.json.v1");
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), older);
    assert!(store.remove(&execution("one")).unwrap());
    assert!(!backup.exists());
}

#[test]
fn a_full_disk_migrates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallFilesystem::mount(&dir.path().join("disk"), "64k") else {
        return;
    };
    let path = dir.path().join("disk/boxes.json");
    let store = ManagedExecutionStore::new(&path);
    store.reserve(record("one", "op")).unwrap();
    let file = path.join("one").join(RECORD_FILE);
    let text = std::fs::read_to_string(&file).unwrap();
    let older = text.replacen("\"schema_version\":2", "\"schema_version\":1", 1);
    std::fs::write(&file, &older).unwrap();
    let ballast = dir.path().join("disk/ballast");
    std::fs::write(&ballast, vec![0; 256 * 1024]).unwrap_err();

    let store = ManagedExecutionStore::new(&path);
    start(&store, "one").unwrap_err();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), older);
    // The backup is made by the attempt that can make it, not skipped for the first that could not.
    std::fs::remove_file(&ballast).unwrap();
    start(&store, "one").unwrap();
    let backup = path.join("one/record.json.v1");
    assert_eq!(std::fs::read_to_string(backup).unwrap(), older);
}

#[test]
fn errors_about_a_record_name_its_file_and_a_way_out() {
    let f = fixture();
    f.store.reserve(record("one", "op")).unwrap();
    let path = f.path.join("one").join(RECORD_FILE);
    for contents in ["{", r#"{"schema_version":9}"#] {
        std::fs::write(&path, contents).unwrap();
        let error = f.store.get(&execution("one")).unwrap_err();
        assert_named(&error, &path, "left as it is");
        assert_named(&error, &path, "delete its container");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), contents);
    }
}
