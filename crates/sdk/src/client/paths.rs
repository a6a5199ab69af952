//! Where a client keeps its files.

use std::path::PathBuf;

/// The product's folder inside the user's home.
const HOME_FOLDER: &str = ".a3sbox";
/// For a process without a home, a system service for example.
const SYSTEM_HOME: &str = "/var/lib/a3sbox";

/// Paths only: nothing is created by naming them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A3sBoxPaths {
    pub home: PathBuf,
    pub boxes_file: PathBuf,
    pub images_dir: PathBuf,
    pub volumes_file: PathBuf,
    pub volumes_dir: PathBuf,
    pub networks_file: PathBuf,
    pub snapshots_dir: PathBuf,
}

impl A3sBoxPaths {
    pub fn from_home(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        Self {
            boxes_file: home.join("boxes.json"),
            images_dir: home.join("images"),
            volumes_file: home.join("volumes.json"),
            volumes_dir: home.join("volumes"),
            networks_file: home.join("networks.json"),
            snapshots_dir: home.join("snapshots"),
            home,
        }
    }
}

impl Default for A3sBoxPaths {
    fn default() -> Self {
        Self::from_home(
            std::env::home_dir()
                .filter(|home| !home.as_os_str().is_empty())
                .map_or_else(|| PathBuf::from(SYSTEM_HOME), |home| home.join(HOME_FOLDER)),
        )
    }
}
