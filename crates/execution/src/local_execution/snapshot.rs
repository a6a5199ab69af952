//! Filesystem snapshot: claim, freeze, mark, capture, thaw, release; one claim over all of it.
//!
//! The mark says that the freeze took effect. Behind it a container that runs was thawed, and freezing it
//! again would capture a later moment under the same claim: that is never done.

use std::sync::Arc;

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionIsolation, ExecutionManagerError,
    ExecutionManagerResult, ExecutionSnapshot, ExecutionSnapshotId,
};

use super::capture::{SNAPSHOTS_FOLDER, SnapshotSource};
use super::claims::mint;
use super::evidence::{internal, lease, unknown_outcome, wrong_state};
use super::manager::LocalExecutionManager;
use super::observe::Seen;
use crate::snapshot::SnapshotStore;
use crate::store::{BoxRecord, ManagedExecutionOperation, ManagedExecutionState, RuntimeUpdate};
use crate::task::FencedVerb;

use ManagedExecutionState as State;

/// The claim of a record that is being snapshotted.
struct Claim {
    snapshot_id: ExecutionSnapshotId,
    freezer_applied: bool,
}

impl LocalExecutionManager {
    pub(super) async fn snapshot_execution(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<ExecutionSnapshot> {
        let record = self.require_current(execution_id, generation)?;
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
        if let Some(owner) = self.owner_of(&record, "snapshot")? {
            let verb = FencedVerb::Snapshot {
                snapshot_id: snapshot_id.clone(),
                home: self.home_dir.clone(),
            };
            let snapshotted = owner
                .fenced(generation, mint("snapshot")?, verb)
                .await?
                .record;
            let size_bytes = self
                .published(&snapshotted, snapshot_id)?
                .ok_or_else(|| internal(format!("snapshot {snapshot_id} was not published")))?;
            return answer(&snapshotted, snapshot_id, size_bytes);
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

    /// A frozen source whose freeze may not be marked yet.
    pub(super) async fn mark_and_capture(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let marked = if claim_of(&record)?.freezer_applied {
            record
        } else {
            self.mark_snapshot_freezer_applied(&record).await?
        };
        self.capture_and_thaw(marked).await
    }

    /// A source that runs behind its freeze.
    pub(super) async fn release_thawed(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let claim = claim_of(&record)?;
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

    pub(super) fn ended_before_capture(&self, record: &BoxRecord) -> ExecutionManagerError {
        match claim_of(record) {
            Ok(claim) => ExecutionManagerError::Unavailable(format!(
                "execution {} ended before filesystem snapshot {} was captured",
                record.id, claim.snapshot_id
            )),
            Err(error) => error,
        }
    }

    /// A running source: freeze it first.
    pub(super) async fn freeze_and_capture(
        &self,
        claimed: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
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
                Ok(Seen::Absent | Seen::AnotherBoot) => {
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
                Ok(Seen::Absent | Seen::AnotherBoot) => {
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
    pub(super) async fn capture_and_release(
        &self,
        claimed: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
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
        self.source(&claim.snapshot_id).capture(record, None).await
    }

    fn source(&self, snapshot_id: &ExecutionSnapshotId) -> SnapshotSource {
        SnapshotSource::new(
            Arc::clone(&self.backend),
            self.home_dir.clone(),
            snapshot_id.clone(),
        )
    }

    /// The size of a published snapshot of this execution; one of another execution is a conflict.
    fn published(
        &self,
        record: &BoxRecord,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        self.source(snapshot_id).published(record)
    }

    pub(super) fn snapshot_size(
        &self,
        snapshot_id: &ExecutionSnapshotId,
    ) -> ExecutionManagerResult<Option<u64>> {
        let stored = SnapshotStore::at(&self.home_dir.join(SNAPSHOTS_FOLDER)).get(snapshot_id)?;
        Ok(stored.map(|metadata| metadata.size_bytes))
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
}

fn claim_of(record: &BoxRecord) -> ExecutionManagerResult<Claim> {
    match &record.metadata()?.pending_operation {
        Some(ManagedExecutionOperation::Snapshot {
            snapshot_id,
            freezer_applied,
            ..
        }) => Ok(Claim {
            snapshot_id: snapshot_id.clone(),
            freezer_applied: *freezer_applied,
        }),
        _ => Err(internal(format!(
            "execution {} has no pending snapshot",
            record.id
        ))),
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
