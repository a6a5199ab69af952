//! OCI configurations for `ctr run --config` and `ctr container create`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{Containerd, Node};

/// An OCI configuration that `runc spec` would print, without a terminal, for an unpacked rootfs.
#[derive(Debug, Clone)]
pub struct Bundle {
    dir: PathBuf,
    pub config: Value,
}

/// The capabilities that containers have by default.
const CAPABILITIES: [&str; 6] = [
    "CAP_KILL",
    "CAP_CHOWN",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
];

impl Bundle {
    /// A bundle of its own with a rootfs that has busybox and nothing else.
    pub fn bare(containerd: &Containerd, name: &str, args: &[&str]) -> Result<Self> {
        let dir = containerd.dir().join("bundles").join(name);
        let bin = dir.join("rootfs/bin");
        std::fs::create_dir_all(&bin)?;
        for folder in ["proc", "dev", "tmp", "sys"] {
            std::fs::create_dir_all(dir.join("rootfs").join(folder))?;
        }
        let busybox = busybox()?;
        std::fs::copy(&busybox, bin.join("busybox"))
            .with_context(|| busybox.display().to_string())?;
        for applet in [
            "sh", "id", "sleep", "cat", "echo", "ls", "true", "env", "ps", "mkdir", "dd",
        ] {
            std::os::unix::fs::symlink("busybox", bin.join(applet))?;
        }
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": {"uid": 0, "gid": 0},
                "args": args,
                "env": ["PATH=/bin"],
                "cwd": "/",
                "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
                "noNewPrivileges": true
            },
            "root": {"path": dir.join("rootfs")},
            "hostname": "bare",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]}
            ],
            "linux": {
                "cgroupsPath": format!("/{}/{name}", containerd.dir().file_name().unwrap_or_default().to_string_lossy()),
                "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"}]
            }
        });
        Ok(Self { dir, config })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lays a fragment over the configuration: objects are merged, everything else is replaced.
    pub fn with(mut self, fragment: Value) -> Self {
        merge(&mut self.config, fragment);
        self
    }

    /// Writes the configuration and returns its path for `--config`.
    pub fn write(&self) -> Result<String> {
        let path = self.dir.join("config.json");
        std::fs::write(&path, self.config.to_string())?;
        Ok(path.display().to_string())
    }

    /// `ctr run` of this configuration on `node`.
    pub fn run(&self, node: &Node<'_>, id: &str, options: &[&str]) -> Result<crate::Output> {
        let path = self.write()?;
        let mut args = vec![
            "run",
            "--runtime",
            node.shim.runtime_type(),
            "--config",
            &path,
        ];
        args.extend(options);
        args.push(id);
        node.ctr(&args)
    }
}

/// The static busybox that `hack/setup` unpacked.
pub fn busybox() -> Result<PathBuf> {
    let cache = std::env::var("A3SBOX_CACHE")
        .map(PathBuf::from)
        .or_else(|_| {
            std::env::var("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cache")))
                .map(|cache| cache.join("a3sbox"))
        })?;
    let path = cache.join("busybox/bin/busybox");
    anyhow::ensure!(
        path.exists(),
        "no {}; run hack/setup packages",
        path.display()
    );
    Ok(path)
}

/// Merges `over` into `base`, recursively for objects.
pub fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}
