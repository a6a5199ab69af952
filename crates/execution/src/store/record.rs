//! The record of one execution: what is kept, and the rules that every kept record obeys.

use std::collections::HashMap;
use std::path::PathBuf;

use a3sbox_core::{
    BoxError, CreateExecutionRequest, ExecutionGeneration, ExecutionHealthCheck, ExecutionId,
    ExecutionIsolation, ExecutionManagerError, ExecutionManagerResult, LogConfig, NetworkMode,
    OperationId, ResolvedExecutionPlan, ResourceLimits, resolve_execution,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::name::hex_digest;
use super::operation::{
    ManagedExecutionOperation, ManagedResourceUpdateCompletion, ManagedRestartCompletion,
};
use super::state::ManagedExecutionState;
use crate::OciRuntimeBinding;
use crate::task::TaskRecord;

const DIGEST_PREFIX: &str = "sha256:";
const DIGEST_DIGITS: usize = 64;

/// Everything that is known of one execution.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoxRecord {
    pub id: String,
    pub short_id: String,
    pub name: String,
    pub image: String,
    #[serde(default)]
    pub isolation: ExecutionIsolation,
    /// [`ManagedExecutionState::as_status`] of the current state.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_start_time: Option<u64>,
    pub cpus: u32,
    pub memory_mb: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtiofs_cache: Option<String>,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub env: HashMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    pub box_dir: PathBuf,
    pub exec_socket_path: PathBuf,
    pub console_log: PathBuf,
    pub created_at: DateTime<Utc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    #[serde(default)]
    pub auto_remove: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    pub restart_policy: String,
    #[serde(default)]
    pub max_restart_count: u32,
    #[serde(default)]
    pub restart_count: u32,
    #[serde(default)]
    pub stopped_by_user: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port_map: Vec<String>,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub labels: HashMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<ExecutionHealthCheck>,
    #[serde(default)]
    pub healthcheck_disabled: bool,
    pub health_status: String,
    #[serde(default)]
    pub health_retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_last_check: Option<DateTime<Utc>>,
    pub network_mode: NetworkMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tmpfs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anonymous_volumes: Vec<String>,
    #[serde(default)]
    pub resource_limits: ResourceLimits,
    #[serde(default)]
    pub log_config: LogConfig,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_host: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    #[serde(default)]
    pub init: bool,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    #[serde(default)]
    pub privileged: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_timeout: Option<u64>,
    #[serde(default)]
    pub oom_kill_disable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_execution: Option<ManagedExecutionMetadata>,
}

/// Which backend an execution belongs to, decided once at creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagedRuntimeRoute {
    /// A record from before routes, or of a backend without them.
    #[default]
    Unspecified,
    BoxVm,
    OciSdk,
}

impl ManagedRuntimeRoute {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde's skip_serializing_if hands a reference"
    )]
    fn is_unspecified(&self) -> bool {
        matches!(self, Self::Unspecified)
    }
}

/// What the manager itself keeps: identity, fence, claim and completions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ManagedExecutionMetadata {
    #[serde(default, skip_serializing_if = "ManagedRuntimeRoute::is_unspecified")]
    pub runtime_route: ManagedRuntimeRoute,
    /// The create's operation id.
    pub operation_id: OperationId,
    /// Digest of the request as it was created with; live updates change the request, not this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_intent_digest: Option<String>,
    pub generation: ExecutionGeneration,
    pub request: CreateExecutionRequest,
    pub plan: ResolvedExecutionPlan,
    /// The live binding; cleared when the execution ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_runtime: Option<OciRuntimeBinding>,
    /// The claim of a transitional state; a stable state has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_operation: Option<ManagedExecutionOperation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<ManagedRestartCompletion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_resource_update: Option<ManagedResourceUpdateCompletion>,
    /// Those before the last, oldest first: their ids mean what they meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_resource_updates: Vec<ManagedResourceUpdateCompletion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    #[serde(default = "yes")]
    pub paused_with_memory: bool,
    /// The boot of the host in which the runtime was asked for. A record of an older build has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Set for executions that containerd drives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRecord>,
}

const fn yes() -> bool {
    true
}

impl ManagedExecutionMetadata {
    /// The metadata of a fresh execution. Refuses a blank external id and a configuration that no
    /// backend could honour.
    pub fn new(
        operation_id: OperationId,
        generation: ExecutionGeneration,
        request: CreateExecutionRequest,
    ) -> a3sbox_core::Result<Self> {
        refuse_blank_external_id(&request)?;
        let plan = resolve_execution(&request.config)?;
        let digest = creation_intent_digest(&request)?;
        Ok(Self {
            runtime_route: ManagedRuntimeRoute::Unspecified,
            operation_id,
            creation_intent_digest: Some(digest),
            generation,
            request,
            plan,
            oci_runtime: None,
            pending_operation: None,
            last_restart: None,
            last_resource_update: None,
            earlier_resource_updates: Vec::new(),
            finished_at: None,
            paused_with_memory: true,
            boot_id: None,
            task: None,
        })
    }

