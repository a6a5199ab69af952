//! Pure mappings, identities and bindings.

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionIsolation};
use a3sbox_oci::oci_spec::runtime::{ContainerState, StateBuilder};
use a3sbox_oci::{
    ContainerId, ContainerRecord, ContainerTarget, DriverKind, ExitStatus, Generation,
    IsolationClass, IsolationRequest,
};
use a3sbox_testkit::{ATTACHMENTS_DIGEST, CONFIG_DIGEST, GENERATION};

use super::super::super::build_managed_record;
use super::super::{
    OciRuntimeBinding, OciRuntimeEndpoint, create_operation_context, exit_code,
    oci_isolation_request, runtime_container_id, runtime_process_identity, start_operation_context,
};
use super::{assert_internal, operation, request};
use crate::BoxStateStore;
use crate::process::pid_start_time;

fn endpoint() -> OciRuntimeEndpoint {
    OciRuntimeEndpoint::unix_socket("/run/a3sbox-test.sock").unwrap()
}

fn container(
    id: &str,
    status: ContainerState,
    driver: DriverKind,
    isolation: IsolationClass,
    pid: i32,
) -> ContainerRecord {
    let state = StateBuilder::default()
        .version("1.3.0")
        .id(id)
        .status(status)
        .pid(pid)
        .bundle("/bundle")
        .build()
        .unwrap();
    ContainerRecord {
        state,
        generation: GENERATION,
        driver,
        isolation,
        config_digest: CONFIG_DIGEST.to_owned(),
        attachments_digest: Some(ATTACHMENTS_DIGEST.to_owned()),
    }
}

#[test]
fn maps_product_isolation_without_selecting_a_driver() {
    assert_eq!(
        oci_isolation_request(ExecutionIsolation::Microvm),
        IsolationRequest::DedicatedVm
    );
    assert_eq!(
        oci_isolation_request(ExecutionIsolation::Sandbox),
        IsolationRequest::SharedHostKernel
    );
}

#[test]
fn runtime_process_identity_exposes_only_shared_host_kernel_pid() {
    let own = std::process::id();
    for (isolation, driver, pid, expected) in [
        (
            IsolationClass::SharedHostKernel,
            DriverKind::NativeLinux,
            i32::try_from(own).unwrap(),
            (Some(own), pid_start_time(own)),
        ),
        (
            IsolationClass::SharedGuestKernel,
            DriverKind::LibkrunKvm,
            4242,
            (None, None),
        ),
        (
            IsolationClass::DedicatedVm,
            DriverKind::LibkrunWhpx,
            4242,
            (None, None),
        ),
    ] {
        let id = ContainerId::new("a3s-box-identity").unwrap();
        let record = container(id.as_str(), ContainerState::Running, driver, isolation, pid);
        let binding = OciRuntimeBinding::from_record(endpoint(), &id, &record).unwrap();
        assert_eq!(
            runtime_process_identity(&binding, &record).unwrap(),
            expected
        );
    }
}

#[test]
fn a_running_container_on_the_host_kernel_has_a_live_process() {
    let id = ContainerId::new("a3s-box-identity").unwrap();
    let (native, host) = (DriverKind::NativeLinux, IsolationClass::SharedHostKernel);
    let with_pid = |pid| container(id.as_str(), ContainerState::Running, native, host, pid);
    let binding = OciRuntimeBinding::from_record(endpoint(), &id, &with_pid(1)).unwrap();
    assert_internal(runtime_process_identity(&binding, &with_pid(0)), "no pid");
    let stopped = container(id.as_str(), ContainerState::Stopped, native, host, 1);
    assert_internal(runtime_process_identity(&binding, &stopped), "stopped");
    super::assert_unavailable(
        runtime_process_identity(&binding, &with_pid(i32::MAX)),
        "is not alive",
    );
}

