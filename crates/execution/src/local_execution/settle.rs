//! Settle: what a claim left behind, and what the backend sees, become one truth.
//!
//! Look, decide (file `decide.rs`, pure), act. The only place that acts on an interrupted operation; a start
//! whose own effect failed looks and decides in `start.rs`.

use a3sbox_core::{ExecutionManagerError, ExecutionManagerResult};

use super::backend::LocalExecutionHandle;
use super::decide::{Decision, Recorded, Sight, decide, needs_look};
use super::evidence::internal;
use super::manager::LocalExecutionManager;
use super::observe::{Seen, was_rebooted};
use crate::store::{BoxRecord, ManagedExecutionState, RuntimeUpdate};

use ManagedExecutionState as State;

impl LocalExecutionManager {
    /// Brings a record to a stable state, or to the state it is in while the backend is still creating.
    /// An error leaves the record as it was, unless it says that the execution has ended.
    pub(super) async fn settle(&self, record: BoxRecord) -> ExecutionManagerResult<BoxRecord> {
        let execution_id = record.execution_id()?;
        let working = self.active.enter(&execution_id);
        let manager = self.clone();
        Self::to_the_end(async move {
            let _working = working;
            let state = record.state()?;
            let seen = if needs_look(state) {
                manager.look(&record).await?
            } else if was_rebooted(&record) {
                Seen::AnotherBoot
            } else {
                // The decision does not hang on it.
                Seen::Absent
            };
            manager.settle_seen(record, seen).await
        })
        .await
    }

    /// The same inside a verb whose effect failed: look at what became of it.
    pub(super) async fn settle_by_look(
        &self,
        record: BoxRecord,
    ) -> ExecutionManagerResult<BoxRecord> {
        let seen = self.look(&record).await?;
        self.settle_seen(record, seen).await
    }

    async fn settle_seen(
        &self,
        record: BoxRecord,
        seen: Seen,
    ) -> ExecutionManagerResult<BoxRecord> {
        let state = record.state()?;
        let sight = Sight::of(&seen);
        let decision = decide(Recorded::of(&record, state), sight);
        tracing::debug!(execution_id = %record.id, %state, ?sight, ?decision, "settling");
        match decision {
            Decision::Keep => Ok(record),
            Decision::Confirm => match seen {
                Seen::Live { handle, .. } => self.keep_binding(record, &handle),
                _ => Ok(record),
            },
            Decision::CompleteStart => match seen {
                Seen::Live { handle, .. } => self.complete_start(&record, handle).await,
                _ => Ok(record),
            },
            Decision::StartAgain => self.start_claimed(record).await,
            Decision::Redo => match state {
                State::Killing => Ok(self.kill_claimed(&record).await?.0),
                State::UpdatingResources => self.settle_update(record).await,
                _ => self.restart_claimed(record).await,
            },
            Decision::Complete(to) => match seen {
                Seen::Live { handle, .. } => {
                    let update = RuntimeUpdate::Handle(handle);
                    self.transition(&record, state, to, update).await
                }
                _ => Ok(record),
            },
            Decision::CompleteColdPause => {
                let update = RuntimeUpdate::ColdPause;
                self.transition(&record, state, State::Paused, update).await
            }
            Decision::RollBack(to) => {
                self.transition(&record, state, to, RuntimeUpdate::None)
                    .await
            }
            Decision::FreezeAndCapture => self.freeze_and_capture(record).await,
            Decision::CaptureAndThaw => self.mark_and_capture(record).await,
            Decision::CaptureAndRelease => self.capture_and_release(record).await,
            Decision::ReleaseThawed => self.release_thawed(record).await,
            Decision::End(to) => {
                let exit_code = match seen {
                    Seen::Ended { exit_code, .. } => exit_code,
                    _ => None,
                };
                let ended = self.end(&record, to, exit_code).await?;
                match state {
                    State::Snapshotting => Err(self.ended_before_capture(&record)),
                    _ => Ok(ended),
                }
            }
            Decision::Contradiction => Err(contradiction(&record, state, sight)),
            Decision::NeverStarted => Err(internal(format!(
                "the runtime of execution {} was never started",
                record.id
            ))),
        }
    }

    /// Stores the binding that an adoption found for a record without one.
    pub(super) fn keep_binding(
        &self,
        record: BoxRecord,
        handle: &LocalExecutionHandle,
    ) -> ExecutionManagerResult<BoxRecord> {
        let metadata = record.metadata()?;
        if metadata.oci_runtime.is_some() || handle.oci_runtime.is_none() {
            return Ok(record);
        }
        let expected = (record.state()?, metadata.generation);
        let adopted = self
            .store
            .update(&record.execution_id()?, expected, |stored| {
                stored.pid = handle.pid;
                stored.pid_start_time = handle.pid_start_time;
                if let Some(metadata) = &mut stored.managed_execution {
                    metadata.oci_runtime.clone_from(&handle.oci_runtime);
                }
            })?;
        Ok(adopted)
    }
}

fn contradiction(record: &BoxRecord, state: State, sight: Sight) -> ExecutionManagerError {
    let id = &record.id;
    let seen = match sight {
        Sight::Pending => {
            return internal(format!(
                "execution {id} is recorded as {state}, and its runtime was never started"
            ));
        }
        Sight::Paused => "paused",
        _ => "running",
    };
    ExecutionManagerError::Unavailable(format!(
        "execution {id} is recorded as {state}, and its runtime is {seen}"
    ))
}
