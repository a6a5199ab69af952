//! Which file a command's first word means inside the execution.
//!
//! The rootfs is the guest's: every link in it is resolved as the guest would, and nothing outside of
//! it is looked at.

use std::path::{Component, Path, PathBuf};

use a3sbox_core::ExecutionManagerResult;

use super::super::error::invalid;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The guest path of `name`. An absolute one is only normalised, one with a folder in it belongs to the
/// working directory, a bare one is searched for in the last `PATH` of `env`.
pub(super) fn resolve(
    rootfs: &Path,
    name: &str,
    cwd: &str,
    env: &[String],
) -> ExecutionManagerResult<String> {
    if name.starts_with('/') {
        return normalised(Path::new(name));
    }
    if name.contains('/') {
        return normalised(&Path::new(cwd).join(name));
    }
    // The rootfs is not always managed here; where it is not, the runtime searches for itself.
    if !rootfs.is_dir() {
        return Ok(name.to_owned());
    }
    let path = env
        .iter()
        .rev()
        .find_map(|entry| entry.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH);
    for folder in path.split(':') {
        // An empty or relative part of PATH means the working directory or a folder below it.
        let guest = Path::new("/").join(cwd).join(folder).join(name);
        if is_executable(rootfs, &guest) {
            return normalised(&guest);
        }
    }
    Err(invalid(format!(
        "executable {name:?} is not in the PATH of the execution"
    )))
}

/// Without `.` and `..`, by name alone.
fn normalised(path: &Path) -> ExecutionManagerResult<String> {
    let mut parts = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => {
                parts.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    parts
        .into_os_string()
        .into_string()
        .map_err(|text| invalid(format!("executable {} is not UTF-8", text.display())))
}

/// A regular file with an execute bit, all links followed inside the rootfs.
#[cfg(target_os = "linux")]
fn is_executable(rootfs: &Path, guest: &Path) -> bool {
    use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};

    let Ok(root) = openat(
        CWD,
        rootfs,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return false;
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(file) = openat2(&root, guest, flags, Mode::empty(), ResolveFlags::IN_ROOT) else {
        return false;
    };
    fstat(&file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
    })
}

/// Elsewhere no rootfs is managed on this host.
#[cfg(not(target_os = "linux"))]
fn is_executable(_rootfs: &Path, _guest: &Path) -> bool {
    false
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn rootfs_with(files: &[(&str, u32)]) -> tempfile::TempDir {
        let rootfs = tempfile::tempdir().unwrap();
        for (path, mode) in files {
            let path = rootfs.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
        }
        rootfs
    }

    #[test]
    fn absolute_and_relative_names_are_normalised_and_not_looked_up() {
        let nowhere = Path::new("/nonexistent");
        for (name, cwd, guest) in [
            ("/bin/sh", "/", "/bin/sh"),
            ("//bin/./x/../sh", "/", "/bin/sh"),
            ("./run", "/srv", "/srv/run"),
            ("../run", "/srv/app", "/srv/run"),
            ("sh", "/", "sh"),
        ] {
            assert_eq!(resolve(nowhere, name, cwd, &[]).unwrap(), guest);
        }
    }

    #[test]
    fn a_bare_name_is_searched_in_the_last_path() {
        let rootfs = rootfs_with(&[
            ("usr/bin/tool", 0o755),
            ("opt/tool", 0o700),
            ("bin/data", 0o644),
        ]);
        let root = rootfs.path();
        assert_eq!(resolve(root, "tool", "/", &[]).unwrap(), "/usr/bin/tool");
        let env = [
            "PATH=/usr/bin".to_owned(),
            "PATH=/nowhere:/opt:/usr/bin".to_owned(),
        ];
        assert_eq!(resolve(root, "tool", "/", &env).unwrap(), "/opt/tool");
        assert_eq!(
            resolve(root, "tool", "/opt", &["PATH=".to_owned()]).unwrap(),
            "/opt/tool"
        );
        assert!(resolve(root, "data", "/", &[]).is_err());
        assert!(resolve(root, "bin", "/", &["PATH=/".to_owned()]).is_err());
    }

    #[test]
    fn links_stay_inside_the_rootfs() {
        let rootfs = rootfs_with(&[("usr/bin/tool", 0o755)]);
        symlink("/usr/bin", rootfs.path().join("bin")).unwrap();
        symlink(
            "../../../../../../bin/sh",
            rootfs.path().join("usr/bin/escape"),
        )
        .unwrap();
        let env = ["PATH=/bin".to_owned()];
        assert_eq!(
            resolve(rootfs.path(), "tool", "/", &env).unwrap(),
            "/bin/tool"
        );
        assert!(resolve(rootfs.path(), "escape", "/", &env).is_err());
    }
}
