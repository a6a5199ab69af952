//! A rootfs from one static busybox.

use std::path::{Path, PathBuf};

const APPLETS: [&str; 15] = [
    "sh", "sleep", "cat", "echo", "true", "id", "stty", "env", "printf", "kill", "wc", "ls", "tty",
    "usleep", "head",
];

/// Fills a folder. Applets are hard links: to a caller that looks for an executable each is a regular file.
pub(crate) fn fill(rootfs: &Path) {
    for name in ["bin", "proc", "dev", "tmp", "out"] {
        std::fs::create_dir_all(rootfs.join(name)).unwrap();
    }
    let busybox = rootfs.join("bin/busybox");
    if busybox.exists() {
        return;
    }
    std::fs::copy(found(), &busybox).unwrap();
    for applet in APPLETS {
        std::fs::hard_link(&busybox, rootfs.join("bin").join(applet)).unwrap();
    }
}

fn found() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let busybox = variable("A3SBOX_TEST_BUSYBOX").unwrap_or_else(|| {
        variable("A3SBOX_CACHE")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("a3sbox")))
            .or_else(|| Some(variable("HOME")?.join(".cache/a3sbox")))
            .unwrap_or_default()
            .join("busybox/bin/busybox")
    });
    assert!(
        busybox.is_file(),
        "prerequisite: a static busybox at {} (hack/setup packages, or A3SBOX_TEST_BUSYBOX)",
        busybox.display()
    );
    busybox
}
