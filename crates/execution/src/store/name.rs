//! Folder names for ids of any length and any sign.

use sha2::{Digest, Sha256};

/// Longest name that is kept as it is; containerd's own bound for a container id.
const MAX_PLAIN_BYTES: usize = 76;
/// Readable part of an encoded name.
const MAX_READABLE_CHARS: usize = 40;
/// Hex digits of the digest that ends an encoded name: 128 bits.
const DIGEST_DIGITS: usize = 32;
/// Never part of a plain name, so that the two kinds cannot meet.
const DIGEST_MARK: char = '~';

/// The name of the folder that belongs to `id`: the id itself when it is a harmless file name, else a
/// readable rest of it and a digest. Never empty, `.`, `..` or hidden, and never longer than 76 bytes.
#[must_use]
pub(crate) fn folder_name(id: &str) -> String {
    let is_plain = !id.is_empty()
        && id.len() <= MAX_PLAIN_BYTES
        && !id.starts_with('.')
        && id.bytes().all(is_plain_byte);
    if is_plain {
        return id.to_owned();
    }
    let mut name: String = id
        .chars()
        .take(MAX_READABLE_CHARS)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    name.push(DIGEST_MARK);
    name.push_str(&hex_digest(id.as_bytes())[..DIGEST_DIGITS]);
    name
}

fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// SHA-256 in lower-case hex.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_names_are_kept() {
        let longest = "a".repeat(76);
        for name in ["a", "web-1", "k8s.io_x-9", "6f0c", longest.as_str()] {
            assert_eq!(folder_name(name), name);
        }
    }

    #[test]
    fn odd_names_become_one_safe_component_each() {
        let long = "a".repeat(77);
        let longer = "a".repeat(500);
        let odd = [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "../../etc",
            "a b",
            "a~b",
            "ü",
            "a\0b",
            "a\nb",
            &long,
            &longer,
        ];
        let mut seen = std::collections::HashSet::new();
        for name in odd {
            let folder = folder_name(name);
            assert!(folder.len() <= MAX_PLAIN_BYTES, "{folder}");
            assert!(
                !folder.starts_with('.') && folder.contains(DIGEST_MARK),
                "{folder}"
            );
            assert!(
                folder.bytes().all(|b| is_plain_byte(b) || b == b'~'),
                "{folder}"
            );
            assert!(seen.insert(folder), "two ids share a folder");
        }
    }
}
