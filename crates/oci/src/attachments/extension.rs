//! One extension of a create request: a value inline, or an annotation of the configuration.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AttachmentEntry;
use crate::error::{Error, Result};
use crate::limits::{MAX_EXTENSION_NAME_BYTES, MAX_EXTENSION_VALUE_BYTES};

/// A named and versioned addition; exactly one of `config` and `value` is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentExtension {
    version: u16,
    required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<AttachmentEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

impl AttachmentExtension {
    pub(super) fn annotation(version: u16, required: bool, entry: AttachmentEntry) -> Self {
        Self {
            version,
            required,
            config: Some(entry),
            value: None,
        }
    }

    pub(super) fn inline(version: u16, required: bool, value: Value) -> Self {
        Self {
            version,
            required,
            config: None,
            value: Some(value),
        }
    }

    pub const fn version(&self) -> u16 {
        self.version
    }

    /// A runtime that does not know the extension must refuse the create.
    pub const fn is_required(&self) -> bool {
        self.required
    }

    /// The annotation that carries the value.
    pub const fn config_entry(&self) -> Option<&AttachmentEntry> {
        self.config.as_ref()
    }

    /// The inline value.
    pub const fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    pub(super) fn check(&self, name: &str) -> Result<()> {
        check_extension_name(name)?;
        check_extension_version(name, self.version)?;
        match (&self.config, &self.value) {
            (Some(_), None) => Ok(()),
            // A null would not survive a round trip: the field is left out.
            (None, Some(Value::Null)) | (Some(_), Some(_)) | (None, None) => Err(Error::invalid(
                format!("attachment extension {name:?} needs either an annotation or a value"),
            )),
            (None, Some(value)) => {
                let size = value.to_string().len();
                if size > MAX_EXTENSION_VALUE_BYTES {
                    return Err(Error::invalid(format!(
                        "attachment extension {name:?} has {size} bytes, more than {MAX_EXTENSION_VALUE_BYTES}"
                    )));
                }
                Ok(())
            }
        }
    }
}

/// Extension names are reverse domain names: printable ASCII without white space.
pub(super) fn check_extension_name(name: &str) -> Result<()> {
    let well_formed = !name.is_empty()
        && name.len() <= MAX_EXTENSION_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    if well_formed {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "attachment extension name {name:?} must have 1 to {MAX_EXTENSION_NAME_BYTES} printable ASCII characters"
        )))
    }
}

pub(super) fn check_extension_version(name: &str, version: u16) -> Result<()> {
    if version == 0 {
        return Err(Error::invalid(format!(
            "version of attachment extension {name:?} must not be zero"
        )));
    }
    Ok(())
}
