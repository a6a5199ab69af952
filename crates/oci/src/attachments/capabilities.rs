//! Which attachments a runtime understands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::extension::{check_extension_name, check_extension_version};
use super::{ATTACHMENT_SCHEMA_V1, CreateAttachments};
use crate::error::{Error, ErrorCode, Result};

/// Schemas and extensions that a runtime takes; versions are sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "RawCapabilities")]
pub struct AttachmentCapabilities {
    schemas: Vec<String>,
    extensions: BTreeMap<String, Vec<u16>>,
}

impl AttachmentCapabilities {
    /// The first schema, no extension.
    pub fn base_v1() -> Self {
        Self {
            schemas: vec![ATTACHMENT_SCHEMA_V1.to_owned()],
            extensions: BTreeMap::new(),
        }
    }

    /// Adds versions of an extension.
    pub fn with_extension(
        mut self,
        name: impl Into<String>,
        versions: impl IntoIterator<Item = u16>,
    ) -> Result<Self> {
        let name = name.into();
        check_extension_name(&name)?;
        let mut known = self.extensions.remove(&name).unwrap_or_default();
        known.extend(versions);
        known.sort_unstable();
        known.dedup();
        match known.first() {
            None => {
                return Err(Error::invalid(format!(
                    "attachment extension {name:?} has no version"
                )));
            }
            Some(lowest) => check_extension_version(&name, *lowest)?,
        }
        self.extensions.insert(name, known);
        Ok(self)
    }

    pub fn supports_schema(&self, schema: &str) -> bool {
        self.schemas.iter().any(|known| known == schema)
    }

    pub fn supports_extension(&self, name: &str, version: u16) -> bool {
        self.extensions
            .get(name)
            .is_some_and(|versions| versions.binary_search(&version).is_ok())
    }

    /// `Unsupported` when the schema or a required extension is missing.
    pub fn require(&self, attachments: &CreateAttachments) -> Result<()> {
        let schema = attachments.schema_version();
        if !self.supports_schema(schema) {
            return Err(Error::new(
                ErrorCode::Unsupported,
                format!("attachment schema {schema} is not supported by this runtime"),
            ));
        }
        for (name, extension) in attachments.extensions() {
            let version = extension.version();
            if extension.is_required() && !self.supports_extension(name, version) {
                return Err(Error::new(
                    ErrorCode::Unsupported,
                    format!(
                        "attachment extension {name} version {version} is not supported by this runtime"
                    ),
                ));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCapabilities {
    schemas: Vec<String>,
    #[serde(default)]
    extensions: BTreeMap<String, Vec<u16>>,
}

impl TryFrom<RawCapabilities> for AttachmentCapabilities {
    type Error = Error;

    fn try_from(raw: RawCapabilities) -> Result<Self> {
        let mut capabilities = Self {
            schemas: raw.schemas,
            extensions: BTreeMap::new(),
        };
        for (name, versions) in raw.extensions {
            capabilities = capabilities.with_extension(name, versions)?;
        }
        Ok(capabilities)
    }
}
