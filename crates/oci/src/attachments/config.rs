//! The parts of `config.json` that attachments point at, as their exact text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::AttachmentEntry;
use crate::bundle::{CONFIG_FILE_NAME, OciBundle};
use crate::digest::sha256_digest;
use crate::error::{Error, Result};

/// Borrowed from the bundle: no value is copied or interpreted more than needed.
#[derive(Deserialize)]
pub(super) struct ConfigView<'a> {
    #[serde(borrow, default)]
    root: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mounts: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    linux: Option<LinuxView<'a>>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, &'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LinuxView<'a> {
    #[serde(borrow, default)]
    namespaces: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    net_devices: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct NamespaceView<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

impl<'a> ConfigView<'a> {
    pub(super) fn parse(bundle: &'a OciBundle) -> Result<Self> {
        serde_json::from_str(bundle.config_json()).map_err(malformed)
    }

    pub(super) fn rootfs(&self) -> Option<AttachmentEntry> {
        self.root.map(|root| entry("/root".to_owned(), root))
    }

    pub(super) fn mounts(&self) -> Vec<AttachmentEntry> {
        self.mounts
            .iter()
            .flatten()
            .enumerate()
            .map(|(index, mount)| entry(mount_pointer(index), mount))
            .collect()
    }

    /// The network namespaces, and the devices that are moved into them.
    pub(super) fn network(&self) -> Result<Vec<AttachmentEntry>> {
        let mut entries = Vec::new();
        let Some(linux) = &self.linux else {
            return Ok(entries);
        };
        for (index, namespace) in linux.namespaces.iter().flatten().enumerate() {
            let view: NamespaceView<'_> =
                serde_json::from_str(namespace.get()).map_err(malformed)?;
            if view.kind == "network" {
                entries.push(entry(format!("/linux/namespaces/{index}"), namespace));
            }
        }
        if let Some(devices) = linux.net_devices {
            entries.push(entry("/linux/netDevices".to_owned(), devices));
        }
        Ok(entries)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<AttachmentEntry> {
        let value = self.annotations.as_ref()?.get(name)?;
        let escaped = name.replace('~', "~0").replace('/', "~1");
        Some(entry(format!("/annotations/{escaped}"), value))
    }
}

pub(super) fn mount_pointer(index: usize) -> String {
    format!("/mounts/{index}")
}

fn entry(json_pointer: String, value: &RawValue) -> AttachmentEntry {
    AttachmentEntry {
        json_pointer,
        value_digest: sha256_digest(value.get().as_bytes()),
    }
}

fn malformed(error: serde_json::Error) -> Error {
    Error::invalid(format!("{CONFIG_FILE_NAME} is malformed: {error}"))
}
