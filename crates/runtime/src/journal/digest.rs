//! What makes two requests the same: the verb and everything in it except how long the caller waits.

use a3sbox_oci::Error;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The first half of a SHA-256: enough to tell requests apart, and half to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RequestDigest([u8; 16]);

impl RequestDigest {
    /// The digest of a verb and the parts of its request that decide on the effect.
    pub(crate) fn of(verb: &str, parts: &impl Serialize) -> Result<Self, Error> {
        let mut hash = Sha256::new();
        hash.update(verb.as_bytes());
        hash.update([0]);
        serde_json::to_writer(&mut hash, parts).map_err(|error| {
            Error::new(
                a3sbox_oci::ErrorCode::Internal,
                format!("cannot encode a request: {error}"),
            )
        })?;
        let mut half = [0; 16];
        half.copy_from_slice(&hash.finalize()[..16]);
        Ok(Self(half))
    }
}

impl From<RequestDigest> for String {
    fn from(digest: RequestDigest) -> Self {
        use std::fmt::Write as _;

        let mut text = Self::with_capacity(32);
        for byte in digest.0 {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl TryFrom<String> for RequestDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const MALFORMED: &str = "a request digest has 32 hex digits";
        if text.len() != 32 || !text.is_ascii() {
            return Err(MALFORMED);
        }
        let mut half = [0; 16];
        for (index, byte) in half.iter_mut().enumerate() {
            *byte =
                u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| MALFORMED)?;
        }
        Ok(Self(half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_and_the_content_count() {
        let start = RequestDigest::of("start", &"c1").unwrap();
        assert_eq!(start, RequestDigest::of("start", &"c1").unwrap());
        assert_ne!(start, RequestDigest::of("kill", &"c1").unwrap());
        assert_ne!(start, RequestDigest::of("start", &"c2").unwrap());
        let text = String::from(start);
        assert_eq!(RequestDigest::try_from(text), Ok(start));
        assert!(RequestDigest::try_from("xyz".to_owned()).is_err());
    }
}
