//! The one TOML schema of this runtime: what a handler gives, what a pod may ask for, and the switches
//! of the OCI engine, as `design.md` §6 fixes it.
//!
//! The base file holds for the node; the options of the handler's stanza lie over it, key by key. Parsing
//! goes over the whole document and reports every fault, each with its key.

mod reader;

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use self::reader::Reader;
use crate::options::{RuncOptions, RuntimeOptions};

/// Base configuration of a node. [`CONFIG_ENV`] names another file.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/a3sbox/config.toml";
/// Environment variable with the path of the base configuration.
pub(crate) const CONFIG_ENV: &str = "A3SBOX_CONFIG";
/// Annotation by which a pod asks for an isolation class.
pub(crate) const ISOLATION_ANNOTATION: &str = "a3s.box/isolation";
/// Where records live when nothing else is said.
pub(crate) const DEFAULT_STATE_ROOT: &str = "/run/a3sbox";
/// Largest configuration file that is read.
const CONFIG_MAX_BYTES: u64 = 1 << 20;

/// How strongly a container is kept apart from the node; a later one is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isolation {
    /// The node's own kernel.
    Native,
    /// A virtual machine per pod.
    MicroVm,
}

impl Isolation {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "native" => Some(Self::Native),
            "microvm" => Some(Self::MicroVm),
            _ => None,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::MicroVm => "microvm",
        }
    }
}

/// A configuration that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) isolation: Isolation,
    pub(crate) allow_weaker: bool,
    pub(crate) state_root: PathBuf,
    pub(crate) runc: RuncOptions,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            isolation: Isolation::Native,
            allow_weaker: false,
            state_root: PathBuf::from(DEFAULT_STATE_ROOT),
            runc: RuncOptions::default(),
        }
    }
}

/// Why a configuration or a wish was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("cannot read configuration {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("configuration {path} is larger than {CONFIG_MAX_BYTES} bytes")]
    TooLarge { path: PathBuf },
    #[error("malformed TOML in {place}")]
    Toml {
        place: String,
        source: Box<toml::de::Error>,
    },
    #[error("invalid runtime options: {}", .0.join("; "))]
    Faults(Vec<String>),
    #[error(
        "annotation {ISOLATION_ANNOTATION}: unknown isolation {0:?}, expected native or microvm"
    )]
    UnknownIsolation(String),
    #[error(
        "annotation {ISOLATION_ANNOTATION} asks for {asked}, which is weaker than {given} of this runtime class, \
         and allow_weaker is not set"
    )]
    Weaker {
        asked: &'static str,
        given: &'static str,
    },
    #[error("isolation microvm is not available in this build")]
    MicroVmUnavailable,
}

/// Path of the base configuration of this process.
pub(crate) fn base_path() -> PathBuf {
    std::env::var_os(CONFIG_ENV).map_or_else(|| PathBuf::from(DEFAULT_CONFIG), PathBuf::from)
}

impl Policy {
    /// The base file with the options of one call over it. A base file that is absent is an empty one.
    pub(crate) fn load(base: &Path, options: &RuntimeOptions) -> Result<Self, PolicyError> {
        let mut table = match read_table(base) {
            Err(PolicyError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Table::new()
            }
            read => read?,
        };
        match options {
            RuntimeOptions::None => {}
            RuntimeOptions::File(path) => lay_over(&mut table, read_table(path)?),
            RuntimeOptions::Body(body) => lay_over(&mut table, parse_table("ConfigBody", body)?),
            RuntimeOptions::Runc(runc) => {
                let mut policy = Self::from_table(&table)?;
                policy.runc.overlay(runc);
                return Ok(policy);
            }
        }
        Self::from_table(&table)
    }

    /// What the container gets: the handler's isolation, or what its annotation may ask for.
    pub(crate) fn isolation_for(
        &self,
        annotations: &HashMap<String, String>,
    ) -> Result<Isolation, PolicyError> {
        let isolation = match annotations.get(ISOLATION_ANNOTATION) {
            None => self.isolation,
            Some(word) => {
                let asked = Isolation::parse(word)
                    .ok_or_else(|| PolicyError::UnknownIsolation(word.clone()))?;
                if asked < self.isolation && !self.allow_weaker {
                    return Err(PolicyError::Weaker {
                        asked: asked.word(),
                        given: self.isolation.word(),
                    });
                }
                asked
            }
        };
        match isolation {
            Isolation::Native => Ok(isolation),
            // There is no fallback: what cannot be had is an error, never the weaker class.
            Isolation::MicroVm => Err(PolicyError::MicroVmUnavailable),
        }
    }

    fn from_table(table: &Table) -> Result<Self, PolicyError> {
        let mut reader = Reader::default();
        let policy = reader.policy(table);
        if reader.faults.is_empty() {
            Ok(policy)
        } else {
            Err(PolicyError::Faults(reader.faults))
        }
    }
}

impl RuncOptions {
    /// Options sent as a message have no "not said": each value that is not the default one counts.
    fn overlay(&mut self, over: &Self) {
        fn over_option<T: Clone>(base: &mut Option<T>, over: &Option<T>) {
            if over.is_some() {
                base.clone_from(over);
            }
        }
        self.no_pivot_root |= over.no_pivot_root;
        self.no_new_keyring |= over.no_new_keyring;
        self.systemd_cgroup |= over.systemd_cgroup;
        if over.io_uid != 0 {
            self.io_uid = over.io_uid;
        }
        if over.io_gid != 0 {
            self.io_gid = over.io_gid;
        }
        over_option(&mut self.shim_cgroup, &over.shim_cgroup);
        over_option(&mut self.binary_name, &over.binary_name);
        over_option(&mut self.root, &over.root);
        over_option(&mut self.criu_path, &over.criu_path);
        over_option(&mut self.criu_image_path, &over.criu_image_path);
        over_option(&mut self.criu_work_path, &over.criu_work_path);
    }
}

fn read_table(path: &Path) -> Result<Table, PolicyError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(CONFIG_MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|source| PolicyError::Read {
            path: path.to_owned(),
            source,
        })?;
    if text.len() as u64 > CONFIG_MAX_BYTES {
        return Err(PolicyError::TooLarge {
            path: path.to_owned(),
        });
    }
    parse_table(&path.display().to_string(), &text)
}

fn parse_table(place: &str, text: &str) -> Result<Table, PolicyError> {
    text.parse().map_err(|source| PolicyError::Toml {
        place: place.to_owned(),
        source: Box::new(source),
    })
}

/// Tables merge key by key, everything else replaces.
fn lay_over(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
