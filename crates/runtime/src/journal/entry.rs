//! The lines of a container's journal.

use a3sbox_oci::{ExitStatus, OperationId, ProcessId, StdioUris};
use serde::{Deserialize, Serialize};

use super::digest::RequestDigest;
use crate::native::cgroup::CgroupPaths;
use crate::native::identity::ProcessIdentity;
use crate::owner::state::Status;

/// Who asked, and for what exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operation {
    pub(crate) id: OperationId,
    pub(crate) digest: RequestDigest,
}

/// How a process ended, as far as anybody will ever know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Exit {
    Known(ExitStatus),
    /// Nobody saw it: the process was gone when it was looked for.
    Unknown {
        because: String,
    },
}

/// What is kept of a process that was added to the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecEntry {
    pub(crate) process: ProcessId,
    pub(crate) operation: Option<Operation>,
    pub(crate) identity: ProcessIdentity,
    pub(crate) terminal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stdio: Option<StdioUris>,
}

impl ExecEntry {
    /// Its output is captured here, and nobody says when it is no longer wanted.
    pub(crate) fn is_session(&self) -> bool {
        self.operation.is_some() && self.stdio.is_none()
    }
}

/// One fact. A container is what its record and these facts, in order, make of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Entry {
    Created {
        identity: ProcessIdentity,
        cgroup: CgroupPaths,
        /// It was restored from a checkpoint and runs.
        #[serde(default)]
        restored: bool,
    },
    Started {
        operation: Operation,
    },
    Paused {
        operation: Operation,
    },
    Resumed {
        operation: Operation,
    },
    Updated {
        operation: Operation,
    },
    /// Written before the signal is sent: after a crash it counts as sent and is not sent again.
    Signaled {
        operation: Operation,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
    },
    /// The signal could not be sent after all: the operation may be tried again.
    NotSignaled {
        operation: OperationId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
    },
    Exec(ExecEntry),
    Exited {
        process: ProcessId,
        exit: Exit,
    },
    /// An added process was deleted, and with it all that is known of it.
    Forgotten {
        process: ProcessId,
    },
    /// A session ended, and nobody has asked for it for a while: of it, its ids are left.
    Expired {
        process: ProcessId,
    },
    /// Ids of operations and processes that can no longer be replayed, as a compaction found them.
    Past {
        ids: String,
    },
    /// The state and an outcome as a compaction found them.
    Settled {
        status: Status,
    },
    Outcome {
        operation: Operation,
        status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
        /// It stays as long as the container.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lasting: bool,
    },
}
