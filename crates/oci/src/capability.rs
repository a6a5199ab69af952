//! What a runtime can do, as it says itself.

use std::collections::BTreeMap;
use std::fmt;

use oci_spec::runtime::Features;
use serde::{Deserialize, Serialize};

use crate::attachments::AttachmentCapabilities;
use crate::ids::TrustDomainId;

/// Answer of `features`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeInfo {
    pub oci: Features,
    pub drivers: RuntimeFeatures,
    pub operations: Vec<RuntimeOperation>,
    pub attachments: AttachmentCapabilities,
}

/// Schema of [`RuntimeFeatures`].
pub const RUNTIME_FEATURES_SCHEMA: &str = "a3s.oci.features.v1";

/// The drivers of a runtime on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeFeatures {
    pub schema_version: String,
    pub platform: HostPlatform,
    pub architecture: String,
    pub drivers: Vec<DriverCapability>,
}

/// Operating system of the runtime's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HostPlatform {
    Linux,
    Macos,
    Windows,
    Unsupported,
}

impl HostPlatform {
    /// The platform that this code was built for.
    pub const fn current() -> Self {
        if cfg!(target_os = "linux") {
            Self::Linux
        } else if cfg!(target_os = "macos") {
            Self::Macos
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Unsupported
        }
    }
}

/// One driver and what it may be used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverCapability {
    pub driver: DriverKind,
    pub status: CapabilityStatus,
    pub readiness: DriverReadiness,
    #[serde(default)]
    pub isolation_classes: Vec<IsolationClass>,
    /// Why the driver is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the driver looked at to say so.
    #[serde(default)]
    pub evidence: BTreeMap<String, String>,
}

impl DriverCapability {
    /// The driver may be given containers.
    pub const fn can_launch(&self) -> bool {
        matches!(self.status, CapabilityStatus::Available)
            && matches!(
                self.readiness,
                DriverReadiness::Experimental | DriverReadiness::Supported
            )
    }
}

/// The mechanism that runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DriverKind {
    NativeLinux,
    LibkrunKvm,
    LibkrunHvf,
    LibkrunWhpx,
    /// One QEMU virtual machine per container or pod, accelerated by KVM.
    QemuKvm,
}

/// What stands between a container and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum IsolationClass {
    DedicatedVm,
    SharedGuestKernel,
    SharedHostKernel,
}

/// Whether a driver works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CapabilityStatus {
    Available,
    Unavailable,
    Unsupported,
}

/// How far a driver is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DriverReadiness {
    ProbeOnly,
    Experimental,
    Supported,
}

/// The isolation that a create request demands; a runtime never gives less.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "kebab-case", deny_unknown_fields)]
pub enum IsolationRequest {
    DedicatedVm,
    SharedGuestKernel { trust_domain: TrustDomainId },
    SharedHostKernel,
}

impl IsolationRequest {
    pub const fn class(&self) -> IsolationClass {
        match self {
            Self::DedicatedVm => IsolationClass::DedicatedVm,
            Self::SharedGuestKernel { .. } => IsolationClass::SharedGuestKernel,
            Self::SharedHostKernel => IsolationClass::SharedHostKernel,
        }
    }
}

macro_rules! runtime_operations {
    ($($variant:ident => $label:literal,)*) => {
        /// The verbs of the runtime contract, by the labels that travel.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum RuntimeOperation {
            $(#[serde(rename = $label)] $variant,)*
        }

        impl RuntimeOperation {
            /// Every operation, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)*
                }
            }
        }
    };
}

runtime_operations! {
    Features => "features",
    Create => "create",
    State => "state",
    Start => "start",
    Kill => "kill",
    Delete => "delete",
    Exec => "exec",
    Wait => "wait",
    List => "list",
    Pause => "pause",
    Resume => "resume",
    Update => "update",
    Processes => "processes",
    Stats => "stats",
    Events => "events",
    ReadOutput => "read-output",
    WriteStdin => "write-stdin",
    CloseStdin => "close-stdin",
    Resize => "resize",
    SignalProcess => "signal-process",
    WaitProcess => "wait-process",
    File => "file",
    Filesystem => "filesystem",
    Checkpoint => "checkpoint",
    Restore => "restore",
    Pids => "pids",
    DeleteProcess => "delete-process",
}

impl RuntimeOperation {
    /// The operation with this label.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.label() == label)
    }
}

impl fmt::Display for RuntimeOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
