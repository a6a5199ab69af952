//! Removal of what interrupted replacements left behind.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::{DurableError, DurableResult, Step};
use crate::folder;
use crate::record::TEMPORARY_PREFIX;

/// Removes leftover temporaries directly inside `folder`; returns how many. A missing folder has none.
///
/// The caller holds the lock that writers of this folder take: a temporary seen under it belongs to
/// nobody alive.
pub fn sweep(folder: &Path) -> DurableResult<usize> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(DurableError::io(Step::ListFolder, folder, error)),
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry.map_err(|e| DurableError::io(Step::ListFolder, folder, e))?;
        let name = entry.file_name();
        if !name
            .as_encoded_bytes()
            .starts_with(TEMPORARY_PREFIX.as_bytes())
        {
            continue;
        }
        let path = entry.path();
        match std::fs::remove_file(&path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(DurableError::io(Step::Remove, &path, error)),
        }
    }
    if removed > 0 {
        folder::sync(folder)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_temporaries_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            ".a3sbox-tmp-1-0-ff",
            ".a3sbox-tmp-2-7-0",
            "record.json",
            ".other",
        ] {
            std::fs::write(dir.path().join(name), b"x").unwrap();
        }
        assert_eq!(sweep(dir.path()).unwrap(), 2);
        assert_eq!(sweep(dir.path()).unwrap(), 0);
        assert!(dir.path().join("record.json").exists());
        assert!(dir.path().join(".other").exists());
        assert_eq!(sweep(&dir.path().join("missing")).unwrap(), 0);
    }
}
