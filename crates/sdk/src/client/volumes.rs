//! Named volumes: a folder each, and a definition that says it exists.

use std::collections::HashMap;

use a3sbox_core::VolumeConfig;
use a3sbox_core::error::BoxError;
use a3sbox_durable::folder;
use chrono::{SecondsFormat, Utc};

use super::error::{ClientError, Result, invalid};
use super::handle::A3sBoxClient;
use super::names;
use super::store::{NamedStore, state};

const SCHEMA: &str = "a3sbox.volumes.v1";
const LOCAL_DRIVER: &str = "local";

/// What a new volume is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateVolume {
    pub name: String,
    pub driver: String,
    pub labels: HashMap<String, String>,
    /// Bytes; zero is without limit.
    pub size_limit: u64,
}

impl CreateVolume {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            driver: LOCAL_DRIVER.to_owned(),
            labels: HashMap::new(),
            size_limit: 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSummary {
    pub name: String,
    pub driver: String,
    /// The folder on the host.
    pub mount_point: String,
    pub labels: HashMap<String, String>,
    pub in_use_by: Vec<String>,
    pub in_use: bool,
    pub size_limit: u64,
    /// RFC 3339.
    pub created_at: String,
}

impl From<VolumeConfig> for VolumeSummary {
    fn from(volume: VolumeConfig) -> Self {
        Self {
            name: volume.name,
            driver: volume.driver,
            mount_point: volume.mount_point,
            labels: volume.labels.into_iter().collect(),
            in_use: !volume.in_use_by.is_empty(),
            in_use_by: volume.in_use_by,
            size_limit: volume.size_limit,
            created_at: volume.created_at,
        }
    }
}

/// Builds one volume; nothing happens before [`VolumeBuilder::create`].
#[derive(Debug, Clone)]
pub struct VolumeBuilder {
    client: A3sBoxClient,
    request: CreateVolume,
}

impl VolumeBuilder {
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.labels.insert(key.into(), value.into());
        self
    }

    #[must_use]
    pub fn size_limit(mut self, bytes: u64) -> Self {
        self.request.size_limit = bytes;
        self
    }

    pub fn request(&self) -> &CreateVolume {
        &self.request
    }

    /// # Errors
    /// See [`A3sBoxClient::create_volume`].
    pub fn create(self) -> Result<VolumeSummary> {
        self.client.create_volume(self.request)
    }
}

/// Named volumes. All of these are short file operations on the calling thread.
impl A3sBoxClient {
    pub fn volume(&self, name: impl Into<String>) -> VolumeBuilder {
        VolumeBuilder {
            client: self.clone(),
            request: CreateVolume::new(name),
        }
    }

    /// Makes the folder, then the definition: a crash in between leaves an empty folder without a name.
    ///
    /// # Errors
    /// `Validation` for a bad name or driver, `Runtime` for a name that is taken, `State` when a file
    /// cannot be written.
    pub fn create_volume(&self, request: CreateVolume) -> Result<VolumeSummary> {
        names::check("volume", &request.name)?;
        if request.driver != LOCAL_DRIVER {
            return invalid(format!(
                "volume driver {:?} is not supported, only {LOCAL_DRIVER:?} is",
                request.driver
            ));
        }
        let path = self.paths().volumes_dir.join(&request.name);
        let Some(mount_point) = path.to_str().map(str::to_owned) else {
            return invalid(format!("volume folder {} is not UTF-8", path.display()));
        };
        self.volumes().update(|volumes| {
            if volumes.contains_key(&request.name) {
                return Err(refused(format!("volume {:?} already exists", request.name)));
            }
            folder::create_all(&path).map_err(state)?;
            let volume = VolumeConfig {
                name: request.name.clone(),
                driver: request.driver,
                mount_point,
                labels: request.labels.into_iter().collect(),
                in_use_by: Vec::new(),
                size_limit: request.size_limit,
                created_at: Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
            };
            volumes.insert(request.name, volume.clone());
            Ok(volume.into())
        })
    }

    pub fn get_volume(&self, name: &str) -> Result<Option<VolumeSummary>> {
        Ok(self.volumes().read()?.remove(name).map(Into::into))
    }

    /// In the order of their names.
    pub fn list_volumes(&self) -> Result<Vec<VolumeSummary>> {
        Ok(self
            .volumes()
            .read()?
            .into_values()
            .map(Into::into)
            .collect())
    }

    /// Removes the folder with everything in it, then the definition.
    ///
    /// # Errors
    /// `Runtime` for an unknown volume, and for one in use unless `force`.
    pub fn remove_volume(&self, name: &str, force: bool) -> Result<()> {
        names::check("volume", name)?;
        self.volumes().update(|volumes| {
            let volume = volumes
                .get(name)
                .ok_or_else(|| refused(format!("volume {name:?} does not exist")))?;
            if !force && !volume.in_use_by.is_empty() {
                return Err(refused(format!(
                    "volume {name:?} is in use by {}",
                    volume.in_use_by.join(", ")
                )));
            }
            folder::remove_all(&self.paths().volumes_dir.join(name)).map_err(state)?;
            volumes.remove(name);
            Ok(())
        })
    }

    /// Removes every volume that is not in use and returns their names.
    pub fn prune_volumes(&self) -> Result<Vec<String>> {
        self.volumes().update(|volumes| {
            let unused: Vec<String> = volumes
                .values()
                .filter(|volume| volume.in_use_by.is_empty())
                .map(|volume| volume.name.clone())
                .collect();
            for name in &unused {
                names::check("volume", name)?;
                folder::remove_all(&self.paths().volumes_dir.join(name)).map_err(state)?;
                volumes.remove(name);
            }
            Ok(unused)
        })
    }

    fn volumes(&self) -> NamedStore<'_, VolumeConfig> {
        NamedStore::new(&self.paths().volumes_file, SCHEMA)
    }
}

fn refused(message: String) -> ClientError {
    BoxError::StateError(message).into()
}
