//! These mount for real and need root; without it they say so and do nothing.

use super::*;

fn entry(fs_type: &str, source: &str, options: &[&str]) -> RootfsMount {
    RootfsMount {
        fs_type: fs_type.to_owned(),
        source: source.to_owned(),
        target: String::new(),
        options: options.iter().map(|word| (*word).to_owned()).collect(),
    }
}

fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        eprintln!("skipped: mounting needs root");
    }
    may
}

fn is_mounted(folder: &Path) -> bool {
    let here = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    here.lines()
        .any(|line| line.split(' ').nth(4) == Some(folder.to_str().unwrap()))
}

#[test]
fn a_read_only_bind_and_a_stack_of_mounts_come_and_go() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let root = folder.path().join("rootfs");
    std::fs::create_dir_all(source.join("inner")).unwrap();
    let mut inner = entry("tmpfs", "tmpfs", &["size=64k"]);
    inner.target = "/inner".into();
    let mounts = [
        entry(
            "bind",
            source.to_str().unwrap(),
            &["rbind", "ro", "rprivate"],
        ),
        inner,
    ];
    mount_all(&mounts, &root).unwrap();
    assert!(is_mounted(&root) && is_mounted(&root.join("inner")));
    assert!(std::fs::write(root.join("file"), "").is_err());
    std::fs::write(root.join("inner/file"), "").unwrap();
    unmount_all(&mounts, &root).unwrap();
    assert!(!is_mounted(&root));
    unmount_all(&mounts, &root).unwrap();
}

#[test]
fn a_busy_mount_leaves_the_tree() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rootfs");
    let mounts = [entry("tmpfs", "tmpfs", &[])];
    mount_all(&mounts, &root).unwrap();
    let user = std::fs::File::create(root.join("open")).unwrap();
    unmount_all(&mounts, &root).unwrap();
    assert!(!is_mounted(&root));
    drop(user);
}

#[test]
fn a_later_fault_takes_the_earlier_mounts_away_and_is_told() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rootfs");
    let mounts = [
        entry("tmpfs", "tmpfs", &[]),
        entry("nosuchfs", "none", &["x=1"]),
    ];
    let error = mount_all(&mounts, &root).unwrap_err();
    assert!(error.to_string().contains("nosuchfs"), "{error}");
    assert!(!is_mounted(&root));
}

#[test]
fn a_target_cannot_lead_out_of_the_root() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rootfs");
    std::fs::create_dir_all(root.join("real")).unwrap();
    std::os::unix::fs::symlink("/real", root.join("link")).unwrap();
    let mut outside = entry("tmpfs", "tmpfs", &[]);
    outside.target = "../../../../link".into();
    mount_all(std::slice::from_ref(&outside), &root).unwrap();
    assert!(is_mounted(&root.join("real")));
    unmount_all(&[outside], &root).unwrap();
    assert!(!is_mounted(&root.join("real")));
}

#[test]
fn an_overlay_with_hundreds_of_long_lower_folders_is_mounted() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rootfs");
    let layers = folder.path().join("a-long-name-of-a-snapshotter/snapshots");
    let lower: Vec<String> = (0..60)
        .map(|number| {
            let layer = layers.join(format!("{number:040}"));
            std::fs::create_dir_all(&layer).unwrap();
            std::fs::write(layer.join(number.to_string()), "").unwrap();
            layer.display().to_string()
        })
        .collect();
    let lower = format!("lowerdir={}", lower.join(":"));
    assert!(lower.len() > DATA_MAX_BYTES);
    let mounts = [entry("overlay", "overlay", &[&lower])];
    mount_all(&mounts, &root).unwrap();
    assert!(root.join("0").exists() && root.join("59").exists());
    unmount_all(&mounts, &root).unwrap();
}
