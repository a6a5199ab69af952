//! Goes over a whole TOML document and keeps every fault with its key.

use std::collections::HashMap;
use std::path::PathBuf;

use toml::{Table, Value};

use super::{Isolation, Policy};

/// The version of the schema that is known.
const SCHEMA_VERSION: i64 = 1;

/// Collects faults instead of stopping at the first one.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) faults: Vec<String>,
}

impl Reader {
    pub(super) fn policy(&mut self, table: &Table) -> Policy {
        let mut policy = Policy::default();
        for (key, value) in table {
            match key.as_str() {
                "schema_version" => {
                    if let Some(version) = self.integer(key, value, 0, i64::MAX)
                        && version != SCHEMA_VERSION
                    {
                        self.fault(format!(
                            "schema_version {version} is not known, expected {SCHEMA_VERSION}"
                        ));
                    }
                }
                "isolation" => {
                    if let Some(word) = self.string(key, value) {
                        match Isolation::parse(word) {
                            Some(isolation) => policy.isolation = isolation,
                            None => self.fault(format!(
                                "isolation {word:?} is not known, expected native or microvm"
                            )),
                        }
                    }
                }
                "allow_weaker" => self.boolean(key, value, &mut policy.allow_weaker),
                "state_root" => {
                    if let Some(path) = self.absolute(key, value) {
                        policy.state_root = path;
                    }
                }
                "native" => self.native(value),
                "microvm" => self.microvm(value),
                "snapshots" => self.snapshots(value),
                "sidecar" => self.sidecar(value),
                "NoPivotRoot" => self.boolean(key, value, &mut policy.runc.no_pivot_root),
                "NoNewKeyring" => self.boolean(key, value, &mut policy.runc.no_new_keyring),
                "SystemdCgroup" => self.boolean(key, value, &mut policy.runc.systemd_cgroup),
                "ShimCgroup" => policy.runc.shim_cgroup = self.nonempty(key, value),
                "BinaryName" => policy.runc.binary_name = self.nonempty(key, value),
                "Root" => policy.runc.root = self.absolute_or_empty(key, value),
                "CriuPath" => policy.runc.criu_path = self.nonempty(key, value).map(Into::into),
                "CriuImagePath" => policy.runc.criu_image_path = self.absolute_or_empty(key, value),
                "CriuWorkPath" => policy.runc.criu_work_path = self.absolute_or_empty(key, value),
                "IoUid" => policy.runc.io_uid = self.id(key, value),
                "IoGid" => policy.runc.io_gid = self.id(key, value),
                // The CRI plugin's own key for the kind of the content; one kind exists.
                "TypeUrl" => drop(self.string(key, value)),
                _ => self.fault(format!("unknown option {key:?}")),
            }
        }
        policy
    }

    fn native(&mut self, value: &Value) {
        for (key, value) in self.table("native", value) {
            match key.as_str() {
                "engine" => match self.string("native.engine", value) {
                    None | Some("runc") => {}
                    Some("builtin") => {
                        self.fault(
                            "native.engine \"builtin\" is not available in this build".into(),
                        );
                    }
                    Some(other) => self.fault(format!(
                        "native.engine {other:?} is not known, expected runc or builtin"
                    )),
                },
                _ => self.fault(format!("unknown option \"native.{key}\"")),
            }
        }
    }

    /// Checked although microVMs come later: a wrong key must not wait for them to be found.
    fn microvm(&mut self, value: &Value) {
        for (key, value) in self.table("microvm", value) {
            let name = format!("microvm.{key}");
            match key.as_str() {
                "vmm" => {
                    if let Some(vmm) = self.string(&name, value)
                        && vmm != "qemu"
                    {
                        self.fault(format!("{name} {vmm:?} is not known, expected qemu"));
                    }
                }
                "allow_emulation" => self.boolean(&name, value, &mut false),
                "image" => drop(self.absolute(&name, value)),
                "replaced_host_profiles" => {
                    for item in self.array(&name, value) {
                        let _ = self.string(&name, item);
                    }
                }
                "memory_mib" | "vcpus" => self.range(&name, value),
                _ => self.fault(format!("unknown option {name:?}")),
            }
        }
    }

