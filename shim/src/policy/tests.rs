use super::*;

fn body(text: &str) -> RuntimeOptions {
    RuntimeOptions::Body(text.to_owned())
}

fn load(options: &RuntimeOptions) -> Result<Policy, PolicyError> {
    Policy::load(Path::new("/nonexistent/a3sbox.toml"), options)
}

#[test]
fn without_any_file_the_defaults_hold() {
    assert_eq!(load(&RuntimeOptions::None).unwrap(), Policy::default());
}

#[test]
fn the_whole_schema_is_accepted() {
    let text = r#"
        schema_version = 1
        isolation = "native"
        allow_weaker = true
        state_root = "/run/x"
        SystemdCgroup = true
        BinaryName = "crun"
        Root = "/run/r"
        NoPivotRoot = true
        NoNewKeyring = true
        ShimCgroup = "/shims"
        IoUid = 5
        IoGid = 6
        CriuPath = "criu"
        CriuImagePath = ""
        CriuWorkPath = "/w"
        [native]
        engine = "runc"
        [microvm]
        vmm = "qemu"
        allow_emulation = false
        image = "/usr/share/a3sbox/guest"
        replaced_host_profiles = ["cri-containerd.apparmor.d"]
        [microvm.memory_mib]
        min = 64
        default = 256
        max = 4096
        [microvm.vcpus]
        min = 1
        default = 1
        max = 8
        [snapshots]
        dir = "/var/lib/a3sbox/snapshots"
        quota_mib = 10240
        max_age_days = 30
        [sidecar]
        socket = "/run/a3sbox/cri.sock"
        uids = [0]
        gids = [0]
    "#;
    let policy = load(&body(text)).unwrap();
    assert!(policy.allow_weaker && policy.runc.systemd_cgroup && policy.runc.no_pivot_root);
    assert_eq!(policy.state_root, Path::new("/run/x"));
    assert_eq!(policy.runc.binary_name.as_deref(), Some("crun"));
    assert_eq!(policy.runc.root.as_deref(), Some(Path::new("/run/r")));
    assert_eq!((policy.runc.io_uid, policy.runc.io_gid), (5, 6));
    assert_eq!(policy.runc.criu_image_path, None);
}

#[test]
fn every_fault_is_listed_with_its_key() {
    let text = r#"
        Nosuch = 1
        SystemdCgroup = "yes"
        state_root = "relative"
        isolation = "vm"
        schema_version = 2
        [native]
        engine = "builtin"
        more = 1
        [microvm.vcpus]
        min = 4
        max = 2
    "#;
    let text = load(&body(text)).unwrap_err().to_string();
    for part in [
        "unknown option \"Nosuch\"",
        "SystemdCgroup is string, expected boolean",
        "state_root \"relative\" is not an absolute path",
        "isolation \"vm\" is not known",
        "schema_version 2 is not known",
        "native.engine \"builtin\" is not available",
        "unknown option \"native.more\"",
        "microvm.vcpus.min 4 is above microvm.vcpus.max 2",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn options_lie_over_the_base_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("config.toml");
    std::fs::write(
        &base,
        "state_root = \"/run/base\"\nBinaryName = \"crun\"\n[native]\nengine = \"runc\"\n",
    )
    .unwrap();
    let policy = Policy::load(&base, &body("SystemdCgroup = true\nBinaryName = \"runc\"")).unwrap();
    assert_eq!(policy.state_root, Path::new("/run/base"));
    assert_eq!(policy.runc.binary_name.as_deref(), Some("runc"));
    assert!(policy.runc.systemd_cgroup);

    let handler = folder.path().join("handler.toml");
    std::fs::write(&handler, "allow_weaker = true\n").unwrap();
    let policy = Policy::load(&base, &RuntimeOptions::File(handler)).unwrap();
    assert!(policy.allow_weaker);
    assert_eq!(policy.runc.binary_name.as_deref(), Some("crun"));

    let over = RuncOptions {
        root: Some("/r".into()),
        ..RuncOptions::default()
    };
    let policy = Policy::load(&base, &RuntimeOptions::Runc(over)).unwrap();
    assert_eq!(policy.runc.root.as_deref(), Some(Path::new("/r")));
    assert_eq!(policy.runc.binary_name.as_deref(), Some("crun"));
}

#[test]
fn a_named_file_must_exist_and_a_broken_base_is_told() {
    let missing = RuntimeOptions::File("/nonexistent/h.toml".into());
    assert!(
        load(&missing)
            .unwrap_err()
            .to_string()
            .contains("/nonexistent/h.toml")
    );
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("config.toml");
    std::fs::write(&base, "= 1").unwrap();
    assert!(Policy::load(&base, &RuntimeOptions::None).is_err());
}

#[test]
fn a_pod_may_ask_for_more_and_for_less_only_where_allowed() {
    let wish = |word: &str| HashMap::from([(ISOLATION_ANNOTATION.to_owned(), word.to_owned())]);
    let mut policy = Policy::default();
    assert_eq!(
        policy.isolation_for(&HashMap::new()).unwrap(),
        Isolation::Native
    );
    assert_eq!(
        policy.isolation_for(&wish("native")).unwrap(),
        Isolation::Native
    );
    assert!(matches!(
        policy.isolation_for(&wish("microvm")),
        Err(PolicyError::MicroVmUnavailable)
    ));
    assert!(matches!(
        policy.isolation_for(&wish("none")),
        Err(PolicyError::UnknownIsolation(_))
    ));
    policy.isolation = Isolation::MicroVm;
    assert!(matches!(
        policy.isolation_for(&HashMap::new()),
        Err(PolicyError::MicroVmUnavailable)
    ));
    assert!(matches!(
        policy.isolation_for(&wish("native")),
        Err(PolicyError::Weaker { .. })
    ));
    policy.allow_weaker = true;
    assert_eq!(
        policy.isolation_for(&wish("native")).unwrap(),
        Isolation::Native
    );
}
