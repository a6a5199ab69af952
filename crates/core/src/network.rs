//! How an execution reaches the network, and named networks as they are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// Outgoing connections by way of the node, without an interface of its own.
    #[default]
    Tsi,
    /// A named network.
    Bridge {
        network: String,
    },
    None,
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tsi => f.write_str("tsi"),
            Self::Bridge { network } => write!(f, "bridge:{network}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// Who may talk to whom inside a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationMode {
    /// Everybody.
    #[default]
    None,
    /// Nobody.
    Strict,
}

impl fmt::Display for IsolationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Strict => "strict",
        })
    }
}

/// One execution's place in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkEndpoint {
    pub box_id: String,
    pub box_name: String,
    pub ip_address: Ipv4Addr,
    pub mac_address: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    pub name: String,
    pub driver: String,
    /// IPv4 CIDR.
    pub subnet: String,
    pub gateway: Ipv4Addr,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// By execution id.
    #[serde(default)]
    pub endpoints: BTreeMap<String, NetworkEndpoint>,
    #[serde(default)]
    pub isolation: IsolationMode,
    /// RFC 3339.
    pub created_at: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_one_form_for_people_and_one_for_the_wire() {
        for (mode, display, json) in [
            (NetworkMode::Tsi, "tsi", serde_json::json!("tsi")),
            (
                NetworkMode::Bridge {
                    network: "ci".into(),
                },
                "bridge:ci",
                serde_json::json!({"bridge": {"network": "ci"}}),
            ),
            (NetworkMode::None, "none", serde_json::json!("none")),
        ] {
            assert_eq!(mode.to_string(), display);
            assert_eq!(serde_json::to_value(&mode).unwrap(), json);
            assert_eq!(serde_json::from_value::<NetworkMode>(json).unwrap(), mode);
        }
        assert_eq!(NetworkMode::default(), NetworkMode::Tsi);
    }
}
