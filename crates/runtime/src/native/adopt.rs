//! Going on where another process has stopped: the containers in the service's root.
//!
//! | found | becomes |
//! |---|---|
//! | folder without a record | removed: nothing was asked of the engine |
//! | record, journal without "created" | undone, after an engine that still works on it was ended |
//! | journal says created, engine says running | running: the start was not recorded |
//! | journal and freezer disagree | as the freezer has it: a pause or resume was not recorded |
//! | init alive (pid and start time) | as the journal says, watched; its exit status will be unknown |
//! | init gone, exit in the journal | stopped, with that exit |
//! | init gone, no exit | stopped, exit unknown |
//! | another boot | as if every process had gone |

use std::path::Path;
use std::sync::Arc;

use a3sbox_oci::ProcessId;

use super::delete::Undo;
use super::leftover::{self, Leftover};
use super::{Driver, delete, exit, wanted};
use crate::error::RuntimeError;
use crate::journal::{ContainerJournal, Entry, ExecEntry, Exit};
use crate::native::cgroup::Cgroup;
use crate::native::exec::{EXEC_PID_PREFIX, EXEC_PID_SUFFIX};
use crate::native::identity::ProcessIdentity;
use crate::native::reaper::{SpawnHold, Watched};
use crate::owner::record::ContainerFile;
use crate::owner::state::Status;
use crate::owner::{Container, ProcessSlot};
use crate::stdio::Streams;

/// Adopts every container below the root. One that cannot be read stays as it is, and is logged: it must not
/// keep the others from being served.
pub(crate) async fn all(driver: &Arc<Driver>) -> Result<(), RuntimeError> {
    let entries = std::fs::read_dir(&driver.config.root)
        .map_err(RuntimeError::io("list the runtime's root"))?;
    for entry in entries {
        let entry = entry.map_err(RuntimeError::io("list the runtime's root"))?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if is_hidden || !entry.path().is_dir() {
            continue;
        }
        if let Err(error) = one(driver, &entry.path()).await {
            tracing::error!(
                folder = %entry.path().display(),
                error = %crate::error::with_sources(&error),
                "a container cannot be adopted"
            );
        }
    }
    Ok(())
}

async fn one(driver: &Arc<Driver>, folder: &Path) -> Result<(), RuntimeError> {
    a3sbox_durable::sweep(folder)?;
    let Some(file) = ContainerFile::read(folder)? else {
        a3sbox_durable::folder::remove_all(folder)?;
        return Ok(());
    };
    let journal = ContainerJournal::open(folder)?;
    let leftover = if journal.image.status == Status::Creating {
        Leftover::Kill
    } else {
        Leftover::Finish
    };
    leftover::settle(folder, leftover).await;
    let is_same_boot = file.boot_id == driver.boot_id;
    let engine = wanted::engine_of(&file.engine);
    let container = Arc::new(Container::new(
        folder.to_path_buf(),
        file,
        engine,
        driver.events.clone(),
        journal,
    ));
    driver.registry.insert(container.clone());

    let (status, init, cgroup, recorded) = container.read(|image| {
        (
            image.status,
            image.init,
            image.cgroup.clone(),
            image.exit.clone(),
        )
    });
    let Some(init) = init.filter(|_| status != Status::Creating) else {
        undo_interrupted(driver, &container).await;
        return Ok(());
    };
    if let Some(cgroup) = cgroup {
        let cgroup = Cgroup::from_paths(cgroup);
        // What was killed before has been told, or there was nobody to tell.
        let kills = cgroup.oom_kills();
        container.note_oom_kills(kills);
        container.note_oom_exit(kills);
        container.set_cgroup(cgroup);
    }
    let adopted = Found {
        container: &container,
        is_same_boot,
    };
    let slot = adopted.process(
        &ProcessId::init(),
        init,
        container.file().terminal,
        recorded,
        container.file().stdio.as_ref(),
    )?;
    container.set_init(slot.clone());
    adopted.execs()?;
    if status == Status::Created && !slot.has_ended() {
        adopted.started_unseen().await;
    }
    if !slot.has_ended() {
        adopted.paused_or_resumed_unseen();
    }
    if !slot.has_ended() {
        exit::watch_init(&container, &slot);
        exit::watch_oom(&container);
    }
    Ok(())
}

struct Found<'a> {
    container: &'a Arc<Container>,
    is_same_boot: bool,
}

