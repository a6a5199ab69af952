//! Console logs: their configuration and one entry of them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize, Serializer};

use crate::limits::{DEFAULT_LOG_MAX_FILES, DEFAULT_LOG_MAX_SIZE_BYTES};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogDriver {
    #[default]
    JsonFile,
    Syslog,
    None,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogConfig {
    #[serde(default)]
    pub driver: LogDriver,
    #[serde(default, serialize_with = "in_key_order")]
    pub options: HashMap<String, String>,
}

/// A request is digested in its serialised form, which must not depend on the order of a hash map.
fn in_key_order<S: Serializer>(
    options: &HashMap<String, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    options
        .iter()
        .collect::<BTreeMap<_, _>>()
        .serialize(serializer)
}

impl LogConfig {
    /// Size at which the file is rotated: option `max-size`, a number with an optional `k`, `m` or
    /// `g`. Anything else, zero included, is the default of 10 MiB.
    pub fn max_size(&self) -> u64 {
        self.options
            .get("max-size")
            .and_then(|text| parse_size(text))
            .unwrap_or(DEFAULT_LOG_MAX_SIZE_BYTES)
    }

    /// Number of files kept: option `max-file`. Anything but a positive number is the default of 3.
    pub fn max_file(&self) -> u32 {
        self.options
            .get("max-file")
            .and_then(|text| text.trim().parse().ok())
            .filter(|count| *count > 0)
            .unwrap_or(DEFAULT_LOG_MAX_FILES)
    }
}

/// One line of a log, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The text with its newline.
    pub log: String,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// RFC 3339.
    pub time: String,
}

fn parse_size(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let plain = lower.strip_suffix('b').unwrap_or(&lower);
    let (digits, unit) = match plain.as_bytes().last()? {
        b'k' => (&plain[..plain.len() - 1], 1 << 10),
        b'm' => (&plain[..plain.len() - 1], 1 << 20),
        b'g' => (&plain[..plain.len() - 1], 1 << 30),
        _ => (plain, 1_u64),
    };
    let count: u64 = digits.trim().parse().ok()?;
    count.checked_mul(unit).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, value: &str) -> LogConfig {
        LogConfig {
            options: HashMap::from([(key.to_owned(), value.to_owned())]),
            ..LogConfig::default()
        }
    }

    #[test]
    fn sizes_have_units_and_a_default() {
        const MIB: u64 = 1 << 20;
        for (text, size) in [
            ("1", 1),
            ("4k", 4096),
            ("20m", 20 * MIB),
            ("20MB", 20 * MIB),
            ("1g", 1024 * MIB),
            ("", 10 * MIB),
            ("b", 10 * MIB),
            ("0", 10 * MIB),
            ("-1", 10 * MIB),
            ("lots", 10 * MIB),
            ("99999999999g", 10 * MIB),
        ] {
            assert_eq!(with("max-size", text).max_size(), size, "{text:?}");
        }
        assert_eq!(LogConfig::default().max_size(), 10 * MIB);
    }

    #[test]
    fn file_counts_have_a_default() {
        for (text, count) in [("5", 5), ("0", 3), ("-2", 3), ("x", 3)] {
            assert_eq!(with("max-file", text).max_file(), count, "{text:?}");
        }
        assert_eq!(LogConfig::default().max_file(), 3);
    }

    #[test]
    fn drivers_are_kebab_case() {
        assert_eq!(
            serde_json::to_value(LogConfig::default()).unwrap(),
            serde_json::json!({"driver": "json-file", "options": {}})
        );
        let config: LogConfig = serde_json::from_str(r#"{"driver":"none"}"#).unwrap();
        assert_eq!(config.driver, LogDriver::None);
    }
}
