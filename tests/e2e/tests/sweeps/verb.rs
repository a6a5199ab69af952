//! The verbs of a task that write: what comes before each, and the call itself.

use std::time::Duration;

use a3sbox_e2e::TaskIo;
use anyhow::{Context, Result};
use containerd_client::tonic::Status;

use crate::pod::Pod;

/// Longest wait for a process that was told to end.
const EXIT_LIMIT: Duration = Duration::from_secs(10);
const SIGTERM: u32 = 15;
pub(crate) const EXEC: &str = "e";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Start,
    Exec,
    Pause,
    Resume,
    /// With SIGTERM, which the process takes and ends with [`crate::pod::EXIT_CODE`]; its exit is part of it.
    Kill,
    /// Of a task that ended by itself.
    Delete,
}

impl Verb {
    pub(crate) const ALL: [Self; 7] = [
        Self::Create,
        Self::Start,
        Self::Exec,
        Self::Pause,
        Self::Resume,
        Self::Kill,
        Self::Delete,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Exec => "exec",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Kill => "kill",
            Self::Delete => "delete",
        }
    }

    /// Brings the pod's second container to where the verb makes sense.
    pub(crate) fn prepare(self, pod: &Pod<'_>) -> Result<()> {
        let (api, id) = (&pod.api, pod.subject.as_str());
        if self == Self::Create {
            return Ok(());
        }
        api.create(id, &TaskIo::default()).context("create")?;
        if self == Self::Start {
            return Ok(());
        }
        api.start(id, "").context("start")?;
        pod.await_ready()?;
        match self {
            Self::Resume => api.pause(id).context("pause")?,
            Self::Delete => {
                api.kill(id, "", SIGTERM, false).context("kill")?;
                api.wait(id, "", EXIT_LIMIT).context("wait")?;
            }
            Self::Create | Self::Start | Self::Exec | Self::Pause | Self::Kill => {}
        }
        Ok(())
    }

    /// The verb, whole: with the exit that it leads to.
    pub(crate) fn call(self, pod: &Pod<'_>) -> Result<(), Status> {
        let (api, id) = (&pod.api, pod.subject.as_str());
        match self {
            Self::Create => api.create(id, &TaskIo::default()).map(drop),
            Self::Start => api.start(id, "").map(drop),
            Self::Exec => {
                let process = serde_json::json!({"args": ["true"], "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}});
                api.exec(id, EXEC, &process, &TaskIo::default())?;
                api.start(id, EXEC)?;
                api.wait(id, EXEC, EXIT_LIMIT)?;
                api.delete_exec(id, EXEC).map(drop)
            }
            Self::Pause => api.pause(id),
            Self::Resume => api.resume(id),
            Self::Kill => {
                api.kill(id, "", SIGTERM, false)?;
                api.wait(id, "", EXIT_LIMIT).map(drop)
            }
            Self::Delete => api.delete(id).map(drop),
        }
    }
}
