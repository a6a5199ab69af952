//! Why an engine call failed. The engine's words are parsed here, once, beside the call.
//!
//! The texts are those of runc 1.1 (1.1.5 is what the tests run), crun 1.8 and youki 0.5; the tests below
//! name the version with each. A text that is not known is [`FailureKind::Other`], which is never wrong.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

/// At most this much of an engine's log or output is looked at.
pub(crate) const MAX_ENGINE_TEXT_BYTES: u64 = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The text is what Go's `exec` package says, since that is what clients of the stock shim see.
    #[error("{}", missing_text(binary))]
    Missing { binary: PathBuf },
    #[error("cannot run OCI engine {}", binary.display())]
    Spawn { binary: PathBuf, source: io::Error },
    #[error("cannot {what} for an engine call")]
    Prepare {
        what: &'static str,
        source: io::Error,
    },
    #[error("OCI engine did not end its {verb} within {} s", after.as_secs())]
    Deadline { verb: &'static str, after: Duration },
    #[error("{message}")]
    Failed { kind: FailureKind, message: String },
    #[error("OCI engine ended its {verb} without the pid of the process")]
    NoPid {
        verb: &'static str,
        source: io::Error,
    },
}

fn missing_text(binary: &std::path::Path) -> String {
    if binary.is_absolute() {
        format!("fork/exec {}: no such file or directory", binary.display())
    } else {
        format!(
            "exec: \"{}\": executable file not found in $PATH",
            binary.display()
        )
    }
}

impl EngineError {
    pub(crate) fn kind(&self) -> FailureKind {
        match self {
            Self::Failed { kind, .. } => *kind,
            Self::Missing { .. }
            | Self::Spawn { .. }
            | Self::Prepare { .. }
            | Self::Deadline { .. }
            | Self::NoPid { .. } => FailureKind::Other,
        }
    }
}

/// What an engine's message means, as far as this driver decides on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The engine knows no such container.
    NoContainer,
    ContainerExists,
    /// The container's process has ended.
    NotRunning,
    Paused,
    NotPaused,
    /// The container or exec was made and its process could not be run; poststop hooks have been due.
    StartProcess,
    /// A hook failed or ran out of time.
    Hook,
    LimitBelowUse,
    Other,
}

impl FailureKind {
    fn of(message: &str) -> Self {
        let has = |text: &str| message.contains(text);
        if has("container does not exist")
            || has("does not exist") && has("container")
            // crun reads its state file without asking first.
            || has("error opening file") && has("/status`: No such file or directory")
        {
            Self::NoContainer
        } else if has("container with given ID already exists")
            || has("already exists") && has("container")
        {
            Self::ContainerExists
        } else if has("error running hook") || has("hook ran past specified timeout") {
            Self::Hook
        } else if has("unable to start container process") {
            Self::StartProcess
        } else if has("unable to set memory limit to") || has("unable to set memory + swap limit") {
            Self::LimitBelowUse
        } else if has("container not paused") {
            Self::NotPaused
        } else if has("in a paused container") || has("in the paused state") {
            Self::Paused
        } else if has("container not running")
            || has("cannot exec in a stopped container")
            || has("cannot start a container that has stopped")
            || has("process already finished")
            || has("no such process")
        {
            Self::NotRunning
        } else {
            Self::Other
        }
    }
}

/// One line of the engine's JSON log: logrus' (runc), crun's and the tracing crate's (youki) form.
#[derive(Deserialize)]
struct LogLine {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    fields: LogFields,
}

#[derive(Deserialize, Default)]
struct LogFields {
    #[serde(default)]
    message: String,
}

/// What a failed call left behind: its log, and what it wrote to its stderr.
pub(crate) fn failure(log: &str, stderr: &str, status: &str, binary: &str) -> EngineError {
    let logged = log
        .lines()
        .filter_map(|line| serde_json::from_str::<LogLine>(line).ok())
        .filter(|line| line.level.eq_ignore_ascii_case("error"))
        .map(|line| {
            if line.msg.is_empty() {
                line.fields.message
            } else {
                line.msg
            }
        })
        .rfind(|message| !message.trim().is_empty());
    let message = logged
        .or_else(|| last_words(stderr))
        .unwrap_or_else(|| format!("{binary} did not terminate successfully: {status}"));
    let message = message.trim().to_owned();
    EngineError::Failed {
        kind: FailureKind::of(&message),
        message,
    }
}

/// An engine that failed before it had a log (a bad option, a crash) has said so on stderr.
fn last_words(stderr: &str) -> Option<String> {
    let text = stderr.trim();
    (!text.is_empty()).then(|| text.lines().last().unwrap_or(text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runc(message: &str) -> FailureKind {
        let log =
            serde_json::json!({ "level": "error", "msg": message, "time": "2026-01-01T00:00:00Z" });
        failure(&log.to_string(), "", "exit status: 1", "runc").kind()
    }

    #[test]
    fn runc_1_1_5_texts_are_told_apart() {
        for (message, kind) in [
            ("container does not exist", FailureKind::NoContainer),
            (
                "exec failed: container does not exist",
                FailureKind::NoContainer,
            ),
            (
                "runc create failed: container with given ID already exists",
                FailureKind::ContainerExists,
            ),
            (
                "runc create failed: unable to start container process: exec: \"/bin/nosuch\": stat /bin/nosuch: no such file or directory",
                FailureKind::StartProcess,
            ),
            (
                "exec failed: unable to start container process: exec: \"/etc\": permission denied",
                FailureKind::StartProcess,
            ),
            (
                "runc create failed: unable to start container process: error during container init: error running hook #0: exit status 9, stdout: , stderr: ",
                FailureKind::Hook,
            ),
            (
                "exec failed: cannot exec in a paused container (use --ignore-paused to override)",
                FailureKind::Paused,
            ),
            (
                "cannot start a container in the paused state",
                FailureKind::Paused,
            ),
            ("container not paused", FailureKind::NotPaused),
            ("container not running", FailureKind::NotRunning),
            (
                "unable to set memory limit to 1000 (current usage: 397312, peak usage: 2355200)",
                FailureKind::LimitBelowUse,
            ),
            (
                "unable to signal init: invalid argument",
                FailureKind::Other,
            ),
        ] {
            assert_eq!(runc(message), kind, "{message}");
        }
    }

    #[test]
    fn the_last_error_of_the_log_counts_and_warnings_do_not() {
        let log = concat!(
            r#"{"level":"error","msg":"first"}"#,
            "\n",
            r#"{"level":"error","msg":" second "}"#,
            "\nnot json\n",
            r#"{"level":"warning","msg":"third"}"#,
            "\n"
        );
        assert_eq!(
            failure(log, "noise", "exit status: 1", "runc").to_string(),
            "second"
        );
    }

    #[test]
    fn without_a_log_stderr_speaks_and_without_that_the_status() {
        assert_eq!(
            failure("", "usage\nflag provided but not defined\n", "x", "runc").to_string(),
            "flag provided but not defined"
        );
        assert_eq!(
            failure("", "", "exit status: 3", "runc").to_string(),
            "runc did not terminate successfully: exit status: 3"
        );
    }

    #[test]
    fn the_log_form_of_youki_0_5_is_read() {
        let log = r#"{"timestamp":"t","level":"ERROR","fields":{"message":"container x does not exist"}}"#;
        assert_eq!(
            failure(log, "", "", "youki").kind(),
            FailureKind::NoContainer
        );
    }
}
