//! Who a sandbox's process runs as: numbers, or names that its own files know.

use std::io::{self, Read as _};
use std::path::Path;

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::ids::ID_COUNT;

/// Largest user or group database that is read.
const MAX_DATABASE_BYTES: u64 = 1024 * 1024;

/// The identity of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

/// `user`, `uid`, `user:group` and so on, as images and options write it; empty is root.
pub(super) fn resolve(rootfs: &Path, text: &str) -> ExecutionManagerResult<User> {
    let passwd = database(rootfs, "etc/passwd")?;
    let group = database(rootfs, "etc/group")?;
    find(text, &passwd, &group).map_err(ExecutionManagerError::InvalidRequest)
}

fn find(text: &str, passwd: &str, group: &str) -> Result<User, String> {
    let (name, group_name) = match text.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (text, None),
    };
    let name = if name.is_empty() { "0" } else { name };
    let number: Option<u32> = name.parse().ok();
    let entry = fields(passwd).find(|fields| {
        fields.first() == Some(&name)
            || number.is_some() && fields.get(2).and_then(|id| id.parse().ok()) == number
    });
    let uid = match (&entry, number) {
        (_, Some(uid)) => uid,
        (Some(fields), None) => field(fields, 2).ok_or("the image's /etc/passwd is malformed")?,
        (None, None) => return Err(format!("the image has no user {name:?}")),
    };
    let primary = entry.as_ref().and_then(|fields| field(fields, 3));
    let gid = match group_name {
        None | Some("") => primary.unwrap_or(0),
        Some(name) => match name.parse() {
            Ok(gid) => gid,
            Err(_) => fields(group)
                .find(|fields| fields.first() == Some(&name))
                .and_then(|fields| field(&fields, 2))
                .ok_or_else(|| format!("the image has no group {name:?}"))?,
        },
    };
    let login = entry.as_ref().and_then(|fields| fields.first().copied());
    let mut groups: Vec<u32> = match (login, group_name) {
        // A named group stands alone, as engines have it.
        (Some(login), None) => fields(group)
            .filter(|fields| {
                fields
                    .get(3)
                    .is_some_and(|members| members.split(',').any(|member| member == login))
            })
            .filter_map(|fields| field(&fields, 2))
            .filter(|member| *member != gid)
            .collect(),
        _ => Vec::new(),
    };
    groups.sort_unstable();
    groups.dedup();
    if let Some(id) = groups
        .iter()
        .chain([&uid, &gid])
        .find(|id| **id >= ID_COUNT)
    {
        return Err(format!(
            "id {id} is outside the {ID_COUNT} that a sandbox has"
        ));
    }
    let home = entry
        .as_ref()
        .and_then(|fields| fields.get(5).copied())
        .filter(|home| home.starts_with('/'))
        .unwrap_or("/");
    Ok(User {
        uid,
        gid,
        groups,
        home: home.to_owned(),
    })
}

fn fields(database: &str) -> impl Iterator<Item = Vec<&str>> {
    database.lines().map(|line| line.split(':').collect())
}

fn field(fields: &[&str], index: usize) -> Option<u32> {
    fields.get(index)?.parse().ok()
}

/// A database of the image, links followed inside of it; empty when there is none.
fn database(rootfs: &Path, name: &str) -> ExecutionManagerResult<String> {
    let read = || -> io::Result<String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, rootfs, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = std::fs::File::from(openat2(&root, name, flags, Mode::empty(), resolve)?);
        if !file.metadata()?.is_file() {
            return Ok(String::new());
        }
        let mut bytes = Vec::new();
        file.take(MAX_DATABASE_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| {
            ExecutionManagerError::Unavailable(format!("cannot read the image's /{name}: {error}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\nodd\n";
    const GROUP: &str = "root:x:0:\napp:x:1000:\nextra:x:2000:app\n";

    fn ids(text: &str) -> (u32, u32, Vec<u32>, String) {
        let user = find(text, PASSWD, GROUP).unwrap();
        (user.uid, user.gid, user.groups, user.home)
    }

    #[test]
    fn names_and_numbers_are_found() {
        assert_eq!(ids(""), (0, 0, vec![], "/root".into()));
        assert_eq!(ids("app"), (1000, 1000, vec![2000], "/home/app".into()));
        assert_eq!(ids("1000"), (1000, 1000, vec![2000], "/home/app".into()));
        assert_eq!(ids("app:extra"), (1000, 2000, vec![], "/home/app".into()));
        assert_eq!(ids("4242:4343"), (4242, 4343, vec![], "/".into()));
        assert_eq!(ids("4242"), (4242, 0, vec![], "/".into()));
    }

    #[test]
    fn unknown_names_and_ids_outside_the_range_are_refused() {
        for text in ["nobody-here", "app:nothing", "70000", "0:70000"] {
            find(text, PASSWD, GROUP).unwrap_err();
        }
    }
}
