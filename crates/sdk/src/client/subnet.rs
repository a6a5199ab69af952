//! IPv4 subnets in CIDR form.

use std::fmt;
use std::net::Ipv4Addr;

use super::error::{ClientError, Result, invalid};

/// A network needs its own address, a gateway, one member and a broadcast address.
const MAX_PREFIX: u32 = 30;

/// A network address and its prefix length, 1 to 30.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subnet {
    network: Ipv4Addr,
    prefix: u32,
}

impl Subnet {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let malformed = || ClientError::Validation(format!("subnet {text:?} is not an IPv4 CIDR"));
        let (address, prefix) = text.split_once('/').ok_or_else(malformed)?;
        let address: Ipv4Addr = address.parse().map_err(|_| malformed())?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let prefix: u32 = prefix.parse().map_err(|_| malformed())?;
        if !(1..=MAX_PREFIX).contains(&prefix) {
            return invalid(format!(
                "prefix of subnet {text:?} is outside 1..={MAX_PREFIX}"
            ));
        }
        let mask = u32::MAX << (32 - prefix);
        Ok(Self {
            network: Ipv4Addr::from_bits(address.to_bits() & mask),
            prefix,
        })
    }

    /// The first address after the network's own; a prefix of 30 or less leaves room for it.
    pub(super) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | 1)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_the_network_address_plus_one() {
        for (text, subnet, gateway) in [
            ("10.89.0.0/24", "10.89.0.0/24", "10.89.0.1"),
            ("10.89.0.77/24", "10.89.0.0/24", "10.89.0.1"),
            ("192.168.1.4/30", "192.168.1.4/30", "192.168.1.5"),
            ("128.0.0.0/1", "128.0.0.0/1", "128.0.0.1"),
        ] {
            let parsed = Subnet::parse(text).unwrap();
            assert_eq!(parsed.to_string(), subnet);
            assert_eq!(parsed.gateway().to_string(), gateway);
        }
    }

    #[test]
    fn anything_but_a_cidr_of_one_to_thirty_bits_is_refused() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/0",
            "10.0.0.0/31",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/99999999999",
            "10.0.0/24",
            "10.0.0.256/24",
            "fd00::/64",
            "10.0.0.0/8/8",
            " 10.0.0.0/8",
        ] {
            assert!(
                matches!(Subnet::parse(text), Err(ClientError::Validation(_))),
                "{text:?}"
            );
        }
    }
}
