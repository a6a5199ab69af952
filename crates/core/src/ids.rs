//! Validated identities. Each is a string on the wire; deserialising validates as `new` does.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::limits::MAX_SNAPSHOT_ID_BYTES;

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident, [$($extra:ident),*], $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, $($extra),*)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// # Errors
            /// `InvalidRequest` for a value outside the rules of this type.
            pub fn new(value: impl Into<String>) -> ExecutionManagerResult<Self> {
                let value = value.into();
                $check(&value).map_err(ExecutionManagerError::InvalidRequest)?;
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

        impl TryFrom<String> for $name {
            type Error = ExecutionManagerError;

            fn try_from(value: String) -> ExecutionManagerResult<Self> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

string_id!(
    /// One execution. Any text that is not blank; never a path component as it is.
    ExecutionId,
    [],
    execution_id
);
string_id!(
    /// The idempotency key of one intent. Any text that is not blank.
    OperationId,
    [],
    operation_id
);
string_id!(
    /// One filesystem snapshot. Safe as a file name: 1 to 128 of `A-Z a-z 0-9 - _`.
    ExecutionSnapshotId,
    [PartialOrd, Ord],
    snapshot_id
);

fn execution_id(value: &str) -> Result<(), String> {
    not_blank("execution id", value)
}

fn operation_id(value: &str) -> Result<(), String> {
    not_blank("operation id", value)
}

fn snapshot_id(value: &str) -> Result<(), String> {
    if value.is_empty() || value.len() > MAX_SNAPSHOT_ID_BYTES {
        return Err(format!(
            "snapshot id must have 1 to {MAX_SNAPSHOT_ID_BYTES} bytes, not {}",
            value.len()
        ));
    }
    if value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    {
        Ok(())
    } else {
        Err(format!(
            "snapshot id {value:?} may only have letters, digits, '-' and '_'"
        ))
    }
}

fn not_blank(what: &str, value: &str) -> Result<(), String> {
    if value.trim().is_empty() {
        Err(format!("{what} must not be blank"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid<T: fmt::Debug>(result: ExecutionManagerResult<T>) -> String {
        match result {
            Err(ExecutionManagerError::InvalidRequest(message)) => message,
            other => panic!("expected InvalidRequest, got {other:?}"),
        }
    }

    #[test]
    fn blank_ids_are_refused_by_name() {
        for blank in ["", " ", "\t\n"] {
            assert!(invalid(ExecutionId::new(blank)).contains("execution id"));
            assert!(invalid(OperationId::new(blank)).contains("operation id"));
        }
    }

    #[test]
    fn any_other_execution_or_operation_id_is_kept_as_it_is() {
        for text in ["x", " a b ", "123e4567-e89b-12d3-a456-4266554400zz", "../é"] {
            assert_eq!(ExecutionId::new(text).unwrap().to_string(), text);
            assert_eq!(OperationId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn snapshot_ids_are_bounded_and_plain() {
        for good in ["a", "Z9-_", &"x".repeat(128)] {
            assert_eq!(ExecutionSnapshotId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", ".", "a.b", "é", &"x".repeat(129)] {
            invalid(ExecutionSnapshotId::new(bad));
        }
    }

    #[test]
    fn ids_are_plain_strings_on_the_wire_and_validated() {
        let id: ExecutionId = serde_json::from_str("\"e-1\"").unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"e-1\"");
        assert!(serde_json::from_str::<ExecutionId>("\" \"").is_err());
        assert!(serde_json::from_str::<OperationId>("\"\"").is_err());
        let error = serde_json::from_str::<ExecutionSnapshotId>("\"a/b\"").unwrap_err();
        assert!(error.to_string().contains("snapshot id"));
    }
}
