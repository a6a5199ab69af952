//! The ids that sandboxes have on the host.
//!
//! Every sandbox maps its ids 0 to 65535 to the same range of the host, in which nobody else is: files of
//! images, snapshots and named volumes are then owned alike for all of them, and root in a sandbox is
//! nobody on the host.

/// Host id of a sandbox's root: above what distributions give to users and their subordinate ids.
pub(crate) const FIRST_HOST_ID: u32 = 0x2000_0000;
/// Ids that a sandbox has.
pub(crate) const ID_COUNT: u32 = 65_536;
