//! Named networks: definitions that sandboxes can join.

use std::collections::{BTreeMap, HashMap};

use a3sbox_core::error::BoxError;
use a3sbox_core::{IsolationMode, NetworkConfig, NetworkEndpoint};
use chrono::{SecondsFormat, Utc};

use super::error::{ClientError, Result, invalid};
use super::handle::A3sBoxClient;
use super::names;
use super::store::NamedStore;
use super::subnet::Subnet;

const SCHEMA: &str = "a3sbox.networks.v1";
const BRIDGE_DRIVER: &str = "bridge";
const DEFAULT_SUBNET: &str = "10.89.0.0/24";

/// What a new network is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateNetwork {
    pub name: String,
    /// IPv4 CIDR.
    pub subnet: String,
    pub driver: String,
    pub labels: HashMap<String, String>,
    pub isolation: IsolationMode,
}

impl CreateNetwork {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            subnet: DEFAULT_SUBNET.to_owned(),
            driver: BRIDGE_DRIVER.to_owned(),
            labels: HashMap::new(),
            isolation: IsolationMode::None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkEndpointSummary {
    pub box_id: String,
    pub box_name: String,
    pub ip_address: String,
    pub mac_address: String,
}

impl From<NetworkEndpoint> for NetworkEndpointSummary {
    fn from(endpoint: NetworkEndpoint) -> Self {
        Self {
            box_id: endpoint.box_id,
            box_name: endpoint.box_name,
            ip_address: endpoint.ip_address.to_string(),
            mac_address: endpoint.mac_address,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSummary {
    pub name: String,
    pub driver: String,
    pub subnet: String,
    pub gateway: String,
    pub labels: HashMap<String, String>,
    pub endpoints: Vec<NetworkEndpointSummary>,
    pub endpoint_count: usize,
    pub isolation: String,
    /// RFC 3339.
    pub created_at: String,
}

impl From<NetworkConfig> for NetworkSummary {
    fn from(network: NetworkConfig) -> Self {
        let endpoints: Vec<_> = network.endpoints.into_values().map(Into::into).collect();
        Self {
            name: network.name,
            driver: network.driver,
            subnet: network.subnet,
            gateway: network.gateway.to_string(),
            labels: network.labels.into_iter().collect(),
            endpoint_count: endpoints.len(),
            endpoints,
            isolation: network.isolation.to_string(),
            created_at: network.created_at,
        }
    }
}

/// Builds one network; nothing happens before [`NetworkBuilder::create`].
#[derive(Debug, Clone)]
pub struct NetworkBuilder {
    client: A3sBoxClient,
    request: CreateNetwork,
}

impl NetworkBuilder {
    #[must_use]
    pub fn subnet(mut self, cidr: impl Into<String>) -> Self {
        self.request.subnet = cidr.into();
        self
    }

    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.labels.insert(key.into(), value.into());
        self
    }

    /// Anything but `None` is refused by [`NetworkBuilder::create`], as nothing enforces it yet.
    #[must_use]
    pub fn isolation(mut self, isolation: IsolationMode) -> Self {
        self.request.isolation = isolation;
        self
    }

    pub fn request(&self) -> &CreateNetwork {
        &self.request
    }

    /// # Errors
    /// See [`A3sBoxClient::create_network`].
    pub fn create(self) -> Result<NetworkSummary> {
        self.client.create_network(self.request)
    }
}

/// Named networks. All of these are short file operations on the calling thread.
impl A3sBoxClient {
    pub fn network(&self, name: impl Into<String>) -> NetworkBuilder {
        NetworkBuilder {
            client: self.clone(),
            request: CreateNetwork::new(name),
        }
    }

    /// # Errors
    /// `Validation` for a bad name, subnet, driver or an isolation that nothing enforces, `Runtime` for
    /// a name that is taken, `State` when the file cannot be written.
    pub fn create_network(&self, request: CreateNetwork) -> Result<NetworkSummary> {
        names::check("network", &request.name)?;
        if request.driver != BRIDGE_DRIVER {
            return invalid(format!(
                "network driver {:?} is not supported, only {BRIDGE_DRIVER:?} is",
                request.driver
            ));
        }
        if request.isolation != IsolationMode::None {
            return invalid(format!(
                "network isolation {} is not supported: nothing enforces it",
                request.isolation
            ));
        }
        let subnet = Subnet::parse(&request.subnet)?;
        self.networks().update(|networks| {
            if networks.contains_key(&request.name) {
                return Err(refused(format!(
                    "network {:?} already exists",
                    request.name
                )));
            }
            let network = NetworkConfig {
                name: request.name.clone(),
                driver: request.driver,
                subnet: subnet.to_string(),
                gateway: subnet.gateway(),
                labels: request.labels.into_iter().collect(),
                endpoints: BTreeMap::new(),
                isolation: request.isolation,
                created_at: Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
            };
            networks.insert(request.name, network.clone());
            Ok(network.into())
        })
    }

    pub fn get_network(&self, name: &str) -> Result<Option<NetworkSummary>> {
        Ok(self.networks().read()?.remove(name).map(Into::into))
    }

    /// In the order of their names.
    pub fn list_networks(&self) -> Result<Vec<NetworkSummary>> {
        Ok(self
            .networks()
            .read()?
            .into_values()
            .map(Into::into)
            .collect())
    }

    /// # Errors
    /// `Runtime` for an unknown network and for one that still has members.
    pub fn remove_network(&self, name: &str) -> Result<()> {
        names::check("network", name)?;
        self.networks().update(|networks| {
            let network = networks
                .get(name)
                .ok_or_else(|| refused(format!("network {name:?} does not exist")))?;
            if !network.endpoints.is_empty() {
                return Err(refused(format!(
                    "network {name:?} still has {} members",
                    network.endpoints.len()
                )));
            }
            networks.remove(name);
            Ok(())
        })
    }

    /// Removes every network without members and returns their names.
    pub fn prune_networks(&self) -> Result<Vec<String>> {
        self.networks().update(|networks| {
            let unused: Vec<String> = networks
                .values()
                .filter(|network| network.endpoints.is_empty())
                .map(|network| network.name.clone())
                .collect();
            for name in &unused {
                networks.remove(name);
            }
            Ok(unused)
        })
    }

    fn networks(&self) -> NamedStore<'_, NetworkConfig> {
        NamedStore::new(&self.paths().networks_file, SCHEMA)
    }
}

fn refused(message: String) -> ClientError {
    BoxError::NetworkError(message).into()
}
