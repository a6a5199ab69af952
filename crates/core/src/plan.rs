//! From a configuration to a plan: what isolates an execution and which controls that takes.
//!
//! Pure and deterministic, because stored plans are compared with a fresh one.

use serde::{Deserialize, Serialize};

use crate::config::BoxConfig;
use crate::error::{BoxError, Result};
use crate::isolation::{ExecutionBackend, ExecutionIsolation, IsolationClass};
use crate::network::NetworkMode;

/// What confines a sandbox, in the order in which it is recorded.
const SANDBOX_CONTROLS: [&str; 10] = [
    "user-namespace",
    "mount-namespace",
    "pid-namespace",
    "ipc-namespace",
    "uts-namespace",
    "network-namespace",
    "seccomp",
    "capability-bounding-set",
    "no-new-privileges",
    "cgroup-v2",
];

/// Capabilities that a sandbox may be given: each acts within its own namespaces only.
const SANDBOX_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedExecutionPlan {
    pub requested_isolation: ExecutionIsolation,
    pub backend: ExecutionBackend,
    pub isolation_class: IsolationClass,
    pub required_controls: Vec<String>,
}

/// Settles how a configuration is run, or says why it never can be.
///
/// # Errors
/// `ConfigError` for an option that the asked isolation cannot honour.
pub fn resolve_execution(config: &BoxConfig) -> Result<ResolvedExecutionPlan> {
    validate_microvm_compatibility(config)?;
    validate_sandbox_compatibility(config)?;
    Ok(match config.isolation {
        ExecutionIsolation::Microvm => ResolvedExecutionPlan {
            requested_isolation: config.isolation,
            backend: ExecutionBackend::Microvm,
            isolation_class: IsolationClass::DedicatedVm,
            required_controls: Vec::new(),
        },
        ExecutionIsolation::Sandbox => ResolvedExecutionPlan {
            requested_isolation: config.isolation,
            backend: ExecutionBackend::Native,
            isolation_class: IsolationClass::SharedHostKernel,
            required_controls: SANDBOX_CONTROLS.map(str::to_owned).to_vec(),
        },
    })
}

/// Ok for a configuration that asks for another isolation.
///
/// # Errors
/// `ConfigError` for a security option that a microVM cannot honour.
pub fn validate_microvm_compatibility(config: &BoxConfig) -> Result<()> {
    if config.isolation.is_sandbox() {
        return Ok(());
    }
    check_security_options(config)
}

/// Ok for a configuration that asks for another isolation.
///
/// # Errors
/// `ConfigError` for a security option, feature or capability that a sandbox cannot honour.
pub fn validate_sandbox_compatibility(config: &BoxConfig) -> Result<()> {
    if !config.isolation.is_sandbox() {
        return Ok(());
    }
    check_security_options(config)?;
    check_sandbox_features(config)?;
    check_sandbox_capabilities(config)
}

fn check_security_options(config: &BoxConfig) -> Result<()> {
    config
        .security_opt
        .iter()
        .try_for_each(|entry| check_security_option(entry.trim(), config.isolation))
}

fn check_security_option(entry: &str, isolation: ExecutionIsolation) -> Result<()> {
    let sandbox = isolation.is_sandbox();
    let unsupported =
        |what: &str| refuse(format!("{what} not supported: security option {entry:?}"));
    let (key, value) = match entry.split_once('=') {
        Some((key, value)) => (key.to_ascii_lowercase(), Some(value)),
        None => (entry.to_ascii_lowercase(), None),
    };
    match (key.as_str(), value) {
        ("no-new-privileges", None) => Ok(()),
        ("no-new-privileges", Some(value)) if value.eq_ignore_ascii_case("true") => Ok(()),
        ("no-new-privileges", Some(value)) if value.eq_ignore_ascii_case("false") => {
            if sandbox {
                return unsupported("gaining privileges in a sandbox is");
            }
            Ok(())
        }
        ("seccomp", Some("")) => refuse(format!("security option {entry:?} names no profile")),
        ("seccomp", Some(value)) if value.eq_ignore_ascii_case("default") => Ok(()),
        ("seccomp", Some(value)) if value.eq_ignore_ascii_case("unconfined") => {
            if sandbox {
                return unsupported("a sandbox without seccomp is");
            }
            Ok(())
        }
        ("seccomp", Some(_)) => unsupported("a custom seccomp profile is"),
        ("apparmor", Some(_)) => unsupported("an AppArmor profile is"),
        ("label", Some(_)) => unsupported("an SELinux label is"),
        _ => refuse(format!("security option {entry:?} is not known")),
    }
}

/// All offenders in one message, so that a caller can mend them in one go.
fn check_sandbox_features(config: &BoxConfig) -> Result<()> {
    let offenders: Vec<&str> = [
        ("privileged", config.privileged),
        ("port_map", !config.port_map.is_empty()),
        (
            "bridge network",
            matches!(config.network, NetworkMode::Bridge { .. }),
        ),
        ("sysctls", !config.sysctls.is_empty()),
    ]
    .into_iter()
    .filter_map(|(name, asked)| asked.then_some(name))
    .collect();
    if offenders.is_empty() {
        return Ok(());
    }
    refuse(format!(
        "sandbox isolation does not support: {}",
        offenders.join(", ")
    ))
}

fn check_sandbox_capabilities(config: &BoxConfig) -> Result<()> {
    let offenders: Vec<&str> = config
        .cap_add
        .iter()
        .map(String::as_str)
        .filter(|name| !is_sandbox_capability(name))
        .collect();
    if offenders.is_empty() {
        return Ok(());
    }
    refuse(format!(
        "sandbox isolation cannot add capabilities: {}",
        offenders.join(", ")
    ))
}

fn is_sandbox_capability(name: &str) -> bool {
    let upper = name.trim().to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    SANDBOX_CAPABILITIES.contains(&bare)
}

fn refuse(message: String) -> Result<()> {
    Err(BoxError::ConfigError(message))
}

#[cfg(test)]
mod tests;
