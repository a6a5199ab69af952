use serde_json::json;

use super::*;

const MINIMAL: &str = r#"{"ociVersion":"1.3.0","process":{"terminal":false,"user":{"uid":0,"gid":0},"args":["/bin/true"],"cwd":"/"},"root":{"path":"rootfs","readonly":false}}"#;

#[tokio::test]
async fn load_resolves_the_directory_and_keeps_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    std::fs::create_dir(&real).unwrap();
    let text = format!(" {MINIMAL}\n\n");
    std::fs::write(real.join(CONFIG_FILE_NAME), &text).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let bundle = OciBundle::load(&link).await.unwrap();
    assert_eq!(bundle.directory(), real.canonicalize().unwrap());
    assert_eq!(bundle.config_json(), text);
    assert_eq!(bundle.config_bytes(), text.as_bytes());
    assert_eq!(bundle.config_digest(), sha256_digest(text.as_bytes()));
    assert_eq!(bundle.spec().version(), "1.3.0");
}

#[tokio::test]
async fn what_cannot_be_loaded_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str| OciBundle::load(folder.path().join(name));
    assert_eq!(load("absent").await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(load("").await.unwrap_err().code, ErrorCode::NotFound);
    let write = |bytes: &[u8]| std::fs::write(folder.path().join(CONFIG_FILE_NAME), bytes).unwrap();
    for bad in [
        &b"{"[..],
        b"[]",
        b"\xff{}",
        b"{}",
        br#"{"ociVersion":"0.9.0"}"#,
    ] {
        write(bad);
        let error = load("").await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{bad:?}");
    }
    write(&vec![b' '; MAX_CONFIG_BYTES + 1]);
    assert_eq!(load("").await.unwrap_err().code, ErrorCode::InvalidArgument);
    std::fs::remove_file(folder.path().join(CONFIG_FILE_NAME)).unwrap();
    std::fs::create_dir(folder.path().join(CONFIG_FILE_NAME)).unwrap();
    assert_eq!(load("").await.unwrap_err().code, ErrorCode::InvalidArgument);
}

#[test]
fn from_spec_gives_the_same_bytes_each_time() {
    let spec: Spec = serde_json::from_value(json!({
        "ociVersion": "1.1.0",
        "process": {
            "user": {"uid": 0, "gid": 0}, "args": ["x"], "cwd": "/",
            "capabilities": {"bounding": ["CAP_KILL", "CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"]},
        },
        "root": {"path": "rootfs"},
        "annotations": {"b": "2", "a": "1", "d": "4", "c": "3"},
    }))
    .unwrap();
    let first = OciBundle::from_spec("/does/not/exist", spec.clone()).unwrap();
    for _ in 0..20 {
        // Decoding fills fresh hash sets and maps, each with an order of its own.
        let again = serde_json::from_str(first.config_json()).unwrap();
        let second = OciBundle::from_spec("/does/not/exist", again).unwrap();
        assert_eq!(second.config_json(), first.config_json());
        assert_eq!(second, first);
    }
    assert_eq!(first.spec(), &spec);
    assert_eq!(first.config_digest(), sha256_digest(first.config_bytes()));
    assert!(OciBundle::from_spec("relative", spec).is_err());
}

#[test]
fn decoding_refuses_another_digest() {
    let bundle = OciBundle::from_json("/bundle", MINIMAL).unwrap();
    let mut wire = serde_json::to_value(&bundle).unwrap();
    assert_eq!(
        wire,
        json!({"directory": "/bundle", "config_digest": bundle.config_digest(), "config_json": MINIMAL})
    );
    assert_eq!(
        serde_json::from_value::<OciBundle>(wire.clone()).unwrap(),
        bundle
    );
    wire["config_json"] = json!(MINIMAL.replace("/bin/true", "/bin/false"));
    let error = serde_json::from_value::<OciBundle>(wire.clone()).unwrap_err();
    assert!(error.to_string().contains("digest"), "{error}");
    wire["config_json"] = json!("{}");
    assert!(serde_json::from_value::<OciBundle>(wire).is_err());
}

#[test]
fn equality_is_of_directory_and_bytes() {
    let bundle = OciBundle::from_json("/bundle", MINIMAL).unwrap();
    assert_eq!(bundle, bundle.clone());
    assert_ne!(bundle, OciBundle::from_json("/other", MINIMAL).unwrap());
    assert_ne!(
        bundle,
        OciBundle::from_json("/bundle", format!("{MINIMAL} ")).unwrap()
    );
    assert!(!format!("{bundle:?}").contains("/bin/true"));
}
