//! The client: one method per verb of the manager, and the stores of named volumes and networks.

mod calls;
mod error;
mod handle;
mod names;
mod networks;
mod paths;
mod store;
mod subnet;
mod volumes;

pub(crate) use error::invalid;
pub use error::{ClientError, Result};
pub use handle::A3sBoxClient;
pub use networks::{CreateNetwork, NetworkBuilder, NetworkEndpointSummary, NetworkSummary};
pub use paths::A3sBoxPaths;
pub use volumes::{CreateVolume, VolumeBuilder, VolumeSummary};