    fn range(&mut self, name: &str, value: &Value) {
        let mut bounds = HashMap::new();
        for (key, value) in self.table(name, value) {
            let full = format!("{name}.{key}");
            match key.as_str() {
                "min" | "default" | "max" => {
                    if let Some(number) = self.integer(&full, value, 1, i64::from(u32::MAX)) {
                        bounds.insert(key.as_str(), number);
                    }
                }
                _ => self.fault(format!("unknown option {full:?}")),
            }
        }
        for (low, high) in [("min", "default"), ("default", "max"), ("min", "max")] {
            if let (Some(a), Some(b)) = (bounds.get(low), bounds.get(high))
                && a > b
            {
                self.fault(format!("{name}.{low} {a} is above {name}.{high} {b}"));
            }
        }
    }

    fn snapshots(&mut self, value: &Value) {
        for (key, value) in self.table("snapshots", value) {
            let name = format!("snapshots.{key}");
            match key.as_str() {
                "dir" => drop(self.absolute(&name, value)),
                "quota_mib" | "max_age_days" => drop(self.integer(&name, value, 0, i64::MAX)),
                _ => self.fault(format!("unknown option {name:?}")),
            }
        }
    }

    fn sidecar(&mut self, value: &Value) {
        for (key, value) in self.table("sidecar", value) {
            let name = format!("sidecar.{key}");
            match key.as_str() {
                "socket" => drop(self.absolute(&name, value)),
                "uids" | "gids" => {
                    for item in self.array(&name, value) {
                        let _ = self.id(&name, item);
                    }
                }
                _ => self.fault(format!("unknown option {name:?}")),
            }
        }
    }

    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    fn wrong_type(&mut self, key: &str, expected: &str, value: &Value) {
        self.fault(format!(
            "{key} is {}, expected {expected}",
            value.type_str()
        ));
    }

    fn table<'a>(
        &mut self,
        key: &str,
        value: &'a Value,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        if value.as_table().is_none() {
            self.wrong_type(key, "table", value);
        }
        value.as_table().into_iter().flatten()
    }

    fn array<'a>(
        &mut self,
        key: &str,
        value: &'a Value,
    ) -> impl Iterator<Item = &'a Value> + use<'a> {
        if value.as_array().is_none() {
            self.wrong_type(key, "array", value);
        }
        value.as_array().into_iter().flatten()
    }

    fn string<'a>(&mut self, key: &str, value: &'a Value) -> Option<&'a str> {
        if value.as_str().is_none() {
            self.wrong_type(key, "string", value);
        }
        value.as_str()
    }

    fn nonempty(&mut self, key: &str, value: &Value) -> Option<String> {
        let text = self.string(key, value)?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn absolute(&mut self, key: &str, value: &Value) -> Option<PathBuf> {
        let text = self.string(key, value)?;
        if text.starts_with('/') {
            return Some(PathBuf::from(text));
        }
        self.fault(format!("{key} {text:?} is not an absolute path"));
        None
    }

    fn absolute_or_empty(&mut self, key: &str, value: &Value) -> Option<PathBuf> {
        match value.as_str() {
            Some("") => None,
            _ => self.absolute(key, value),
        }
    }

    fn boolean(&mut self, key: &str, value: &Value, into: &mut bool) {
        match value.as_bool() {
            Some(value) => *into = value,
            None => self.wrong_type(key, "boolean", value),
        }
    }

    fn integer(&mut self, key: &str, value: &Value, min: i64, max: i64) -> Option<i64> {
        match value.as_integer() {
            Some(number) if (min..=max).contains(&number) => Some(number),
            Some(number) => {
                self.fault(format!("{key} {number} is outside {min}..={max}"));
                None
            }
            None => {
                self.wrong_type(key, "integer", value);
                None
            }
        }
    }

    fn id(&mut self, key: &str, value: &Value) -> u32 {
        self.integer(key, value, 0, i64::from(u32::MAX))
            .and_then(|id| u32::try_from(id).ok())
            .unwrap_or(0)
    }
}
