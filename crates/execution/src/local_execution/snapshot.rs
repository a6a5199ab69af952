//! Filesystem snapshot: claim, freeze, mark, capture, thaw, release; one claim over all of it.
//!
//! The mark says that the freeze took effect. Behind it a container that runs was thawed, and freezing it
//! again would capture a later moment under the same claim: that is never done.

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionIsolation, ExecutionManagerError,
    ExecutionManagerResult, ExecutionSnapshot, ExecutionSnapshotId, SnapshotImageConfig,
    SnapshotMetadata,
};

use super::claims::mint;
use super::evidence::{internal, lease, unknown_outcome, wrong_state};
use super::manager::LocalExecutionManager;
use super::observe::Seen;
use super::settle::never_started;
use crate::snapshot::SnapshotStore;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, RuntimeUpdate};

use ManagedExecutionState as State;

const SNAPSHOTS_FOLDER: &str = "snapshots";
const ROOTFS_FOLDER: &str = "rootfs";

/// The claim of a record that is being snapshotted.
struct Claim {
    snapshot_id: ExecutionSnapshotId,
    source_state: State,
    freezer_applied: bool,
}

impl LocalExecutionManager {
    pub(super) async fn snapshot_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<ExecutionSnapshot> {
        let record = self.require_own(execution_id, generation, "snapshot")?;
        if record.isolation != ExecutionIsolation::Sandbox {
            return Err(ExecutionManagerError::Unavailable(
                "filesystem snapshots need sandbox isolation".to_owned(),
            ));
        }
        let state = record.state()?;
        if !matches!(state, State::Running | State::Paused) {
            return Err(wrong_state(execution_id, "snapshot", state));
        }
        if let Some(size_bytes) = self.published(&record, snapshot_id)? {
            return answer(&record, snapshot_id, size_bytes);
        }
        let claim = RuntimeUpdate::SnapshotClaim {
            snapshot_id: snapshot_id.clone(),
            source_state: state,
            operation_id: mint("snapshot")?,
        };
        let snapshot_id = snapshot_id.clone();
        let working = self.active.enter(execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let claimed = manager
                .transition(&record, state, State::Snapshotting, claim)
                .await?;
            let restored = if state == State::Running {
                manager.freeze_and_capture(claimed).await?
            } else {
                manager.capture_and_release(claimed).await?
            };
            let size_bytes = manager
                .published(&restored, &snapshot_id)?
                .ok_or_else(|| internal(format!("snapshot {snapshot_id} was not published")))?;
            answer(&restored, &snapshot_id, size_bytes)
        })
        .await
    }

    /// What an interrupted snapshot left.
    pub(super) async fn settle_snapshot(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let claim = claim_of(&record)?;
        match self.look(&record).await? {
            Seen::Live {
                is_paused: true, ..
            } => {
                if claim.source_state == State::Paused {
                    return self.capture_and_release(record).await;
                }
                let marked = if claim.freezer_applied {
                    record
                } else {
                    self.mark_snapshot_freezer_applied(&record).await?
                };
                self.capture_and_thaw(marked).await
            }
            Seen::Live {
                is_paused: false, ..
            } if claim.source_state == State::Running && !claim.freezer_applied => {
                self.freeze_and_capture(record).await
            }
            Seen::Live {
                is_paused: false, ..
            } => {
                let published = self.published(&record, &claim.snapshot_id)?.is_some();
                let running = self.release(&record, State::Running).await?;
                if published {
                    return Ok(running);
                }
                Err(ExecutionManagerError::Unavailable(format!(
                    "execution {} was thawed before filesystem snapshot {} was captured",
                    running.id, claim.snapshot_id
                )))
            }
            Seen::Pending => Err(never_started(&record)),
            Seen::Ended { state, exit_code } => {
                self.end(&record, state, exit_code).await?;
                Err(ended(&record, &claim.snapshot_id))
            }
            Seen::Absent => {
                self.end(&record, State::Stopped, None).await?;
                Err(ended(&record, &claim.snapshot_id))
            }
        }
    }

    /// A running source: freeze it first.
    async fn freeze_and_capture(&self, claimed: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        if let Err(error) = self.backend.pause(&claimed, true).await {
            match self.look(&claimed).await {
                Ok(Seen::Live {
                    is_paused: true, ..
                }) => {}
                Ok(Seen::Live {
                    is_paused: false, ..
                }) => {
                    self.release(&claimed, State::Running).await?;
                    return Err(error);
                }
                Ok(Seen::Ended { state, exit_code }) => {
                    self.end(&claimed, state, exit_code).await?;
                    return Err(error);
                }
                Ok(Seen::Absent) => {
                    self.end(&claimed, State::Stopped, None).await?;
                    return Err(error);
                }
                Ok(Seen::Pending) => return Err(error),
                Err(look) => return Err(unknown_outcome(&error, &look)),
            }
        }
        let frozen = self.mark_snapshot_freezer_applied(&claimed).await?;
        self.capture_and_thaw(frozen).await
    }

    /// A source that this claim froze: thaw it, whatever the capture says.
    async fn capture_and_thaw(&self, frozen: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        let captured = self.capture(&frozen).await;
        if let Err(error) = self.backend.resume(&frozen).await {
            match self.look(&frozen).await {
                Ok(Seen::Live {
                    is_paused: false, ..
                }) => {}
                Ok(Seen::Ended { state, exit_code }) => {
                    self.end(&frozen, state, exit_code).await?;
                    return Err(error);
                }
                Ok(Seen::Absent) => {
                    self.end(&frozen, State::Stopped, None).await?;
                    return Err(error);
                }
                // Still frozen: the claim stays, so that reconcile thaws it.
                Ok(Seen::Live { .. } | Seen::Pending) => return Err(error),
                Err(look) => return Err(unknown_outcome(&error, &look)),
            }
        }
        let running = self.release(&frozen, State::Running).await?;
        captured.map(|()| running)
    }

    /// A source that was paused by its user stays so.
    async fn capture_and_release(&self, claimed: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        let captured = self.capture(&claimed).await;
        let paused = self.release(&claimed, State::Paused).await?;
        captured.map(|()| paused)
    }

    async fn release(&self, claimed: &BoxRecord, to: State) -> ExecutionManagerResult<BoxRecord> {
        self.transition(claimed, State::Snapshotting, to, RuntimeUpdate::None)
            .await
    }

    /// Publishes the snapshot unless it is published already.
    async fn capture(&self, record: &BoxRecord) -> ExecutionManagerResult<()> {
        let claim = claim_of(record)?;
        if self.published(record, &claim.snapshot_id)?.is_some() {
            return Ok(());
        }
        self.backend.prepare_quiescent_rootfs(record).await?;
        let captured = self.copy_rootfs(record, &claim.snapshot_id).await;
        let cleaned = self.backend.cleanup_quiescent_rootfs(record).await;
        captured.and(cleaned)
    }

    async fn copy_rootfs(
        &self,
        record: &BoxRecord,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<()> {
        let rootfs = record.box_dir.join(ROOTFS_FOLDER);
        let base = self.home_dir.join(SNAPSHOTS_FOLDER);
        let mut metadata = SnapshotMetadata::new(
            snapshot_id.as_str(),
            snapshot_id.as_str(),
            record.id.clone(),
            record.image.clone(),
        );
        metadata.image_config = Some(image_config(record));
        let id = record.id.clone();
        tokio::task::spawn_blocking(move || {
            let is_populated =
                std::fs::read_dir(&rootfs).is_ok_and(|mut entries| entries.next().is_some());
            if !is_populated {
                return Err(ExecutionManagerError::Unavailable(format!(
                    "execution {id} has no populated managed rootfs to snapshot"
                )));
            }
            SnapshotStore::new(&base)?.save(metadata, &rootfs)?;
            Ok(())
        })
        .await
        .map_err(|error| internal(format!("the capture was not finished: {error}")))?
    }

    /// The size of a published snapshot of this execution; one of another execution is a conflict.
    fn published(
        &self,
        record: &BoxRecord,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        match self.stored_snapshot(snapshot_id)? {
            Some(metadata) if metadata.source_execution == record.id => {
                Ok(Some(metadata.size_bytes))
            }
            Some(_) => Err(ExecutionManagerError::Conflict {
                execution_id: record.execution_id()?,
                message: format!("snapshot {snapshot_id} is of another execution"),
            }),
            None => Ok(None),
        }
    }

    pub(super) fn snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        Ok(self
            .stored_snapshot(snapshot_id)?
            .map(|metadata| metadata.size_bytes))
    }

    pub(super) async fn delete_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<bool> {
        let base = self.home_dir.join(SNAPSHOTS_FOLDER);
        if !base.is_dir() {
            return Ok(false);
        }
        let snapshot_id = snapshot_id.clone();
        tokio::task::spawn_blocking(move || Ok(SnapshotStore::new(&base)?.delete(&snapshot_id)?))
            .await
            .map_err(|error| internal(format!("the deletion was not finished: {error}")))?
    }

    fn stored_snapshot(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<SnapshotMetadata>> {
        let base = self.home_dir.join(SNAPSHOTS_FOLDER);
        Ok(SnapshotStore::at(&base).get(snapshot_id)?)
    }
}