#[test]
fn lifecycle_operation_ids_are_stable_and_fenced_by_runtime_target() {
    let seed = "box-operation";
    let seven = ExecutionGeneration::new(7).unwrap();
    let eight = ExecutionGeneration::new(8).unwrap();
    let class = IsolationClass::DedicatedVm;
    let id = |name| ContainerId::new(name).unwrap();
    let target = |name| ContainerTarget::exact(id(name), Generation(41));
    let create = create_operation_context(seed, seven, &id("one"), class).unwrap();
    assert_eq!(
        create,
        create_operation_context(seed, seven, &id("one"), class).unwrap()
    );
    assert_eq!(create.deadline_unix_ms, None);
    assert!(create.operation_id.as_str().starts_with("a3s-box-create-"));
    assert_eq!(
        create.operation_id.as_str().len(),
        "a3s-box-create-".len() + 64
    );
    let start = start_operation_context(seed, seven, &target("one"), class).unwrap();
    let others = [
        create_operation_context(seed, seven, &id("two"), class).unwrap(),
        create_operation_context(seed, eight, &id("one"), class).unwrap(),
        start_operation_context(seed, seven, &target("two"), class).unwrap(),
        start.clone(),
        create,
    ];
    for (index, one) in others.iter().enumerate() {
        for other in &others[index + 1..] {
            assert_ne!(one.operation_id, other.operation_id);
        }
    }
}

#[test]
fn terminal_status_conversion_is_exact_and_rejects_overflow() {
    assert_eq!(exit_code(&ExitStatus::exited(23).unwrap()).unwrap(), 23);
    assert_eq!(
        exit_code(&ExitStatus::signaled(15, false).unwrap()).unwrap(),
        143
    );
    assert_internal(
        exit_code(&ExitStatus::signaled(i32::MAX, false).unwrap()),
        "cannot be represented",
    );
}

#[test]
fn binding_validation_rejects_schema_identity_generation_and_evidence_drift() {
    let execution = ExecutionId::new("product-execution").unwrap();
    let id = runtime_container_id(&execution).unwrap();
    let (vm, whpx) = (IsolationClass::DedicatedVm, DriverKind::LibkrunWhpx);
    let record = container(id.as_str(), ContainerState::Running, whpx, vm, 4242);
    let binding = OciRuntimeBinding::from_record(endpoint(), &id, &record).unwrap();
    let text = serde_json::to_string(&binding).unwrap();
    let binding: OciRuntimeBinding = serde_json::from_str(&text).unwrap();
    binding.validate_for(&execution).unwrap();
    binding.validate_record(&record).unwrap();

    let changes: [fn(&mut OciRuntimeBinding); 5] = [
        |binding| binding.schema_version = "a3s.box.oci-runtime-binding.v1".to_owned(),
        |binding| binding.target.generation = None,
        |binding| binding.target.generation = Some(Generation(0)),
        |binding| binding.config_digest = "sha256:ABC".to_owned(),
        |binding| binding.attachments_digest = "sha256:ABC".to_owned(),
    ];
    for change in changes {
        let mut changed = binding.clone();
        change(&mut changed);
        assert!(changed.validate().is_err(), "{changed:?}");
    }
    let mut other = binding.clone();
    other.target.id = ContainerId::new("a3s-box-other").unwrap();
    assert_internal(other.validate_for(&execution), "does not belong");

    let mut unproved = record.clone();
    unproved.attachments_digest = None;
    assert!(OciRuntimeBinding::from_record(endpoint(), &id, &unproved).is_err());
    let mut kvm = record.clone();
    kvm.driver = DriverKind::LibkrunKvm;
    assert!(binding.validate_record(&kvm).is_err());
    let mut attached = record;
    attached.attachments_digest = Some(CONFIG_DIGEST.to_owned());
    assert!(binding.validate_record(&attached).is_err());
}

#[test]
fn durable_state_rejects_a_runtime_binding_owned_by_another_product_execution() {
    let folder = tempfile::tempdir().unwrap();
    let execution = ExecutionId::new("durable-product").unwrap();
    let mut record = build_managed_record(
        folder.path(),
        &execution,
        operation("durable"),
        request(ExecutionIsolation::Sandbox),
        chrono::Utc::now(),
    )
    .unwrap();
    let id = ContainerId::new("a3s-box-other-product").unwrap();
    let (native, host) = (DriverKind::NativeLinux, IsolationClass::SharedHostKernel);
    let container = container(id.as_str(), ContainerState::Running, native, host, 1);
    let binding = OciRuntimeBinding::from_record(endpoint(), &id, &container).unwrap();
    record.managed_execution.as_mut().unwrap().oci_runtime = Some(binding);
    let store = BoxStateStore::from_records(folder.path().join("boxes.json"), vec![record]);
    let error = store.save().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("does not belong"), "{error}");
}
