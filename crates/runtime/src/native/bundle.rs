//! The bundle that the engine is given.
//!
//! It is the caller's own, as long as its `config.json` is byte for byte what was submitted and the engine
//! may do everything in it. Otherwise the container's folder gets a bundle that differs in exactly that.

use std::io;
use std::path::{Path, PathBuf};

use a3sbox_oci::OciBundle;
use serde_json::Value;

use crate::native::hooks;

const CONFIG_FILE: &str = "config.json";

/// The folder to name with `--bundle`.
pub(crate) fn for_engine(bundle: &OciBundle, folder: &Path) -> io::Result<PathBuf> {
    let drops_poststop = !hooks::driver_poststop(bundle.spec()).is_empty();
    if !drops_poststop && is_as_submitted(bundle)? {
        return Ok(bundle.directory().to_path_buf());
    }
    let mut config: Value = serde_json::from_slice(bundle.config_bytes())?;
    if drops_poststop && let Some(Value::Object(hooks)) = config.get_mut("hooks") {
        hooks.remove("poststop");
    }
    make_absolute(&mut config, bundle.directory());
    let directory = folder.join("bundle");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(CONFIG_FILE), serde_json::to_vec(&config)?)?;
    Ok(directory)
}

fn is_as_submitted(bundle: &OciBundle) -> io::Result<bool> {
    match std::fs::read(bundle.directory().join(CONFIG_FILE)) {
        Ok(bytes) => Ok(bytes == bundle.config_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Paths that are relative to the bundle would mean something else in another folder.
fn make_absolute(config: &mut Value, directory: &Path) {
    if let Some(root) = config.pointer_mut("/root/path") {
        join(root, directory);
    }
    let mounts = config.get_mut("mounts").and_then(Value::as_array_mut);
    for mount in mounts.into_iter().flatten() {
        if is_bind(mount)
            && let Some(source) = mount.get_mut("source")
        {
            join(source, directory);
        }
    }
}

fn is_bind(mount: &Value) -> bool {
    let options = mount.get("options").and_then(Value::as_array);
    mount.get("type").and_then(Value::as_str) == Some("bind")
        || options
            .into_iter()
            .flatten()
            .any(|option| matches!(option.as_str(), Some("bind" | "rbind")))
}

fn join(path: &mut Value, directory: &Path) {
    if let Some(relative) = path.as_str()
        && !Path::new(relative).is_absolute()
    {
        *path = Value::from(directory.join(relative).to_string_lossy());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn relative_paths_become_absolute_and_others_stay() {
        let mut config = json!({
            "root": { "path": "rootfs" },
            "mounts": [
                { "destination": "/a", "type": "bind", "source": "data", "options": ["rbind"] },
                { "destination": "/b", "source": "more", "options": ["bind"] },
                { "destination": "/c", "type": "bind", "source": "/abs" },
                { "destination": "/proc", "type": "proc", "source": "proc" },
            ],
        });
        make_absolute(&mut config, Path::new("/bundles/x"));
        assert_eq!(config["root"]["path"], "/bundles/x/rootfs");
        let sources: Vec<_> = config["mounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mount| mount["source"].as_str().unwrap())
            .collect();
        assert_eq!(
            sources,
            ["/bundles/x/data", "/bundles/x/more", "/abs", "proc"]
        );
    }
}
