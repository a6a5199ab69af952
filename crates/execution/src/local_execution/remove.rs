//! Remove: the record and the host's folder of an execution that does not run. Never kills.

use std::path::Path;

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManagerError, ExecutionManagerResult, Fence,
};

use super::evidence::{internal, wrong_state};
use super::manager::LocalExecutionManager;
use super::owner::not_ours;
use crate::store::{BoxRecord, ManagedExecutionState, RuntimeUpdate, error_chain, folder_name};

impl LocalExecutionManager {
    pub(super) async fn remove_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<bool> {
        let Some(record) = self.get(execution_id).await? else {
            return Ok(false);
        };
        Fence::new(execution_id, record.generation()?).admit(generation)?;
        if record.metadata()?.task.is_some() {
            return Err(not_ours(&record, "remove"));
        }
        let state = record.state()?;
        let is_claimed = state == ManagedExecutionState::Removing;
        if !is_claimed && state.step_to(ManagedExecutionState::Removing).is_err() {
            return Err(wrong_state(execution_id, "remove", state));
        }
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let claimed = if is_claimed {
                record
            } else {
                manager
                    .transition(
                        &record,
                        state,
                        ManagedExecutionState::Removing,
                        RuntimeUpdate::None,
                    )
                    .await?
            };
            manager.finish_removal(&claimed).await
        })
        .await
    }

    /// Removes what a claimed removal has not removed yet.
    pub(super) async fn finish_removal(&self, record: &BoxRecord) -> ExecutionManagerResult<bool> {
        let boxes = self.home_dir.join("boxes");
        let box_dir = record.box_dir.clone();
        // Only the folder that this manager itself named; an odd id never gets to name a path.
        let is_own = folder_name(&record.id) == record.id && box_dir == boxes.join(&record.id);
        if is_own {
            tokio::task::spawn_blocking(move || remove_unmounted(&box_dir))
                .await
                .map_err(|error| internal(format!("the removal was not finished: {error}")))??;
        }
        Ok(self.store.remove(&record.execution_id()?)?)
    }
}

/// A mount below the folder is somebody's data: removing through it would delete that.
fn remove_unmounted(folder: &Path) -> ExecutionManagerResult<()> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = mount_below(&mounts, folder) {
        return Err(ExecutionManagerError::Unavailable(format!(
            "{} is still mounted",
            mount.display()
        )));
    }
    match a3sbox_durable::folder::remove_all(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(ExecutionManagerError::Unavailable(error_chain(&error))),
    }
}

/// The first mount point at or below a folder; field 5 of mountinfo, with octal escapes.
fn mount_below(mountinfo: &[u8], folder: &Path) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;

    let folder = folder.canonicalize().ok()?;
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|field| std::path::PathBuf::from(std::ffi::OsString::from_vec(unescape(field))))
        .find(|mount| mount.starts_with(&folder))
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(value) if byte == b'\\' => {
                plain.push(value);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_the_folder_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap().join("a b");
        std::fs::create_dir(&folder).unwrap();
        let escaped = folder.display().to_string().replace(' ', "\\040");
        let line = format!("36 35 98:0 / {escaped}/rootfs rw - overlay overlay rw\n");
        let found = mount_below(line.as_bytes(), &folder);
        assert_eq!(found, Some(folder.join("rootfs")));
        assert_eq!(
            mount_below(b"36 35 98:0 / /proc rw - proc proc rw\n", &folder),
            None
        );
        assert_eq!(mount_below(line.as_bytes(), &dir.path().join("gone")), None);
    }
}
