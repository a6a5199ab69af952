//! Published ports.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortProtocol {
    #[default]
    Tcp,
}

/// One port of the host that leads to one of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortMapping {
    /// Zero lets the host choose.
    pub host_port: u16,
    pub guest_port: u16,
    #[serde(default)]
    pub protocol: PortProtocol,
}

impl PortMapping {
    /// # Errors
    /// A text for people when the guest port is zero.
    pub fn tcp(host_port: u16, guest_port: u16) -> Result<Self, String> {
        if guest_port == 0 {
            return Err("guest port must not be 0".to_owned());
        }
        Ok(Self {
            host_port,
            guest_port,
            protocol: PortProtocol::Tcp,
        })
    }

    /// `host:guest`, the form of a port map's entries.
    pub fn runtime_entry(&self) -> String {
        format!("{}:{}", self.host_port, self.guest_port)
    }
}

impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.runtime_entry())
    }
}

/// Reads `H:G` or `H:G/tcp`.
///
/// # Errors
/// A text for people: UDP, ranges, host addresses and single ports are refused.
pub fn parse_port_mapping(value: &str) -> Result<PortMapping, String> {
    let text = value.trim();
    let ports = match text.split_once('/') {
        None => text,
        Some((ports, "tcp")) => ports,
        Some((_, protocol)) => {
            return Err(format!(
                "port mapping {value:?} has protocol {protocol:?}, only tcp is supported"
            ));
        }
    };
    let form = || format!("port mapping {value:?} is not host:guest");
    let (host, guest) = ports.split_once(':').ok_or_else(form)?;
    let host = port(host).ok_or_else(form)?;
    let guest = port(guest).ok_or_else(form)?;
    PortMapping::tcp(host, guest).map_err(|error| format!("port mapping {value:?}: {error}"))
}

fn port(text: &str) -> Option<u16> {
    // A sign would parse too.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_guest_are_read() {
        for (text, host, guest) in [
            ("8080:80", 8080, 80),
            ("0:80", 0, 80),
            ("65535:1/tcp", 65535, 1),
            (" 1:2 ", 1, 2),
        ] {
            let mapping = parse_port_mapping(text).unwrap();
            assert_eq!((mapping.host_port, mapping.guest_port), (host, guest));
            assert_eq!(mapping.protocol, PortProtocol::Tcp);
            assert_eq!(mapping.runtime_entry(), format!("{host}:{guest}"));
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "80",
            ":80",
            "80:",
            "80:0",
            "8080:80/udp",
            "8080:80/",
            "8000-8010:80",
            "127.0.0.1:8080:80",
            "65536:80",
            "+1:2",
            "-1:2",
            "a:b",
            "8080: 80",
        ] {
            assert!(parse_port_mapping(text).is_err(), "{text:?}");
        }
        assert!(PortMapping::tcp(1, 0).is_err());
    }
}