fn claim_of(record: &BoxRecord) -> ExecutionManagerResult<Claim> {
    match &record.metadata()?.pending_operation {
        Some(ManagedExecutionOperation::Snapshot {
            snapshot_id,
            source_state,
            freezer_applied,
            ..
        }) => Ok(Claim {
            snapshot_id: snapshot_id.clone(),
            source_state: *source_state,
            freezer_applied: *freezer_applied,
        }),
        _ => Err(internal(format!(
            "execution {} has no pending snapshot",
            record.id
        ))),
    }
}

/// What a restore has to know; the record's own settings stand for the image's.
fn image_config(record: &BoxRecord) -> SnapshotImageConfig {
    SnapshotImageConfig {
        entrypoint: record.entrypoint.clone(),
        cmd: (!record.cmd.is_empty()).then(|| record.cmd.clone()),
        env: record
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        working_dir: record.workdir.clone(),
        user: record.user.clone(),
        stop_signal: record.stop_signal.clone(),
        labels: record
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    }
}

fn answer(
    record: &BoxRecord,
    snapshot_id: &ExecutionSnapshotId,
    size_bytes: u64,
) -> ExecutionManagerResult<ExecutionSnapshot> {
    Ok(ExecutionSnapshot {
        snapshot_id: snapshot_id.clone(),
        size_bytes,
        state: record.state()?.observed(),
        lease: lease(record)?,
    })
}

fn ended(record: &BoxRecord, snapshot_id: &ExecutionSnapshotId) -> ExecutionManagerError {
    ExecutionManagerError::Unavailable(format!(
        "execution {} ended before filesystem snapshot {snapshot_id} was captured",
        record.id
    ))
}
