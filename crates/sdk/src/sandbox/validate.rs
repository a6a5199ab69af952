//! Checks of what a caller gives; every refusal is `Validation`, before anything is called.

use std::net::IpAddr;

use super::options::SandboxCreateOptions;
use crate::client::{Result, invalid};

const MAX_HOST_NAME_BYTES: usize = 253;
const MAX_HOST_LABEL_BYTES: usize = 63;

pub(super) fn options(options: &SandboxCreateOptions) -> Result<()> {
    if options.image.trim().is_empty() {
        return invalid("image must not be blank");
    }
    if options.timeout_seconds == 0 {
        return invalid("timeout must be greater than 0");
    }
    if options.cpus == Some(0) {
        return invalid("cpus must be greater than 0");
    }
    if options.memory_mb == Some(0) {
        return invalid("memory must be greater than 0");
    }
    if let Some(workdir) = &options.workdir {
        guest_path("working directory", workdir)?;
    }
    for key in options.envs.keys() {
        env_key(key)?;
    }
    for tmpfs in &options.tmpfs {
        mount_target("tmpfs target", &tmpfs.target)?;
        if tmpfs.size_bytes == Some(0) {
            return invalid(format!("size of tmpfs {:?} must not be 0", tmpfs.target));
        }
    }
    for server in &options.dns_servers {
        if server.parse::<IpAddr>().is_err() {
            return invalid(format!("DNS server {server:?} is not an IP address"));
        }
    }
    for (host, address) in &options.host_aliases {
        if !is_host_name(host) {
            return invalid(format!("host alias {host:?} is not a host name"));
        }
        if address.parse::<IpAddr>().is_err() {
            return invalid(format!("host alias {host} has no IP address: {address:?}"));
        }
    }
    for port in &options.ports {
        if port.guest_port == 0 {
            return invalid(format!("published port {port} has guest port 0"));
        }
    }
    if let Some(command) = &options.command {
        argv("command", command)?;
    }
    if let Some(entrypoint) = &options.entrypoint {
        argv("entrypoint", entrypoint)?;
    }
    Ok(())
}

pub(super) fn guest_path(what: &str, path: &str) -> Result<()> {
    if !path.starts_with('/') || path.contains('\0') {
        return invalid(format!("{what} {path:?} is not an absolute path"));
    }
    Ok(())
}

/// A mount's parts are joined by colons, so a colon inside one would name another mount.
pub(super) fn mount_target(what: &str, path: &str) -> Result<()> {
    guest_path(what, path)?;
    if path.contains(':') {
        return invalid(format!("{what} {path:?} must not have a ':'"));
    }
    Ok(())
}

pub(super) fn env_key(key: &str) -> Result<()> {
    if key.is_empty() || key.contains(['=', '\0']) {
        return invalid(format!("{key:?} cannot name an environment variable"));
    }
    Ok(())
}

/// A command line whose first word names a program.
pub(super) fn argv(what: &str, argv: &[String]) -> Result<()> {
    if argv.first().is_none_or(|head| head.trim().is_empty()) {
        return invalid(format!("{what} must name a program"));
    }
    Ok(())
}

/// Letters, digits and inner hyphens in labels between dots (RFC 1123).
fn is_host_name(host: &str) -> bool {
    host.len() <= MAX_HOST_NAME_BYTES
        && host.split('.').all(|label| {
            (1..=MAX_HOST_LABEL_BYTES).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_those_of_rfc_1123() {
        let long = format!("{}.{}", "a".repeat(63), "b".repeat(63));
        for good in ["db", "a-b.c1", "1.example", long.as_str()] {
            assert!(is_host_name(good), "{good:?}");
        }
        let label = "a".repeat(64);
        let name = vec!["a".repeat(63); 4].join(".");
        for bad in [
            "", ".", "a.", "-a", "a-", "a_b", "a b", "a:b", &label, &name,
        ] {
            assert!(!is_host_name(bad), "{bad:?}");
        }
    }
}
