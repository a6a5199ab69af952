//! The JSON documents of an OCI image, as far as they are used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::{ImageError, ImageResult};

/// Most layers of one image.
const MAX_LAYERS: usize = 512;
const DIGEST_PREFIX: &str = "sha256:";
const DIGEST_DIGITS: usize = 64;
const NAME_ANNOTATIONS: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// `sha256:` and 64 lower case hex digits, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Digest(String);

impl Digest {
    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (hex.len() == DIGEST_DIGITS && hex.bytes().all(is_digit))
            .then(|| Self(format!("{DIGEST_PREFIX}{hex}")))
    }

    pub(super) fn hex(&self) -> &str {
        &self.0[DIGEST_PREFIX.len()..]
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.strip_prefix(DIGEST_PREFIX)
            .and_then(Self::from_hex)
            .ok_or_else(|| format!("{text:?} is no sha256 digest"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

impl Descriptor {
    pub(super) fn is_index(&self) -> bool {
        self.media_type.ends_with(".index.v1+json") || self.media_type.contains("manifest.list")
    }

    /// The image's full name; a bare tag is none.
    pub(super) fn image_name(&self) -> Option<&str> {
        NAME_ANNOTATIONS
            .iter()
            .filter_map(|key| self.annotations.get(*key))
            .map(String::as_str)
            .find(|name| !name.trim().is_empty())
    }

    /// It runs here, or it does not say where it runs.
    fn fits_host(&self) -> bool {
        self.platform.as_ref().is_none_or(|platform| {
            platform.os == "linux" && platform.architecture == host_architecture()
        })
    }
}

/// The name that image documents have for this processor.
pub(crate) fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

impl Index {
    /// The one entry for this host.
    pub(super) fn choose(self, what: &str) -> ImageResult<Descriptor> {
        let mut fitting: Vec<_> = self
            .manifests
            .into_iter()
            .filter(Descriptor::fits_host)
            .collect();
        fitting.dedup_by(|a, b| a.digest == b.digest);
        match fitting.len() {
            1 => Ok(fitting.remove(0)),
            0 => ImageError::malformed(format!(
                "{what} has no image for linux on {}",
                host_architecture()
            )),
            count => ImageError::malformed(format!(
                "{what} has {count} images; an archive with one is imported"
            )),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
}

/// An image's config: what a process gets by default, and what the layers are when unpacked.
#[derive(Debug, Deserialize)]
pub(super) struct ImageConfig {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    pub(super) config: ProcessDefaults,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

/// What the image says of its process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ProcessDefaults {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) env: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) entrypoint: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) cmd: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) user: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) working_dir: String,
}

/// Some builders write `null` for what is not there.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl ImageConfig {
    /// The digests of the layers when unpacked, one per layer of the manifest.
    pub(super) fn diff_ids(&self, layers: usize) -> ImageResult<&[Digest]> {
        let is_here = (self.os.is_empty() || self.os == "linux")
            && (self.architecture.is_empty() || self.architecture == host_architecture());
        if !is_here {
            return ImageError::malformed(format!(
                "the image is for {} on {}",
                self.os, self.architecture
            ));
        }
        if layers == 0 || layers > MAX_LAYERS || layers != self.rootfs.diff_ids.len() {
            return ImageError::malformed(format!(
                "the manifest has {layers} layers and the config {}; 1 to {MAX_LAYERS} of both \
                 are imported",
                self.rootfs.diff_ids.len()
            ));
        }
        Ok(&self.rootfs.diff_ids)
    }
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(what: &str, bytes: &[u8]) -> ImageResult<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| ImageError::Malformed(format!("{what} is malformed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_checked_where_they_are_read() {
        let hex = "a".repeat(64);
        let digest: Digest = serde_json::from_str(&format!("\"sha256:{hex}\"")).unwrap();
        assert_eq!(digest.hex(), hex);
        for bad in [
            "sha256:ABC".to_owned(),
            format!("sha512:{hex}"),
            format!("sha256:{}/", &hex[1..]),
            format!("sha256:..{}", &hex[2..]),
        ] {
            assert!(serde_json::from_str::<Digest>(&format!("{bad:?}")).is_err());
        }
    }

    #[test]
    fn the_host_chooses_among_platforms_and_refuses_several_images() {
        let entry = |digit: &str, architecture: &str| {
            format!(
                r#"{{"digest":"sha256:{}","platform":{{"os":"linux","architecture":"{architecture}"}}}}"#,
                digit.repeat(64)
            )
        };
        let index = |entries: &[String]| -> Index {
            parse(
                "index",
                format!("{{\"manifests\":[{}]}}", entries.join(",")).as_bytes(),
            )
            .unwrap()
        };
        let here = host_architecture();
        let chosen = index(&[entry("1", "s390x"), entry("2", here)])
            .choose("x")
            .unwrap();
        assert_eq!(chosen.digest.hex(), "2".repeat(64));
        assert!(
            index(&[entry("1", here), entry("2", here)])
                .choose("x")
                .is_err()
        );
        assert!(index(&[entry("1", "s390x")]).choose("x").is_err());
    }

    #[test]
    fn null_is_nothing() {
        let defaults: ProcessDefaults =
            serde_json::from_str(r#"{"Env":null,"Cmd":["sh"],"Entrypoint":null,"User":""}"#)
                .unwrap();
        assert_eq!(defaults.cmd, ["sh"]);
        assert!(defaults.entrypoint.is_empty());
    }
}
