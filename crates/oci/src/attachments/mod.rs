//! What a create request attaches to a container: a classification of its configuration by pointer and
//! digest, the streams of its first process, and extensions that only some runtimes know.
//!
//! No secret bytes, process ids or handles travel here. A standard entry names a value of `config.json`
//! and the digest of that value's exact text, so that classification and configuration cannot drift apart.

mod capabilities;
mod config;
mod extension;
mod handoff;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use capabilities::AttachmentCapabilities;
pub use extension::AttachmentExtension;
pub use handoff::{
    RUNTIME_BUNDLE_HANDOFF_BUNDLE_DIRECTORY, RUNTIME_BUNDLE_HANDOFF_EXTENSION,
    RUNTIME_BUNDLE_HANDOFF_EXTENSION_VERSION, RUNTIME_BUNDLE_HANDOFF_MOVE_V1,
    RUNTIME_BUNDLE_HANDOFF_ROOT_DIRECTORY, runtime_bundle_handoff_directory,
};

use crate::bundle::OciBundle;
use crate::digest::{canonical_json, sha256_digest};
use crate::error::{Error, Result};
use crate::limits::MAX_EXTENSIONS;
use crate::request::ProcessIo;
use crate::validate::io::check_process_io;
use config::ConfigView;

/// The schema of [`CreateAttachments`].
pub const ATTACHMENT_SCHEMA_V1: &str = "a3s.oci.attachments.v1";

/// A value of `config.json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentEntry {
    /// Where it is (RFC 6901).
    pub json_pointer: String,
    /// `sha256:` and the hex digest of its exact text.
    pub value_digest: String,
}

/// The attachments of one create request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateAttachments {
    schema_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rootfs: Option<AttachmentEntry>,
    #[serde(default)]
    mounts: Vec<AttachmentEntry>,
    #[serde(default)]
    network: Vec<AttachmentEntry>,
    process_io: ProcessIo,
    #[serde(default)]
    secrets: Vec<AttachmentEntry>,
    #[serde(default)]
    extensions: BTreeMap<String, AttachmentExtension>,
}

impl CreateAttachments {
    /// Classifies the configuration of a bundle. `process_io` must agree with `process.terminal`.
    pub fn from_bundle(bundle: &OciBundle, process_io: ProcessIo) -> Result<Self> {
        let view = ConfigView::parse(bundle)?;
        let attachments = Self {
            schema_version: ATTACHMENT_SCHEMA_V1.to_owned(),
            rootfs: view.rootfs(),
            mounts: view.mounts(),
            network: view.network()?,
            process_io,
            secrets: Vec::new(),
            extensions: BTreeMap::new(),
        };
        attachments.check_process_io(bundle)?;
        Ok(attachments)
    }

    /// Replaces the streams of the first process.
    #[must_use]
    pub fn with_process_io(mut self, process_io: ProcessIo) -> Self {
        self.process_io = process_io;
        self
    }

    /// Moves a mount of the configuration, by its index, to the secrets.
    pub fn mark_secret_mount(mut self, index: usize) -> Result<Self> {
        let pointer = config::mount_pointer(index);
        let position = self
            .mounts
            .iter()
            .position(|entry| entry.json_pointer == pointer)
            .ok_or_else(|| Error::invalid(format!("the configuration has no mount {pointer}")))?;
        let entry = self.mounts.remove(position);
        self.secrets.push(entry);
        Ok(self)
    }

    /// Adds an extension whose value is the annotation of the same name in the configuration.
    pub fn add_extension_from_annotation(
        self,
        bundle: &OciBundle,
        name: impl Into<String>,
        version: u16,
        required: bool,
    ) -> Result<Self> {
        let name = name.into();
        let entry = ConfigView::parse(bundle)?
            .annotation(&name)
            .ok_or_else(|| {
                Error::invalid(format!("the configuration has no annotation {name:?}"))
            })?;
        self.insert(
            name,
            AttachmentExtension::annotation(version, required, entry),
        )
    }

