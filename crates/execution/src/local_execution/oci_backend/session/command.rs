//! What a caller asked to run, checked before the runtime hears of it.

use std::collections::BTreeMap;
use std::time::Duration;

use a3sbox_core::ExecutionManagerResult;
use a3sbox_core::exec::{DEFAULT_EXEC_TIMEOUT_NS, ExecRequest as BoxExecRequest};
use a3sbox_core::pty::PtyRequest;
use a3sbox_oci::oci_spec::runtime::{
    LinuxCapabilitiesBuilder, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process,
    ProcessBuilder, UserBuilder,
};
use a3sbox_oci::{IoMode, ProcessIo, RuntimeOperation, TerminalSize};

use super::super::error::{internal, invalid};
use super::executable;
use crate::BoxRecord;

const MAX_REQUEST_ID_BYTES: usize = 512;
const DEFAULT_DIRECTORY: &str = "/";
const ROOT_USER: &str = "root";

/// A command or a terminal, in the one form that both are launched from.
#[derive(Debug)]
pub(super) struct SessionCommand {
    /// Names the intent across retries; `None` is an intent of its own.
    pub(super) request_id: Option<String>,
    cmd: Vec<String>,
    env: Vec<String>,
    working_dir: Option<String>,
    user: User,
    /// Written at once after the start.
    pub(super) stdin: Option<Vec<u8>>,
    /// The caller writes too; standard input stays open for it.
    pub(super) keeps_stdin: bool,
    terminal_size: Option<TerminalSize>,
    /// `None` for a terminal, which lives until somebody ends it.
    pub(super) timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

impl SessionCommand {
    pub(super) fn one_shot(request: BoxExecRequest) -> ExecutionManagerResult<Self> {
        if let Some(id) = &request.request_id {
            let fits = !id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES && !id.contains('\0');
            if !fits {
                return Err(invalid(format!(
                    "a request id must have 1 to {MAX_REQUEST_ID_BYTES} bytes without NUL"
                )));
            }
        }
        let mut command = Self::new(request)?;
        if command.keeps_stdin {
            // Nobody can write to a captured command: its input is what the request brought.
            command.stdin.get_or_insert_default();
            command.keeps_stdin = false;
        }
        Ok(command)
    }

    pub(super) fn streaming(request: BoxExecRequest) -> ExecutionManagerResult<Self> {
        if request.request_id.is_some() {
            return Err(invalid("a streaming process takes no request id"));
        }
        Self::new(request)
    }

    fn new(request: BoxExecRequest) -> ExecutionManagerResult<Self> {
        validate_target(&request.cmd, request.rootfs.as_deref())?;
        let timeout_ns = match request.timeout_ns {
            0 => DEFAULT_EXEC_TIMEOUT_NS,
            given => given,
        };
        Ok(Self {
            request_id: request.request_id,
            cmd: request.cmd,
            env: request.env,
            working_dir: request.working_dir,
            user: User::parse(request.user.as_deref())?,
            stdin: request.stdin,
            keeps_stdin: request.stdin_streaming,
            terminal_size: None,
            timeout: Some(Duration::from_nanos(timeout_ns)),
        })
    }

    pub(super) fn terminal(request: PtyRequest) -> ExecutionManagerResult<Self> {
        validate_target(&request.cmd, request.rootfs.as_deref())?;
        Ok(Self {
            request_id: None,
            cmd: request.cmd,
            env: request.env,
            working_dir: request.working_dir,
            user: User::parse(request.user.as_deref())?,
            stdin: None,
            keeps_stdin: true,
            terminal_size: Some(terminal_size(request.cols, request.rows)?),
            timeout: None,
        })
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.terminal_size.is_some()
    }

    pub(super) fn has_stdin(&self) -> bool {
        self.stdin.is_some() || self.keeps_stdin
    }

    pub(super) fn io(&self) -> ProcessIo {
        if self.is_terminal() {
            return ProcessIo {
                stdin: IoMode::Terminal,
                stdout: IoMode::Terminal,
                stderr: IoMode::Terminal,
                terminal_size: self.terminal_size,
            };
        }
        ProcessIo {
            stdin: if self.has_stdin() {
                IoMode::Pipe
            } else {
                IoMode::Null
            },
            stdout: IoMode::Capture,
            stderr: IoMode::Capture,
            terminal_size: None,
        }
    }

    /// What the runtime must offer before anything is dispatched.
    pub(super) fn operations(&self) -> Vec<RuntimeOperation> {
        let mut operations = vec![
            RuntimeOperation::Exec,
            RuntimeOperation::ReadOutput,
            RuntimeOperation::SignalProcess,
            RuntimeOperation::WaitProcess,
        ];
        if self.has_stdin() {
            operations.extend([RuntimeOperation::WriteStdin, RuntimeOperation::CloseStdin]);
        }
        if self.is_terminal() {
            operations.push(RuntimeOperation::Resize);
        }
        operations
    }