    /// Consistency of what is stored.
    pub fn validate(&self) -> a3sbox_core::Result<()> {
        refuse_blank_external_id(&self.request)?;
        if self.plan != resolve_execution(&self.request.config)? {
            return Err(BoxError::StateError(
                "the stored plan is not the plan of the stored request".to_owned(),
            ));
        }
        if let Some(digest) = &self.creation_intent_digest
            && !is_sha256_digest(digest)
        {
            return Err(BoxError::StateError(format!(
                "the creation intent digest {digest:?} is malformed"
            )));
        }
        if self.runtime_route == ManagedRuntimeRoute::BoxVm && self.oci_runtime.is_some() {
            return Err(BoxError::StateError(
                "an execution routed to the VM backend has an OCI runtime binding".to_owned(),
            ));
        }
        Ok(())
    }

    /// The completed update of that id, as far back as they are kept.
    pub(crate) fn completed_update(
        &self,
        operation_id: &OperationId,
    ) -> Option<&ManagedResourceUpdateCompletion> {
        self.last_resource_update
            .iter()
            .chain(&self.earlier_resource_updates)
            .find(|done| done.operation_id == *operation_id)
    }

    /// Whether a create with this request is the one that made this record.
    pub(crate) fn has_same_intent(&self, other: &Self) -> bool {
        match (&self.creation_intent_digest, &other.creation_intent_digest) {
            (Some(mine), Some(theirs)) => mine == theirs,
            // A record from before digests: its request may have been changed by live updates.
            (None, _) | (_, None) => false,
        }
    }
}

impl BoxRecord {
    /// The id, checked.
    pub fn execution_id(&self) -> ExecutionManagerResult<ExecutionId> {
        ExecutionId::new(self.id.clone())
    }

    /// The state that `status` names.
    pub fn state(&self) -> ExecutionManagerResult<ManagedExecutionState> {
        ManagedExecutionState::from_status(&self.status).map_err(|error| {
            ExecutionManagerError::Internal(format!("execution {}: {error}", self.id))
        })
    }

    pub fn metadata(&self) -> ExecutionManagerResult<&ManagedExecutionMetadata> {
        self.managed_execution
            .as_ref()
            .ok_or_else(|| unmanaged(&self.id))
    }

    pub fn metadata_mut(&mut self) -> ExecutionManagerResult<&mut ManagedExecutionMetadata> {
        self.managed_execution
            .as_mut()
            .ok_or_else(|| unmanaged(&self.id))
    }

    /// The current generation.
    pub fn generation(&self) -> ExecutionManagerResult<ExecutionGeneration> {
        Ok(self.metadata()?.generation)
    }

    /// Every rule of a stored record; the text says which one is broken.
    pub(crate) fn check(&self) -> Result<(), String> {
        let id = ExecutionId::new(self.id.clone()).map_err(|e| e.to_string())?;
        let Some(metadata) = &self.managed_execution else {
            return Ok(());
        };
        metadata.validate().map_err(|e| e.to_string())?;
        if let Some(binding) = &metadata.oci_runtime {
            binding.validate_for(&id).map_err(|e| e.to_string())?;
        }
        let state = ManagedExecutionState::from_status(&self.status).map_err(|e| e.to_string())?;
        match &metadata.pending_operation {
            Some(operation) if !operation.belongs_to(state) => Err(format!(
                "a {} operation is pending in state {state}",
                operation.kind()
            )),
            None if state.is_transitional() => {
                Err(format!("state {state} has no pending operation"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn unmanaged(id: &str) -> ExecutionManagerError {
    ExecutionManagerError::Internal(format!("execution {id} has no managed metadata"))
}

fn refuse_blank_external_id(request: &CreateExecutionRequest) -> a3sbox_core::Result<()> {
    if request.external_sandbox_id.trim().is_empty() {
        return Err(BoxError::ConfigError(
            "the external sandbox id must not be blank".to_owned(),
        ));
    }
    Ok(())
}

/// `sha256:` and the digest of the request's JSON with sorted keys: maps have no order of their own.
fn creation_intent_digest(request: &CreateExecutionRequest) -> a3sbox_core::Result<String> {
    let mut value = serde_json::to_value(request)?;
    sort_keys(&mut value);
    let text = serde_json::to_vec(&value)?;
    Ok(format!("{DIGEST_PREFIX}{}", hex_digest(&text)))
}

fn sort_keys(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = std::mem::take(map).into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            for (_, inner) in &mut entries {
                sort_keys(inner);
            }
            map.extend(entries);
        }
        Value::Array(items) => items.iter_mut().for_each(sort_keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_sha256_digest(digest: &str) -> bool {
    digest.strip_prefix(DIGEST_PREFIX).is_some_and(|hex| {
        hex.len() == DIGEST_DIGITS
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}
