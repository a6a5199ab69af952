//! Ids and names: what the host, the container and its files call the same user.

use std::io::Read as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::resolve::{Root, reopen};

/// Largest user or group database that is read.
const MAX_DATABASE_BYTES: u64 = 1024 * 1024;
/// What an id that the container does not have looks like in it.
const OVERFLOW_ID: u32 = 65_534;

/// A map between the ids of a user namespace and those of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdMap(Vec<Range>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    inside: u32,
    outside: u32,
    count: u32,
}

impl IdMap {
    /// Reads `/proc/<pid>/uid_map` or `gid_map`. What cannot be read maps nothing.
    pub(super) fn read(pid: u32, file: &str) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let ranges = text.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(Range {
                inside: next()?,
                outside: next()?,
                count: next()?,
            })
        });
        Self(ranges.collect())
    }

    pub(super) fn to_host(&self, inside: u32) -> Option<u32> {
        self.0.iter().find_map(|range| {
            let step = inside.checked_sub(range.inside)?;
            (step < range.count).then(|| range.outside.checked_add(step))?
        })
    }

    pub(super) fn to_container(&self, outside: u32) -> Option<u32> {
        self.0.iter().find_map(|range| {
            let step = outside.checked_sub(range.outside)?;
            (step < range.count).then(|| range.inside.checked_add(step))?
        })
    }

    /// The id as the container's own tools show it.
    pub(super) fn shown(&self, outside: u32) -> u32 {
        self.to_container(outside).unwrap_or(OVERFLOW_ID)
    }
}

/// A user or group database of the container.
#[derive(Debug, Default)]
pub(super) struct Database(String);

impl Database {
    /// Empty when there is none, or it cannot be read.
    pub(super) fn read(root: &Root, path: &str) -> Self {
        let text = || {
            let found = root.open_at(Path::new(path), OFlags::PATH).ok()?;
            let stat = rustix::fs::fstat(&found).ok()?;
            let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
            let file = is_file.then(|| reopen(&found, OFlags::RDONLY))?.ok()?;
            let mut bytes = Vec::new();
            std::fs::File::from(file)
                .take(MAX_DATABASE_BYTES)
                .read_to_end(&mut bytes)
                .ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        Self(text().unwrap_or_default())
    }

    /// The line of a name.
    pub(super) fn by_name(&self, name: &str) -> Option<Vec<&str>> {
        self.lines().find(|fields| fields.first() == Some(&name))
    }

    /// The line of an id.
    pub(super) fn by_id(&self, id: u32) -> Option<Vec<&str>> {
        self.lines().find(|fields| number(fields, 2) == Some(id))
    }

    /// The groups that list a member.
    pub(super) fn groups_of<'a>(&'a self, member: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.lines().filter_map(move |fields| {
            let members = fields.get(3)?;
            members
                .split(',')
                .any(|name| name == member)
                .then(|| number(&fields, 2))?
        })
    }

    /// The name of an id, or its digits.
    pub(super) fn name_of(&self, id: u32) -> String {
        self.by_id(id)
            .and_then(|fields| fields.first().map(|name| (*name).to_owned()))
            .unwrap_or_else(|| id.to_string())
    }

    fn lines(&self) -> impl Iterator<Item = Vec<&str>> {
        self.0.lines().map(|line| line.split(':').collect())
    }
}

pub(super) fn number(fields: &[&str], index: usize) -> Option<u32> {
    fields.get(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_mapped_both_ways_and_others_are_nobody() {
        let map = IdMap::parse("         0  536870912      65536\n");
        assert_eq!(map.to_host(1000), Some(536_871_912));
        assert_eq!(map.to_host(65_536), None);
        assert_eq!(map.to_container(536_870_912), Some(0));
        assert_eq!(map.shown(0), OVERFLOW_ID);
        let whole = IdMap::parse("0 0 4294967295\n");
        assert_eq!(whole.to_host(4_000_000_000), Some(4_000_000_000));
    }

    #[test]
    fn databases_are_read_by_name_and_id() {
        let database = Database("root:x:0:0\napp:x:1000:1000:a:/home/app:sh\nbad".to_owned());
        assert_eq!(database.name_of(1000), "app");
        assert_eq!(database.name_of(7), "7");
        assert_eq!(database.by_name("app").unwrap()[5], "/home/app");
        let groups = Database("root:x:0:\nextra:x:2000:a,app\n".to_owned());
        assert_eq!(groups.groups_of("app").collect::<Vec<_>>(), [2000]);
    }
}
