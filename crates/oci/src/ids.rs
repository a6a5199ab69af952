//! Identities of the contract.
//!
//! All four text ids share one grammar, chosen so that an id can be a file name on every platform:
//! 1 to 128 bytes, first byte alphanumeric, then alphanumeric or `_ . + -`, no trailing dot, and no
//! Windows device name before the first dot.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits::MAX_ID_BYTES;

/// Reserved id of the configured process of a container.
const INIT_PROCESS_ID: &str = "init";

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the grammar; a violation is `InvalidArgument`.
            pub fn new(value: impl Into<String>) -> Result<Self> {
                let value = value.into();
                check_grammar($what, &value)?;
                Ok(Self(value))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(value: &str) -> Result<Self> {
                Self::new(value)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(value: String) -> Result<Self> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

text_id!(
    /// A container of one runtime service.
    ContainerId,
    "container id"
);
text_id!(
    /// A process of one container.
    ProcessId,
    "process id"
);
text_id!(
    /// Idempotency key of one intended effect.
    OperationId,
    "operation id"
);
text_id!(
    /// Containers that may share a guest kernel.
    TrustDomainId,
    "trust domain id"
);

impl ProcessId {
    /// The configured process of the container.
    pub fn init() -> Self {
        Self(INIT_PROCESS_ID.to_owned())
    }

    pub fn is_init(&self) -> bool {
        self.0 == INIT_PROCESS_ID
    }
}

fn check_grammar(what: &str, value: &str) -> Result<()> {
    let bytes = value.as_bytes();
    if bytes.is_empty() || bytes.len() > MAX_ID_BYTES {
        return Err(Error::invalid(format!(
            "{what} must have 1 to {MAX_ID_BYTES} bytes, it has {}",
            bytes.len()
        )));
    }
    let well_formed = bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.+-".contains(byte))
        && bytes[bytes.len() - 1] != b'.';
    if !well_formed {
        return Err(Error::invalid(format!(
            "{what} {value:?} must begin with a letter or digit, go on with letters, digits or _.+-, and not end with a dot"
        )));
    }
    let stem = value.split('.').next().unwrap_or(value);
    if is_device_name(stem) {
        return Err(Error::invalid(format!(
            "{what} {value:?} is a reserved device name"
        )));
    }
    Ok(())
}

fn is_device_name(stem: &str) -> bool {
    if ["con", "prn", "aux", "nul"]
        .iter()
        .any(|name| stem.eq_ignore_ascii_case(name))
    {
        return true;
    }
    let bytes = stem.as_bytes();
    bytes.len() == 4
        && (bytes[..3].eq_ignore_ascii_case(b"com") || bytes[..3].eq_ignore_ascii_case(b"lpt"))
        && (b'1'..=b'9').contains(&bytes[3])
}

/// Fencing token of one created container; never zero for a container that exists.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A container, and the generation that the caller means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerTarget {
    pub id: ContainerId,
    /// `None` means whatever generation is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
}

impl ContainerTarget {
    /// Whatever generation is current.
    pub const fn current(id: ContainerId) -> Self {
        Self {
            id,
            generation: None,
        }
    }

    /// Exactly this generation.
    pub const fn exact(id: ContainerId, generation: Generation) -> Self {
        Self {
            id,
            generation: Some(generation),
        }
    }
}

/// One process of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessTarget {
    pub container: ContainerTarget,
    pub process_id: ProcessId,
}

/// What every mutating request carries: its idempotency key and, optionally, its end of time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperationContext {
    pub operation_id: OperationId,
    /// Milliseconds since the Unix epoch after which nobody waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_unix_ms: Option<u64>,
}

impl OperationContext {
    /// A context without a deadline.
    pub const fn new(operation_id: OperationId) -> Self {
        Self {
            operation_id,
            deadline_unix_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn id_grammar_table() {
        let longest = "a".repeat(128);
        let too_long = "a".repeat(129);
        let accepted = [
            "a",
            "0",
            "A-b_c.d+e",
            "a3s-box-1",
            "init",
            "cone",
            "com",
            "com0",
            "com10",
            "lpt",
            "xcon.con",
            "a..b",
            "a.b-",
            longest.as_str(),
        ];
        for id in accepted {
            let parsed = ContainerId::new(id).unwrap();
            assert_eq!(parsed.as_str(), id);
            assert_eq!(id.parse::<ContainerId>().unwrap(), parsed);
        }
        let refused = [
            "",
            ".a",
            "-a",
            "_a",
            "+a",
            "a.",
            "a b",
            "a/b",
            "a\0",
            "ä",
            "con",
            "CoN",
            "nul.txt",
            "aux",
            "PRN.",
            "com1",
            "LPT9.log",
            too_long.as_str(),
        ];
        for id in refused {
            let error = ProcessId::new(id).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{id:?}");
        }
    }

    #[test]
    fn decoding_an_id_checks_it_again() {
        let id: OperationId = serde_json::from_str("\"op-1\"").unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"op-1\"");
        assert!(serde_json::from_str::<OperationId>("\"op/1\"").is_err());
        assert!(serde_json::from_str::<TrustDomainId>("7").is_err());
    }

    #[test]
    fn targets_leave_out_an_absent_generation() {
        let id = ContainerId::new("c").unwrap();
        let current = ContainerTarget::current(id.clone());
        assert_eq!(serde_json::to_string(&current).unwrap(), r#"{"id":"c"}"#);
        let exact = ContainerTarget::exact(id, Generation(41));
        let text = serde_json::to_string(&exact).unwrap();
        assert_eq!(text, r#"{"id":"c","generation":41}"#);
        assert_eq!(
            serde_json::from_str::<ContainerTarget>(&text).unwrap(),
            exact
        );
    }

    #[test]
    fn init_is_literal() {
        assert_eq!(ProcessId::init().as_str(), "init");
        assert!(ProcessId::init().is_init());
        assert!(!ProcessId::new("Init").unwrap().is_init());
    }
}
