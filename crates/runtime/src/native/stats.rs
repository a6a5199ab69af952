//! PROPOSAL: statistics; its owner replaces it.

use a3sbox_oci::{ContainerStats, Error};

use crate::owner::Container;

pub(crate) fn stats(_container: &Container) -> Result<ContainerStats, Error> {
    Err(Error::unsupported("stats"))
}
