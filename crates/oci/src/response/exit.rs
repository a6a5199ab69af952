//! How a process ended.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Exit of a process: exactly one of an exit code and a signal. A runtime that does not know the
/// status answers with an error, never with an invented value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawExitStatus")]
pub struct ExitStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub oom_killed: bool,
    /// When it ended, in nanoseconds since the Unix epoch, where the runtime saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exited_at_unix_ns: Option<u64>,
}

impl ExitStatus {
    /// A process that returned a code of 0 to 255.
    pub fn exited(code: i32) -> Result<Self> {
        Self {
            exit_code: Some(code),
            signal: None,
            oom_killed: false,
            exited_at_unix_ns: None,
        }
        .checked()
    }

    /// A process that a signal ended.
    pub fn signaled(signal: i32, oom_killed: bool) -> Result<Self> {
        Self {
            exit_code: None,
            signal: Some(signal),
            oom_killed,
            exited_at_unix_ns: None,
        }
        .checked()
    }

    /// Adds the time of the exit.
    #[must_use]
    pub const fn at(mut self, unix_ns: u64) -> Self {
        self.exited_at_unix_ns = Some(unix_ns);
        self
    }

    /// Checks the rules of the type, for a value that was built by its fields.
    pub fn validate(&self) -> Result<()> {
        match (self.exit_code, self.signal) {
            (Some(code), None) if !(0..=255).contains(&code) => Err(Error::invalid(format!(
                "exit code must be 0 to 255, it is {code}"
            ))),
            (Some(_), None) if self.oom_killed => Err(Error::invalid(
                "only a process that a signal ended can be killed for lack of memory",
            )),
            (None, Some(signal)) if signal <= 0 => Err(Error::invalid(format!(
                "signal number must be positive, it is {signal}"
            ))),
            (Some(_), None) | (None, Some(_)) => Ok(()),
            (Some(_), Some(_)) | (None, None) => Err(Error::invalid(
                "an exit status has either an exit code or a signal",
            )),
        }
    }

    fn checked(self) -> Result<Self> {
        self.validate()?;
        Ok(self)
    }
}

#[derive(Deserialize)]
struct RawExitStatus {
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(default)]
    signal: Option<i32>,
    #[serde(default)]
    oom_killed: bool,
    #[serde(default)]
    exited_at_unix_ns: Option<u64>,
}

impl TryFrom<RawExitStatus> for ExitStatus {
    type Error = Error;

    fn try_from(raw: RawExitStatus) -> Result<Self> {
        Self {
            exit_code: raw.exit_code,
            signal: raw.signal,
            oom_killed: raw.oom_killed,
            exited_at_unix_ns: raw.exited_at_unix_ns,
        }
        .checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_rules() {
        for code in [0, 1, 255] {
            assert_eq!(ExitStatus::exited(code).unwrap().exit_code, Some(code));
        }
        for code in [-1, 256, i32::MAX] {
            assert!(ExitStatus::exited(code).is_err());
        }
        assert!(ExitStatus::signaled(i32::MAX, true).unwrap().oom_killed);
        assert!(ExitStatus::signaled(0, false).is_err());
        assert!(ExitStatus::signaled(-9, false).is_err());
        let mut both = ExitStatus::exited(1).unwrap();
        both.signal = Some(9);
        assert!(both.validate().is_err());
        let mut neither = ExitStatus::exited(1).unwrap();
        neither.exit_code = None;
        assert!(neither.validate().is_err());
        let mut oom = ExitStatus::exited(137).unwrap();
        oom.oom_killed = true;
        assert!(oom.validate().is_err());
    }

    #[test]
    fn decoding_an_exit_status_checks_it() {
        let status = ExitStatus::signaled(9, true).unwrap().at(7);
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(
            text,
            r#"{"signal":9,"oom_killed":true,"exited_at_unix_ns":7}"#
        );
        assert_eq!(serde_json::from_str::<ExitStatus>(&text).unwrap(), status);
        assert_eq!(
            serde_json::to_string(&ExitStatus::exited(3).unwrap()).unwrap(),
            r#"{"exit_code":3,"oom_killed":false}"#
        );
        for bad in [
            r#"{"oom_killed":false}"#,
            r#"{"exit_code":1,"signal":9,"oom_killed":false}"#,
            r#"{"exit_code":300,"oom_killed":false}"#,
        ] {
            assert!(serde_json::from_str::<ExitStatus>(bad).is_err(), "{bad}");
        }
    }
}