    /// The OCI process: nothing is inherited from the container but its record's environment and
    /// ulimits, and it gets no capability whatever its user.
    pub(super) fn process(&self, record: &BoxRecord) -> ExecutionManagerResult<Process> {
        let env = merged_environment(record, &self.env);
        let cwd = self.working_dir.as_deref().unwrap_or(DEFAULT_DIRECTORY);
        let mut args = self.cmd.clone();
        let rootfs = record.box_dir.join("rootfs");
        args[0] = executable::resolve(&rootfs, &args[0], cwd, &env)?;
        let none = std::collections::HashSet::new();
        let capabilities = LinuxCapabilitiesBuilder::default()
            .bounding(none.clone())
            .effective(none.clone())
            .inheritable(none.clone())
            .permitted(none.clone())
            .ambient(none)
            .build();
        let user = UserBuilder::default()
            .uid(self.user.uid)
            .gid(self.user.gid)
            .build();
        capabilities
            .and_then(|capabilities| {
                ProcessBuilder::default()
                    .terminal(self.is_terminal())
                    .user(user?)
                    .args(args)
                    .env(env)
                    .cwd(cwd)
                    .capabilities(capabilities)
                    .rlimits(rlimits(record))
                    .no_new_privileges(true)
                    .build()
            })
            .map_err(|error| internal(format!("cannot build the process: {error}")))
    }
}

impl User {
    fn parse(text: Option<&str>) -> ExecutionManagerResult<Self> {
        let text = match text {
            None | Some(ROOT_USER) => return Ok(Self { uid: 0, gid: 0 }),
            Some(text) => text,
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
        match (number(uid), number(gid)) {
            (Some(uid), Some(gid)) => Ok(Self { uid, gid }),
            _ => Err(invalid(format!(
                "user {text:?} is neither root nor numeric"
            ))),
        }
    }
}

/// Digits only: the parser of the language would take a sign too.
fn number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

fn validate_target(cmd: &[String], rootfs: Option<&str>) -> ExecutionManagerResult<()> {
    if cmd.first().is_none_or(String::is_empty) {
        return Err(invalid("the command is empty"));
    }
    if rootfs.is_some() {
        return Err(invalid("a process cannot have a second rootfs"));
    }
    Ok(())
}

pub(super) fn terminal_size(cols: u16, rows: u16) -> ExecutionManagerResult<TerminalSize> {
    if cols == 0 || rows == 0 {
        return Err(invalid(format!(
            "a terminal of {cols} columns and {rows} rows"
        )));
    }
    Ok(TerminalSize {
        width: cols,
        height: rows,
    })
}

/// The record's environment, overridden by the request's, sorted by name.
fn merged_environment(record: &BoxRecord, requested: &[String]) -> Vec<String> {
    let mut merged: BTreeMap<&str, &str> = record
        .env
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let mut odd = Vec::new();
    for entry in requested {
        match entry.split_once('=') {
            Some((key, value)) => {
                merged.insert(key, value);
            }
            None => odd.push(entry.clone()),
        }
    }
    let mut env: Vec<_> = merged
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    env.append(&mut odd);
    env
}

/// The record's ulimits, `NAME=SOFT:HARD`. What cannot be read was refused or ignored at creation.
fn rlimits(record: &BoxRecord) -> Vec<PosixRlimit> {
    record
        .resource_limits
        .ulimits
        .iter()
        .filter_map(|text| rlimit(text))
        .collect()
}

fn rlimit(text: &str) -> Option<PosixRlimit> {
    let (name, values) = text.split_once('=')?;
    let (soft, hard) = values.split_once(':').unwrap_or((values, values));
    let typ: PosixRlimitType =
        serde_json::from_value(format!("RLIMIT_{}", name.to_ascii_uppercase()).into()).ok()?;
    PosixRlimitBuilder::default()
        .typ(typ)
        .soft(soft.parse::<u64>().ok()?)
        .hard(hard.parse::<u64>().ok()?)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_root_or_numbers() {
        for (text, uid, gid) in [
            (None, 0, 0),
            (Some("root"), 0, 0),
            (Some("7"), 7, 0),
            (Some("7:8"), 7, 8),
        ] {
            assert_eq!(User::parse(text).unwrap(), User { uid, gid }, "{text:?}");
        }
        for text in [
            "",
            ":",
            "7:",
            ":8",
            "nobody",
            "-1",
            "+1",
            "1:2:3",
            "4294967296",
        ] {
            assert!(User::parse(Some(text)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ulimits_become_rlimits() {
        let parsed = rlimit("nofile=1024:2048").unwrap();
        assert_eq!(parsed.typ(), PosixRlimitType::RlimitNofile);
        assert_eq!((parsed.soft(), parsed.hard()), (1024, 2048));
        assert_eq!(rlimit("core=0").unwrap().hard(), 0);
        assert!(rlimit("nothing=1:2").is_none());
        assert!(rlimit("nofile").is_none());
    }
}