    /// Adds an extension with an inline value.
    pub fn with_extension(
        self,
        name: impl Into<String>,
        version: u16,
        required: bool,
        value: Value,
    ) -> Result<Self> {
        self.insert(
            name.into(),
            AttachmentExtension::inline(version, required, value),
        )
    }

    fn insert(mut self, name: String, extension: AttachmentExtension) -> Result<Self> {
        extension.check(&name)?;
        if self.extensions.contains_key(&name) {
            return Err(Error::invalid(format!(
                "attachment extension {name:?} is given twice"
            )));
        }
        self.extensions.insert(name, extension);
        check_extension_count(self.extensions.len())?;
        Ok(self)
    }

    pub fn schema_version(&self) -> &str {
        &self.schema_version
    }

    /// The streams of the first process.
    pub fn process_io(&self) -> &ProcessIo {
        &self.process_io
    }

    pub fn extensions(&self) -> &BTreeMap<String, AttachmentExtension> {
        &self.extensions
    }

    /// The inline value of an extension.
    pub fn extension_value(&self, name: &str) -> Option<&Value> {
        self.extensions.get(name)?.value()
    }

    pub fn rootfs(&self) -> Option<&AttachmentEntry> {
        self.rootfs.as_ref()
    }

    pub fn mounts(&self) -> &[AttachmentEntry] {
        &self.mounts
    }

    pub fn network(&self) -> &[AttachmentEntry] {
        &self.network
    }

    pub fn secrets(&self) -> &[AttachmentEntry] {
        &self.secrets
    }

    /// `sha256:` and the hex digest of the canonical JSON; equal attachments have equal digests.
    pub fn digest(&self) -> Result<String> {
        Ok(sha256_digest(canonical_json(self)?.as_bytes()))
    }

    /// Checks that this is the classification of exactly this bundle.
    pub fn validate(&self, bundle: &OciBundle) -> Result<()> {
        if self.schema_version != ATTACHMENT_SCHEMA_V1 {
            return Err(Error::invalid(format!(
                "attachment schema {:?} is not {ATTACHMENT_SCHEMA_V1}",
                self.schema_version
            )));
        }
        self.check_process_io(bundle)?;
        let view = ConfigView::parse(bundle)?;
        if self.rootfs != view.rootfs() {
            return Err(mismatch("rootfs"));
        }
        if self.network != view.network()? {
            return Err(mismatch("network"));
        }
        if !is_partition(&view.mounts(), &self.mounts, &self.secrets) {
            return Err(mismatch("mounts"));
        }
        check_extension_count(self.extensions.len())?;
        for (name, extension) in &self.extensions {
            extension.check(name)?;
            if let Some(entry) = extension.config_entry()
                && view.annotation(name).as_ref() != Some(entry)
            {
                return Err(mismatch(name));
            }
        }
        self.check_handoff(bundle)
    }

    fn check_process_io(&self, bundle: &OciBundle) -> Result<()> {
        let terminal = bundle
            .spec()
            .process()
            .as_ref()
            .and_then(oci_spec::runtime::Process::terminal)
            .unwrap_or(false);
        check_process_io(&self.process_io, terminal)
    }
}

fn check_extension_count(count: usize) -> Result<()> {
    if count > MAX_EXTENSIONS {
        return Err(Error::invalid(format!(
            "more than {MAX_EXTENSIONS} attachment extensions"
        )));
    }
    Ok(())
}

/// Every entry of `all` is in exactly one of the two parts, and nothing else is.
fn is_partition(
    all: &[AttachmentEntry],
    first: &[AttachmentEntry],
    second: &[AttachmentEntry],
) -> bool {
    if first.len() + second.len() != all.len() {
        return false;
    }
    let mut rest: BTreeMap<&str, &str> = all
        .iter()
        .map(|entry| (entry.json_pointer.as_str(), entry.value_digest.as_str()))
        .collect();
    first
        .iter()
        .chain(second)
        .all(|entry| rest.remove(entry.json_pointer.as_str()) == Some(entry.value_digest.as_str()))
}

fn mismatch(what: &str) -> Error {
    Error::invalid(format!(
        "attachments do not describe this configuration: {what} differs"
    ))
}

#[cfg(test)]
mod tests;