impl Found<'_> {
    /// The process as it is now: watched, or with the exit that is recorded or unknown.
    fn process(
        &self,
        id: &ProcessId,
        identity: ProcessIdentity,
        terminal: bool,
        recorded: Option<Exit>,
        stdio: Option<&a3sbox_oci::StdioUris>,
    ) -> Result<Arc<ProcessSlot>, RuntimeError> {
        if let Some(exit) = recorded {
            return Ok(Arc::new(ProcessSlot::ended(identity.pid, terminal, exit)));
        }
        let watched = if self.is_same_boot {
            Watched::adopt(identity).map_err(RuntimeError::io("watch an adopted process"))?
        } else {
            None
        };
        let Some(watched) = watched else {
            let exit = Exit::Unknown {
                because: exit::UNSEEN.to_owned(),
            };
            self.container.commit(Entry::Exited {
                process: id.clone(),
                exit: exit.clone(),
            })?;
            return Ok(Arc::new(ProcessSlot::ended(identity.pid, terminal, exit)));
        };
        let slot = ProcessSlot::running(Arc::new(watched), terminal);
        slot.set_streams(Streams::adopt(stdio));
        Ok(Arc::new(slot))
    }

    /// A start whose service ended before it was recorded: the engine knows.
    async fn started_unseen(&self) {
        let container = self.container;
        let hold = SpawnHold::take();
        let state = container
            .engine
            .state(container.folder(), container.engine_id(), &hold)
            .await;
        drop(hold);
        let noted = match state {
            Ok(state) if state.status == "running" => container.note(Entry::Settled {
                status: Status::Running,
            }),
            Ok(_) => return,
            Err(error) => Err(RuntimeError::engine("OCI runtime state failed")(error)),
        };
        if let Err(error) = noted {
            tracing::warn!(container_id = %container.id(), error = %error, "whether a container was started is not known");
        }
    }

    /// A pause or a resume whose service ended before it was recorded: the kernel knows. Repeated, it finds
    /// nothing to do, which is its outcome.
    fn paused_or_resumed_unseen(&self) {
        let container = self.container;
        let Some(cgroup) = container.cgroup() else {
            return;
        };
        let status = match (container.status(), cgroup.is_asked_to_freeze()) {
            (Status::Running, Ok(Some(true))) => Status::Paused,
            (Status::Paused, Ok(Some(false))) => Status::Running,
            (_, Ok(_)) => return,
            (_, Err(error)) => {
                tracing::warn!(container_id = %container.id(), error = %error, "whether a container is frozen is not known");
                return;
            }
        };
        if let Err(error) = container.note(Entry::Settled { status }) {
            tracing::warn!(container_id = %container.id(), error = %error, "a pause or resume is not recorded");
        }
    }

    fn execs(&self) -> Result<(), RuntimeError> {
        self.unrecorded_execs()?;
        let recorded: Vec<(ExecEntry, Option<Exit>)> = self.container.read(|image| {
            image
                .execs
                .values()
                .map(|exec| (exec.entry.clone(), exec.exit.clone()))
                .collect()
        });
        for (entry, exit) in recorded {
            let slot = self.process(
                &entry.process,
                entry.identity,
                entry.terminal,
                exit,
                entry.stdio.as_ref(),
            )?;
            self.container.insert_exec(&entry.process, slot.clone());
            if !slot.has_ended() {
                exit::watch_exec(self.container, &entry.process, &slot);
            }
        }
        Ok(())
    }

    /// Execs whose pid file is there and whose journal line is not: the service ended in between.
    fn unrecorded_execs(&self) -> Result<(), RuntimeError> {
        let listing = std::fs::read_dir(self.container.folder())
            .map_err(RuntimeError::io("list a container's folder"))?;
        for entry in listing.filter_map(Result::ok) {
            let name = entry.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_prefix(EXEC_PID_PREFIX))
                .and_then(|name| name.strip_suffix(EXEC_PID_SUFFIX))
                .and_then(|id| ProcessId::new(id).ok());
            let Some(id) = id else { continue };
            let identity = std::fs::read_to_string(entry.path())
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .and_then(ProcessIdentity::of);
            // A pid that is in the container's cgroup is the container's process, whoever had it before.
            let identity = identity.filter(|identity| {
                self.container
                    .cgroup()
                    .and_then(|cgroup| cgroup.pids().ok())
                    .is_some_and(|pids| pids.contains(&identity.pid))
            });
            let is_known = self.container.read(|image| image.execs.contains_key(&id));
            if let (Some(identity), false) = (identity, is_known) {
                self.container.commit(Entry::Exec(ExecEntry {
                    process: id,
                    operation: None,
                    identity,
                    terminal: false,
                    stdio: None,
                }))?;
            }
            let _ = std::fs::remove_file(entry.path());
        }
        Ok(())
    }
}

/// A create that was under way. Its init may be there already, with the pid in the engine's file.
async fn undo_interrupted(driver: &Arc<Driver>, container: &Arc<Container>) {
    tracing::warn!(container_id = %container.id(), "undoing a create that was interrupted");
    delete::undo_create(driver, container, Undo::Interrupted).await;
    remove_unrecorded_cgroup(container);
}

/// The engine may have made a cgroup that nobody noted. Its place is known from the config; it is removed when
/// it is empty, and never emptied: the place may be one that others use too.
fn remove_unrecorded_cgroup(container: &Container) {
    let file = container.file();
    let removed = Cgroup::from_config(
        file.cgroups_path.as_deref(),
        container.engine_id(),
        file.engine.systemd_cgroup,
    )
    .and_then(|cgroup| cgroup.remove_if_empty());
    if let Err(error) = removed {
        tracing::warn!(container_id = %container.id(), error = %error, "a cgroup may be left");
    }
}
