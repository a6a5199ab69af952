//! Whose rights a file operation has: those of a user of the container, as the host's kernel checks them.
//!
//! The thread takes on the user's ids for file access, so the kernel decides on every step of a path and gives
//! new files their owner from the first moment: a name is never given away afterwards, when the container may
//! have put something else there. A container's root goes by its own rule: it has its power over what belongs
//! to ids that the container has, and is an ordinary user to everything else that was mounted into it.

use std::io;
use std::path::{Path, PathBuf};

use a3sbox_oci::ErrorCode;
use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::{Mode, Stat};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::fault::Fault;
use super::names::{Database, IdMap, number};
use super::resolve::Root;
use crate::native::identity::ProcessIdentity;

/// What a user's new files and folders lack, whatever this process has.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

#[derive(Debug)]
pub(super) struct Actor {
    /// Ids on the host.
    pub(super) uid: u32,
    pub(super) gid: u32,
    is_root: bool,
    home: String,
    uids: IdMap,
    gids: IdMap,
    users: Database,
    groups: Database,
}

/// A user by ids of the container.
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Actor {
    /// Gives this thread the rights of a user of the container, for good; `None` is whoever the container's own
    /// process is.
    pub(super) fn take_on(
        root: &Root,
        init: ProcessIdentity,
        user: Option<&str>,
    ) -> Result<Self, Fault> {
        let uids = IdMap::read(init.pid, "uid_map");
        let gids = IdMap::read(init.pid, "gid_map");
        let users = Database::read(root, "etc/passwd");
        let groups = Database::read(root, "etc/group");
        let identity = match user {
            Some(user) => named(user, &users, &groups)?,
            None => of_process(init.pid, &uids, &gids).ok_or_else(Fault::gone)?,
        };
        let unmapped = || Fault::Path {
            code: ErrorCode::InvalidArgument,
            message: format!("user {} is none of the container", identity.uid),
        };
        let uid = uids.to_host(identity.uid).ok_or_else(unmapped)?;
        let gid = gids.to_host(identity.gid).ok_or_else(unmapped)?;
        let supplementary: Vec<_> = identity
            .groups
            .iter()
            .filter_map(|group| gids.to_host(*group))
            .map(rustix::process::Gid::from_raw)
            .collect();
        let home = users
            .by_id(identity.uid)
            .and_then(|fields| fields.get(5).map(|home| (*home).to_owned()))
            .filter(|home| home.starts_with('/'))
            .unwrap_or_else(|| "/".to_owned());
        let actor = Self {
            uid,
            gid,
            is_root: identity.uid == 0,
            home,
            uids,
            gids,
            users,
            groups,
        };
        take_on(uid, gid, &supplementary, actor.is_root).map_err(|error| Fault::Container {
            code: ErrorCode::Internal,
            message: format!("cannot take on the rights of a user: {error}"),
        })?;
        Ok(actor)
    }

    /// Called with what is about to be changed or read: a container's root keeps its power only over what is
    /// the container's.
    pub(super) fn turn_to(&self, object: &Stat) -> io::Result<()> {
        let is_own = self.uids.to_container(object.st_uid).is_some()
            && self.gids.to_container(object.st_gid).is_some();
        if self.is_root && !is_own {
            drop_power()?;
        }
        Ok(())
    }

    /// A path as it was asked for, from the container's root.
    pub(super) fn path(&self, asked: &str) -> PathBuf {
        let path = match asked.strip_prefix('~') {
            Some(rest) => format!("{}/{}", self.home, rest.trim_start_matches('/')),
            None => asked.to_owned(),
        };
        Path::new("/").join(path)
    }

    pub(super) fn owner(&self, stat: &Stat) -> String {
        self.users.name_of(self.uids.shown(stat.st_uid))
    }

    pub(super) fn group(&self, stat: &Stat) -> String {
        self.groups.name_of(self.gids.shown(stat.st_gid))
    }
}

/// Gives this thread the ids for file access, and power only to a root.
fn take_on(uid: u32, gid: u32, groups: &[rustix::process::Gid], is_root: bool) -> io::Result<()> {
    // The mask is the process's until the thread has one of its own.
    nix::sched::unshare(CloneFlags::CLONE_FS)?;
    rustix::process::umask(UMASK);
    rustix::thread::set_thread_groups(groups)?;
    let before = capabilities(None)?;
    setfsgid(Gid::from_raw(gid));
    // The kernel takes the power over files away with an id that is not the host's root.
    setfsuid(Uid::from_raw(uid));
    if is_root {
        Ok(set_capabilities(None, before)?)
    } else {
        drop_power()
    }
}

fn drop_power() -> io::Result<()> {
    let sets = CapabilitySets {
        effective: CapabilitySet::empty(),
        ..capabilities(None)?
    };
    Ok(set_capabilities(None, sets)?)
}

/// `root`, `app`, `1000`, `1000:1000`.
fn named(user: &str, users: &Database, groups: &Database) -> Result<Identity, Fault> {
    let unknown = || Fault::Path {
        code: ErrorCode::InvalidArgument,
        message: format!("user {user:?} is none of the container"),
    };
    let (name, group) = match user.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (user, None),
    };
    let entry = match name.parse() {
        Ok(uid) => users.by_id(uid),
        Err(_) => users.by_name(name),
    };
    let uid = match (name.parse(), &entry) {
        (Ok(uid), _) => uid,
        (Err(_), Some(fields)) => number(fields, 2).ok_or_else(unknown)?,
        // A root without a database is root all the same.
        (Err(_), None) if name == "root" => 0,
        (Err(_), None) => return Err(unknown()),
    };
    let gid = match group {
        Some(group) => match group.parse() {
            Ok(gid) => gid,
            Err(_) => groups
                .by_name(group)
                .and_then(|fields| number(&fields, 2))
                .ok_or_else(unknown)?,
        },
        None => entry
            .as_ref()
            .and_then(|fields| number(fields, 3))
            .unwrap_or(0),
    };
    let login = entry.as_ref().and_then(|fields| fields.first().copied());
    let groups = match (login, group) {
        (Some(login), None) => groups.groups_of(login).collect(),
        _ => Vec::new(),
    };
    Ok(Identity { uid, gid, groups })
}

/// The ids that a process has for file access.
fn of_process(pid: u32, uids: &IdMap, gids: &IdMap) -> Option<Identity> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = |key: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().map(|id| id.parse().ok()).collect()
    };
    // Real, effective, saved, and for file access.
    let uid = numbers("Uid:")?.get(3).copied()?;
    let gid = numbers("Gid:")?.get(3).copied()?;
    Some(Identity {
        uid: uids.to_container(uid)?,
        gid: gids.to_container(gid)?,
        groups: numbers("Groups:")?
            .into_iter()
            .filter_map(|group| gids.to_container(group))
            .collect(),
    })
}
