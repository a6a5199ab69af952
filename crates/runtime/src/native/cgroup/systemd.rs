//! Cgroup paths in systemd's form, `slice:prefix:name`, as the engines read them.

use std::path::PathBuf;

use super::CgroupError;

/// Slice of a path that names none.
const DEFAULT_SLICE: &str = "system.slice";

/// A unit of systemd, by its three parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnitPath {
    slice: String,
    prefix: String,
    name: String,
}

impl UnitPath {
    /// Parses the form; a path without it is the unit of the container in the default slice.
    pub(super) fn parse(path: Option<&str>, container_id: &str) -> Result<Self, CgroupError> {
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Ok(Self {
                slice: String::new(),
                prefix: "runc".to_owned(),
                name: container_id.to_owned(),
            });
        };
        let invalid = |reason| CgroupError::InvalidPath {
            path: path.to_owned(),
            reason,
        };
        let parts: Vec<&str> = path.split(':').collect();
        let [slice, prefix, name] = parts.as_slice() else {
            return Err(invalid("it is not slice:prefix:name"));
        };
        if path.contains('/') {
            return Err(invalid("it has a slash"));
        }
        if name.is_empty() {
            return Err(invalid("its name is empty"));
        }
        Ok(Self {
            slice: (*slice).to_owned(),
            prefix: (*prefix).to_owned(),
            name: (*name).to_owned(),
        })
    }

    /// The cgroup below systemd's root.
    pub(super) fn cgroup(&self) -> Result<PathBuf, CgroupError> {
        let slice = if self.slice.is_empty() {
            DEFAULT_SLICE
        } else {
            &self.slice
        };
        Ok(expand_slice(slice)?.join(self.unit()))
    }

    fn unit(&self) -> String {
        if self.name.ends_with(".slice") {
            self.name.clone()
        } else if self.prefix.is_empty() {
            format!("{}.scope", self.name)
        } else {
            format!("{}-{}.scope", self.prefix, self.name)
        }
    }
}

/// `a-b-c.slice` lies in `a-b.slice`, which lies in `a.slice`; `-.slice` is the root.
fn expand_slice(slice: &str) -> Result<PathBuf, CgroupError> {
    let invalid = |reason| CgroupError::InvalidPath {
        path: slice.to_owned(),
        reason,
    };
    let name = slice
        .strip_suffix(".slice")
        .filter(|name| !name.is_empty())
        .ok_or_else(|| invalid("a slice ends in .slice"))?;
    let mut path = PathBuf::new();
    if name == "-" {
        return Ok(path);
    }
    let mut prefix = String::new();
    for part in name.split('-') {
        if part.is_empty() {
            return Err(invalid("a part of the slice is empty"));
        }
        prefix.push_str(part);
        path.push(format!("{prefix}.slice"));
        prefix.push('-');
    }
    Ok(path)
}
