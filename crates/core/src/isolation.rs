//! What separates an execution from the node, and what provides it.

use serde::{Deserialize, Serialize};

/// What a request asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionIsolation {
    /// A kernel of its own.
    #[default]
    Microvm,
    /// The node's kernel, confined.
    Sandbox,
}

impl ExecutionIsolation {
    pub fn is_sandbox(self) -> bool {
        self == Self::Sandbox
    }
}

/// The driver that a plan settles on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionBackend {
    /// An OCI engine on the node's kernel.
    Native,
    /// A virtual machine per pod.
    Microvm,
}

/// How strong the separation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationClass {
    DedicatedVm,
    SharedHostKernel,
}
