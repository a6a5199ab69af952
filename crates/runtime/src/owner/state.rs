//! The states of a container and what moves it between them.
//!
//! ```text
//! Creating ──created──► Created ──started──► Running ◄──resumed── Paused
//!     │                    │                  │  └───paused──────►  │
//!     │                    └──────exited──────┴────────exited───────┤
//!     └──(a create that fails leaves no container)                  ▼
//!                                                                Stopped
//! ```
//!
//! Pure: no clock, no file, no log. The live path and the one that reads a journal back both use it.

use a3sbox_oci::oci_spec::runtime::ContainerState;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    Creating,
    Created,
    Running,
    Paused,
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    /// Restored from a checkpoint: it runs at once.
    Restored,
    Started,
    Paused,
    Resumed,
    Exited,
}

/// The event cannot happen in this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a container that is {status:?} cannot be {event:?}")]
pub(crate) struct IllegalEvent {
    status: Status,
    event: Event,
}

/// The state after an event.
pub(crate) fn next(status: Status, event: Event) -> Result<Status, IllegalEvent> {
    match (status, event) {
        (Status::Creating, Event::Created) => Ok(Status::Created),
        (Status::Creating, Event::Restored)
        | (Status::Created | Status::Running, Event::Started)
        | (Status::Running | Status::Paused, Event::Resumed) => Ok(Status::Running),
        (Status::Running | Status::Paused, Event::Paused) => Ok(Status::Paused),
        (Status::Created | Status::Running | Status::Paused, Event::Exited)
        // The exit was seen while the verb was under way: it stays stopped.
        | (Status::Stopped, Event::Started | Event::Paused | Event::Resumed | Event::Exited) => {
            Ok(Status::Stopped)
        }
        (Status::Creating, Event::Started | Event::Paused | Event::Resumed | Event::Exited)
        | (Status::Created, Event::Created | Event::Restored | Event::Paused | Event::Resumed)
        | (Status::Running, Event::Created | Event::Restored)
        | (Status::Paused, Event::Created | Event::Restored | Event::Started)
        | (Status::Stopped, Event::Created | Event::Restored) => Err(IllegalEvent { status, event }),
    }
}

impl Status {
    /// The state as OCI has it: a paused container runs.
    pub(crate) fn oci(self) -> ContainerState {
        match self {
            Self::Creating => ContainerState::Creating,
            Self::Created => ContainerState::Created,
            Self::Running | Self::Paused => ContainerState::Running,
            Self::Stopped => ContainerState::Stopped,
        }
    }

    /// Its init process is there.
    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Self::Created | Self::Running | Self::Paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_decided() {
        use Event as E;
        use Status as S;
        let events = [
            E::Created,
            E::Restored,
            E::Started,
            E::Paused,
            E::Resumed,
            E::Exited,
        ];
        let table = [
            (
                S::Creating,
                [Some(S::Created), Some(S::Running), None, None, None, None],
            ),
            (
                S::Created,
                [None, None, Some(S::Running), None, None, Some(S::Stopped)],
            ),
            (
                S::Running,
                [
                    None,
                    None,
                    Some(S::Running),
                    Some(S::Paused),
                    Some(S::Running),
                    Some(S::Stopped),
                ],
            ),
            (
                S::Paused,
                [
                    None,
                    None,
                    None,
                    Some(S::Paused),
                    Some(S::Running),
                    Some(S::Stopped),
                ],
            ),
            (
                S::Stopped,
                [
                    None,
                    None,
                    Some(S::Stopped),
                    Some(S::Stopped),
                    Some(S::Stopped),
                    Some(S::Stopped),
                ],
            ),
        ];
        for (status, row) in table {
            for (event, expected) in events.into_iter().zip(row) {
                assert_eq!(next(status, event).ok(), expected, "{status:?} {event:?}");
            }
        }
    }
}
