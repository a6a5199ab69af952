//! Archives that were made to mislead, and those that merely are unusual.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use a3sbox_core::ExecutionIsolation;
use a3sbox_sdk::{ClientError, ImageSummary};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

use crate::support::{Home, IMAGE};

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// An entry of a layer: kind, name, link target or content, owner.
type Item<'a> = (tar::EntryType, &'a str, &'a str, u64);

const FILE: tar::EntryType = tar::EntryType::Regular;
const FOLDER: tar::EntryType = tar::EntryType::Directory;
const SYMLINK: tar::EntryType = tar::EntryType::Symlink;
const HARDLINK: tar::EntryType = tar::EntryType::Link;

fn layer(items: &[Item<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, name, content, owner) in items {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_uid(*owner);
        header.set_gid(*owner);
        header.set_mtime(1_000_000_000);
        // The builder refuses such names; an attacker's tool does not.
        let raw = &mut header.as_gnu_mut().unwrap().name;
        raw[..name.len()].copy_from_slice(name.as_bytes());
        let is_link = matches!(*kind, SYMLINK | HARDLINK);
        if is_link {
            let raw = &mut header.as_gnu_mut().unwrap().linkname;
            raw[..content.len()].copy_from_slice(content.as_bytes());
        }
        let body = if is_link { "" } else { content };
        header.set_size(body.len() as u64);
        header.set_cksum();
        builder.append(&header, body.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An archive on disk; the layers are compressed when asked for.
struct Archive {
    name: Option<&'static str>,
    layers: Vec<Vec<u8>>,
    compressed: bool,
    /// Changes a blob behind its digest's back.
    damage: bool,
    /// What the config says of the layers instead of the truth.
    diff_ids: Option<Vec<String>>,
}

impl Archive {
    fn of(layers: &[&[Item<'_>]]) -> Self {
        Self {
            name: Some("test/image:1"),
            layers: layers.iter().map(|items| layer(items)).collect(),
            compressed: false,
            damage: false,
            diff_ids: None,
        }
    }

    fn write(&self, folder: &Path) -> PathBuf {
        let diff_ids = self
            .diff_ids
            .clone()
            .unwrap_or_else(|| self.layers.iter().map(|layer| digest(layer)).collect());
        let config = serde_json::json!({
            "os": "linux",
            "config": {"Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        })
        .to_string()
        .into_bytes();
        let (suffix, layers): (_, Vec<_>) = if self.compressed {
            (
                "+gzip",
                self.layers.iter().map(|layer| gzip(layer)).collect(),
            )
        } else {
            ("", self.layers.clone())
        };
        let kind = format!("application/vnd.oci.image.layer.v1.tar{suffix}");
        let described: Vec<_> = layers
            .iter()
            .map(|layer| serde_json::json!({"mediaType": kind, "digest": digest(layer), "size": layer.len()}))
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "config": {"digest": digest(&config), "size": config.len()},
            "layers": described,
        })
        .to_string()
        .into_bytes();
        let mut entry = serde_json::json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(&manifest),
        });
        if let Some(name) = self.name {
            entry["annotations"] = serde_json::json!({"io.containerd.image.name": name});
        }
        let index = serde_json::json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
        let path = folder.join("archive.tar");
        let mut builder = tar::Builder::new(std::fs::File::create(&path).unwrap());
        let mut add = |name: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, bytes).unwrap();
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
        add("index.json", index.as_bytes());
        for mut blob in [vec![config, manifest], layers].concat() {
            let name = format!("blobs/sha256/{}", &digest(&blob)["sha256:".len()..]);
            if self.damage {
                blob[0] ^= 1;
            }
            add(&name, &blob);
        }
        builder.finish().unwrap();
        path
    }

    async fn import(&self, home: &Home) -> a3sbox_sdk::Result<ImageSummary> {
        let folder = tempfile::tempdir().unwrap();
        home.client.import_image(self.write(folder.path())).await
    }
}

fn rootfs(home: &Home) -> PathBuf {
    let folder = home.path().join("images/rootfs");
    let mut entries = std::fs::read_dir(folder).unwrap();
    entries.next().unwrap().unwrap().path()
}

/// Nothing of a failed import stays.
fn assert_empty(home: &Home) {
    let left: Vec<_> = std::fs::read_dir(home.path().join("images"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != ".lock")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn layers_lie_over_each_other_with_whiteouts_and_gzip() {
    let home = Home::empty();
    let mut archive = Archive::of(&[
        &[
            (FOLDER, "./", "", 0),
            (FILE, "a/kept", "1", 1000),
            (FILE, "a/hidden", "1", 0),
            (FILE, "b/old", "1", 0),
            (FILE, "c/old/deep", "1", 0),
            (FOLDER, "usr/lib/", "", 0),
            (SYMLINK, "lib", "usr/lib", 0),
        ],
        &[
            (FILE, "a/.wh.hidden", "", 0),
            (FILE, "b/new", "2", 0),
            (FILE, "b/.wh..wh..opq", "", 0),
            (FILE, "c/.wh.old", "", 0),
            (FILE, "lib/in-usr", "2", 0),
            (HARDLINK, "linked", "a/kept", 0),
        ],
    ]);
    archive.compressed = true;
    let image = archive.import(&home).await.unwrap();
    assert_eq!(image.name, "test/image:1");
    let rootfs = rootfs(&home);
    let read = |path: &str| std::fs::read_to_string(rootfs.join(path)).ok();
    assert_eq!(read("a/kept").as_deref(), Some("1"));
    assert_eq!(read("linked").as_deref(), Some("1"));
    assert_eq!(read("b/new").as_deref(), Some("2"));
    assert_eq!(read("usr/lib/in-usr").as_deref(), Some("2"));
    for gone in [
        "a/hidden",
        "b/old",
        "c/old",
        "a/.wh.hidden",
        "b/.wh..wh..opq",
    ] {
        assert!(!rootfs.join(gone).exists(), "{gone}");
    }
    use std::os::unix::fs::MetadataExt as _;
    let kept = std::fs::metadata(rootfs.join("a/kept")).unwrap();
    assert_eq!(kept.uid(), 536_870_912 + 1000);
    assert_eq!(kept.mtime(), 1_000_000_000);
    assert_eq!(home.client.list_images().await.unwrap(), [image]);
}

#[tokio::test]
async fn nothing_is_written_outside_of_the_image() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let escape = format!("out{target}/made");
    let through: [&[Item<'_>]; 1] = [&[
        (SYMLINK, "out", "/", 0),
        (SYMLINK, "up", "../../../../../../..", 0),
        (FILE, &escape, "x", 0),
    ]];
    let home = Home::empty();
    Archive::of(&through).import(&home).await.unwrap();
    // The link is followed inside of the image, as it will be when it runs.
    assert!(rootfs(&home).join(&target[1..]).join("made").exists());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);

    let refused: [&[Item<'_>]; 4] = [
        &[(FILE, "../made", "x", 0)],
        &[(FILE, "a/../../made", "x", 0)],
        &[(HARDLINK, "passwd", "../../../../../../etc/passwd", 0)],
        &[(FILE, "a/.wh...", "", 0)],
    ];
    for items in refused {
        let home = Home::empty();
        Archive::of(&[items]).import(&home).await.unwrap_err();
        assert_empty(&home);
    }
}

#[tokio::test]
async fn what_is_not_what_it_says_is_refused_whole() {
    let good: &[Item<'_>] = &[(FILE, "f", "1", 0)];
    let broken = |change: fn(&mut Archive)| {
        let mut archive = Archive::of(&[good]);
        change(&mut archive);
        archive
    };
    for archive in [
        broken(|archive| archive.damage = true),
        broken(|archive| archive.name = None),
        broken(|archive| archive.diff_ids = Some(vec![digest(b"other")])),
        broken(|archive| archive.diff_ids = Some(Vec::new())),
        broken(|archive| archive.layers = vec![layer(&[(FILE, "f", "1", 70_000)])]),
        broken(|archive| archive.layers = Vec::new()),
    ] {
        let home = Home::empty();
        let error = archive.import(&home).await.unwrap_err();
        assert!(
            matches!(error, ClientError::Runtime(_) | ClientError::State(_)),
            "{error:?}"
        );
        assert_empty(&home);
    }
    let home = Home::empty();
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no archive").unwrap();
    home.client.import_image(text).await.unwrap_err();
    home.client
        .import_image(folder.path().join("missing"))
        .await
        .unwrap_err();
    assert_empty(&home);
}

#[tokio::test]
async fn an_image_has_one_name_in_all_spellings_and_may_be_replaced() {
    let home = Home::new().await;
    let again = home
        .client
        .import_image(crate::support::archive())
        .await
        .unwrap();
    assert_eq!(home.client.list_images().await.unwrap(), [again]);
    let sandbox = home
        .client
        .sandbox(format!(" {IMAGE}"))
        .isolation(ExecutionIsolation::Sandbox)
        .start()
        .await
        .unwrap();
    // The image goes from under its name; the sandbox keeps it.
    Archive {
        name: Some(IMAGE),
        ..Archive::of(&[&[(FILE, "f", "1", 0)]])
    }
    .import(&home)
    .await
    .unwrap();
    assert_eq!(home.client.list_images().await.unwrap().len(), 1);
    assert_eq!(
        sandbox.commands.run("echo on").await.unwrap().stdout,
        "on\n"
    );
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}
