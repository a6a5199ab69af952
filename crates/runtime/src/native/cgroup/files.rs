//! Small files of the kernel, any of which may have gone.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::CgroupError;

/// Content of a file; `None` when it, or its cgroup, is not there.
pub(super) fn read(path: &Path) -> Result<Option<String>, CgroupError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) || is_unsupported(&error) => Ok(None),
        Err(source) => Err(CgroupError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Writes a value; false when the file, or its cgroup, is not there.
pub(super) fn write(path: &Path, value: &str) -> Result<bool, CgroupError> {
    // Without creating: outside a cgroup file system the file would otherwise appear.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
    match written {
        Ok(()) => Ok(true),
        Err(error) if is_gone(&error) => Ok(false),
        Err(source) => Err(CgroupError::Write {
            path: path.to_owned(),
            source,
        }),
    }
}

/// A number, or `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Max,
}

/// Content of a file with one number or `max`.
pub(super) fn read_value(path: &Path) -> Result<Option<Value>, CgroupError> {
    Ok(read(path)?.and_then(|text| match text.trim() {
        "max" => Some(Value::Max),
        number => number.parse().ok().map(Value::Number),
    }))
}

/// Lines of `<key> <number>`.
pub(super) fn flat(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (key, value) = line.split_once(' ')?;
        Some((key, value.trim().parse().ok()?))
    })
}

/// One key of a file with such lines.
pub(super) fn read_key(path: &Path, key: &str) -> Result<Option<u64>, CgroupError> {
    let text = read(path)?;
    Ok(text.and_then(|text| {
        flat(&text)
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value)
    }))
}

/// The file or its cgroup was removed, before or after it was opened.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NODEV | Errno::NOTDIR)
    )
}

/// The kernel has the file and refuses to fill it, as with swap accounting off.
fn is_unsupported(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::OPNOTSUPP)
}
