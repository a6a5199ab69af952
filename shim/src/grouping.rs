//! Which containers share one shim, and where that shim listens.
//!
//! A container names its group in an annotation of its bundle; the containers of a pod carry the id of
//! their sandbox. The socket's path is a digest of (containerd, namespace, group), so that it always
//! fits into a socket address and both `start` and `delete` find it again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Annotations that name the group; the first one present counts, as in the stock shim.
const GROUP_ANNOTATIONS: [&str; 2] = [
    "io.containerd.runc.v2.group",
    "io.kubernetes.cri.sandbox-id",
];
/// Where shims listen when containerd does not say.
const DEFAULT_SOCKET_DIR: &str = "/run/containerd/s";
/// Longest path that containerd and the kernel take for a socket.
const SOCKET_PATH_MAX: usize = 106;
/// Largest `config.json` that is read. containerd's own messages are bounded far below it.
pub(crate) const CONFIG_MAX_BYTES: u64 = 16 << 20;

/// Why the group of a bundle could not be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupingError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is larger than {CONFIG_MAX_BYTES} bytes")]
    TooLarge { path: PathBuf },
    #[error("malformed {path}")]
    Parse {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{path:?}: unix socket path too long (> {SOCKET_PATH_MAX})")]
    SocketPath { path: PathBuf },
}

/// Reads a bundle's `config.json`, bounded.
pub(crate) fn read_config(bundle: &Path) -> Result<Vec<u8>, GroupingError> {
    let path = bundle.join("config.json");
    let read = |path: &Path| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(CONFIG_MAX_BYTES + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read(&path) {
        Ok(bytes) if bytes.len() as u64 > CONFIG_MAX_BYTES => Err(GroupingError::TooLarge { path }),
        Ok(bytes) => Ok(bytes),
        Err(source) => Err(GroupingError::Read { path, source }),
    }
}

/// The annotations of a bundle; nothing else of `config.json` is looked at.
pub(crate) fn read_annotations(bundle: &Path) -> Result<HashMap<String, String>, GroupingError> {
    #[derive(Deserialize)]
    struct Annotated {
        #[serde(default)]
        annotations: Option<HashMap<String, String>>,
    }
    let bytes = read_config(bundle)?;
    match serde_json::from_slice::<Annotated>(&bytes) {
        Ok(spec) => Ok(spec.annotations.unwrap_or_default()),
        Err(source) => Err(GroupingError::Parse {
            path: bundle.join("config.json"),
            source,
        }),
    }
}

/// The group of a container: its annotation's, else a group of its own.
pub(crate) fn group_of<'a>(annotations: &'a HashMap<String, String>, id: &'a str) -> &'a str {
    GROUP_ANNOTATIONS
        .iter()
        .find_map(|name| annotations.get(*name))
        .filter(|group| !group.is_empty())
        .map_or(id, String::as_str)
}

/// Short name of one containerd on a node, so that two of them never meet in our state.
pub(crate) fn instance_of(address: &str) -> String {
    hex(&Sha256::digest(address.as_bytes()))[..12].to_owned()
}

/// Path of the socket of one group's shim.
///
/// The digest's input starts with a word of ours: a stock shim of the same group has another path.
pub(crate) fn socket_path(
    socket_dir: Option<&Path>,
    address: &str,
    namespace: &str,
    group: &str,
) -> Result<PathBuf, GroupingError> {
    let mut digest = Sha256::new();
    for part in ["a3sbox", address, namespace, group] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let path = socket_dir
        .unwrap_or(Path::new(DEFAULT_SOCKET_DIR))
        .join(hex(&digest.finalize()));
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(GroupingError::SocketPath { path });
    }
    Ok(path)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_explicit_group_wins_over_the_pod_and_both_over_the_id() {
        let pod = ("io.kubernetes.cri.sandbox-id", "pod");
        let group = ("io.containerd.runc.v2.group", "group");
        assert_eq!(group_of(&annotations(&[]), "c"), "c");
        assert_eq!(group_of(&annotations(&[pod]), "c"), "pod");
        assert_eq!(group_of(&annotations(&[pod, group]), "c"), "group");
    }

    #[test]
    fn sockets_differ_by_each_part_and_fit() {
        let path = |a: &str, n: &str, g: &str| socket_path(None, a, n, g).unwrap();
        let base = path("/a", "n", "g");
        assert_eq!(base, path("/a", "n", "g"));
        assert_ne!(base, path("/b", "n", "g"));
        assert_ne!(base, path("/a", "ng", ""));
        assert!(base.as_os_str().len() <= SOCKET_PATH_MAX);
        let long = "x".repeat(60);
        assert!(socket_path(Some(Path::new(&long)), "/a", "n", "g").is_err());
    }

    #[test]
    fn annotations_are_read_from_a_bundle_and_faults_name_the_file() {
        let bundle = tempfile::tempdir().unwrap();
        assert!(read_annotations(bundle.path()).is_err());
        std::fs::write(bundle.path().join("config.json"), "{").unwrap();
        let error = read_annotations(bundle.path()).unwrap_err();
        assert!(error.to_string().contains("config.json"), "{error}");
        std::fs::write(
            bundle.path().join("config.json"),
            r#"{"ociVersion":"1.0.2-dev","annotations":{"a":"b"},"x":1}"#,
        )
        .unwrap();
        assert_eq!(read_annotations(bundle.path()).unwrap()["a"], "b");
        std::fs::write(bundle.path().join("config.json"), r#"{"annotations":null}"#).unwrap();
        assert!(read_annotations(bundle.path()).unwrap().is_empty());
    }
}
