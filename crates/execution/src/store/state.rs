//! The durable states of an execution and every legal step between them, as a pure function.
//!
//! ```text
//! creating ─► created ─► starting ─► running ─► pausing ─► paused ─► resuming ─► running
//!                                    running ─► updating_resources | snapshotting ─► running
//!                                    running | paused ─► killing ─► stopped
//!  created | running | paused | stopped | failed ─► restart_stopping ─► restart_starting ─► running
//!  created | stopped | failed ─► removing ─► (gone)
//! ```
//! Nearly every state may also end in `stopped` or `failed`. The generation grows on three edges only.

use std::fmt;

use a3sbox_core::ExecutionState;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagedExecutionState {
    Creating,
    Created,
    Starting,
    Running,
    Pausing,
    Paused,
    Resuming,
    UpdatingResources,
    Snapshotting,
    Killing,
    RestartStopping,
    RestartStarting,
    Removing,
    Stopped,
    Failed,
}

/// A status text that no state has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown execution status {0:?}")]
pub struct UnknownStatus(pub String);

/// A step that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{from} cannot become {to}")]
pub struct IllegalTransition {
    pub from: ManagedExecutionState,
    pub to: ManagedExecutionState,
}

/// What a legal step does to the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationStep {
    Keep,
    Advance,
}

impl ManagedExecutionState {
    pub const ALL: [Self; 15] = [
        Self::Creating,
        Self::Created,
        Self::Starting,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::UpdatingResources,
        Self::Snapshotting,
        Self::Killing,
        Self::RestartStopping,
        Self::RestartStarting,
        Self::Removing,
        Self::Stopped,
        Self::Failed,
    ];

    /// The text in a record's `status`.
    #[must_use]
    pub const fn as_status(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::UpdatingResources => "updating_resources",
            Self::Snapshotting => "snapshotting",
            Self::Killing => "killing",
            Self::RestartStopping => "restart_stopping",
            Self::RestartStarting => "restart_starting",
            Self::Removing => "removing",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// The state of a status text. `dead`, which older records used, is failed.
    pub fn from_status(status: &str) -> Result<Self, UnknownStatus> {
        if status == "dead" {
            return Ok(Self::Failed);
        }
        Self::ALL
            .into_iter()
            .find(|state| state.as_status() == status)
            .ok_or_else(|| UnknownStatus(status.to_owned()))
    }

    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }

    /// The state is a claim: an operation is under way and recorded with it.
    #[must_use]
    pub const fn is_transitional(self) -> bool {
        match self {
            Self::Starting
            | Self::Pausing
            | Self::Resuming
            | Self::UpdatingResources
            | Self::Snapshotting
            | Self::Killing
            | Self::RestartStopping
            | Self::RestartStarting
            | Self::Removing => true,
            Self::Creating
            | Self::Created
            | Self::Running
            | Self::Paused
            | Self::Stopped
            | Self::Failed => false,
        }
    }

    /// What a caller is told while the record says this.
    #[must_use]
    pub const fn observed(self) -> ExecutionState {
        match self {
            Self::Created => ExecutionState::Created,
            Self::Creating | Self::Starting | Self::RestartStarting => ExecutionState::Creating,
            Self::Running
            | Self::Pausing
            | Self::UpdatingResources
            | Self::Snapshotting
            | Self::Killing
            | Self::RestartStopping => ExecutionState::Running,
            Self::Paused | Self::Resuming => ExecutionState::Paused,
            Self::Removing | Self::Stopped => ExecutionState::Stopped,
            Self::Failed => ExecutionState::Failed,
        }
    }

    /// The table. Total: every pair is either a step or an [`IllegalTransition`].
    pub const fn step_to(self, to: Self) -> Result<GenerationStep, IllegalTransition> {
        use ManagedExecutionState as S;

        let is_legal = match self {
            S::Creating => matches!(
                to,
                S::Created | S::Starting | S::Killing | S::Stopped | S::Failed
            ),
            S::Created => matches!(
                to,
                S::Starting
                    | S::Killing
                    | S::RestartStopping
                    | S::Removing
                    | S::Stopped
                    | S::Failed
            ),
            S::Starting => matches!(
                to,
                S::Created | S::Creating | S::Running | S::Killing | S::Stopped | S::Failed
            ),
            S::Running => matches!(
                to,
                S::Pausing
                    | S::UpdatingResources
                    | S::Snapshotting
                    | S::Killing
                    | S::RestartStopping
                    | S::Stopped
                    | S::Failed
            ),
            S::Pausing => matches!(
                to,
                S::Paused | S::Running | S::Killing | S::Stopped | S::Failed
            ),
            S::Paused => matches!(
                to,
                S::Resuming
                    | S::Snapshotting
                    | S::Killing
                    | S::RestartStopping
                    | S::Stopped
                    | S::Failed
            ),
            S::Resuming => matches!(
                to,
                S::Running | S::Paused | S::Killing | S::Stopped | S::Failed
            ),
            S::UpdatingResources => {
                matches!(to, S::Running | S::Killing | S::Stopped | S::Failed)
            }
            // A kill does not wait for a snapshot: it thaws and ends the container.
            S::Snapshotting => matches!(
                to,
                S::Running | S::Paused | S::Killing | S::Stopped | S::Failed
            ),
            S::Killing => matches!(to, S::Stopped | S::Failed),
            S::Stopped | S::Failed => matches!(to, S::RestartStopping | S::Removing),
            S::RestartStopping => matches!(to, S::RestartStarting),
            S::RestartStarting => matches!(to, S::Running | S::Stopped | S::Failed),
            S::Removing => false,
        };
        if !is_legal {
            return Err(IllegalTransition { from: self, to });
        }
        Ok(match (self, to) {
            (S::Pausing, S::Paused)
            | (S::Resuming, S::Running)
            | (S::RestartStopping, S::RestartStarting) => GenerationStep::Advance,
            _ => GenerationStep::Keep,
        })
    }
}

impl fmt::Display for ManagedExecutionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_status())
    }
}

#[cfg(test)]
mod tests;
