//! What is mounted into a sandbox.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path of the host.
    Bind(PathBuf),
    /// A volume defined in the client's store.
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMount {
    pub source: VolumeSource,
    /// An absolute path in the sandbox.
    pub target: String,
    pub read_only: bool,
}

impl VolumeMount {
    pub fn bind(source: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        Self {
            source: VolumeSource::Bind(source.into()),
            target: target.into(),
            read_only: false,
        }
    }

    pub fn named(name: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            source: VolumeSource::Named(name.into()),
            target: target.into(),
            read_only: false,
        }
    }

    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpfsMount {
    /// An absolute path in the sandbox.
    pub target: String,
    pub size_bytes: Option<u64>,
    pub read_only: bool,
}

impl TmpfsMount {
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            size_bytes: None,
            read_only: false,
        }
    }

    #[must_use]
    pub fn size_bytes(mut self, size_bytes: u64) -> Self {
        self.size_bytes = Some(size_bytes);
        self
    }

    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// `<target>`, with `:size=N`, `:ro` or `:size=N,ro` after it.
    pub(super) fn entry(&self) -> String {
        let mut options = Vec::new();
        if let Some(size) = self.size_bytes {
            options.push(format!("size={size}"));
        }
        if self.read_only {
            options.push("ro".to_owned());
        }
        if options.is_empty() {
            self.target.clone()
        } else {
            format!("{}:{}", self.target, options.join(","))
        }
    }
}
