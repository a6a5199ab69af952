//! What a resource update sends, field by field.

use a3sbox_core::{ExecutionId, ExecutionIsolation, ExecutionManager, ExecutionResourceUpdate};

use super::super::super::build_managed_record;
use super::super::compile_resource_update;
use super::{World, operation, request};
use crate::BoxRecord;

fn record_with_vcpus(vcpus: u32) -> BoxRecord {
    let mut request = request(ExecutionIsolation::Sandbox);
    request.config.resources.vcpus = vcpus;
    build_managed_record(
        std::path::Path::new("/nonexistent"),
        &ExecutionId::new("compiled").unwrap(),
        operation("compiled"),
        request,
        chrono::Utc::now(),
    )
    .unwrap()
}

#[tokio::test]
async fn emits_only_selected_oci_resource_fields() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let update = ExecutionResourceUpdate {
        cpu_shares: Some(1024),
        ..Default::default()
    };
    let operation_id = operation("shares");
    world
        .manager
        .update_resources(launched.id(), launched.generation(), &operation_id, update)
        .await
        .unwrap();
    let updates = world.runtime.recorded().updates;
    let [sent] = updates.as_slice() else {
        panic!("{} updates", updates.len())
    };
    let resources = &sent.resources;
    assert!(resources.memory().is_none());
    assert!(resources.pids().is_none());
    assert!(resources.devices().is_none());
    let cpu = resources.cpu().clone().unwrap();
    assert_eq!(cpu.shares(), Some(1024));
    assert_eq!((cpu.quota(), cpu.period()), (None, None));
    assert!(cpu.cpus().is_none());
}

#[test]
fn couples_derived_cpu_quota_with_period_updates() {
    let record = record_with_vcpus(2);
    let update = ExecutionResourceUpdate {
        cpu_period: Some(200_000),
        ..Default::default()
    };
    let resources = compile_resource_update(&record, &update).unwrap();
    let cpu = resources.cpu().clone().unwrap();
    assert_eq!((cpu.quota(), cpu.period()), (Some(400_000), Some(200_000)));
    assert!(cpu.shares().is_none());
    assert!(resources.memory().is_none());
    assert!(resources.pids().is_none());
    assert!(resources.devices().is_none());
}

#[test]
fn a_quota_travels_with_the_period_in_force() {
    let mut record = record_with_vcpus(1);
    let update = ExecutionResourceUpdate {
        cpu_quota: Some(50_000),
        ..Default::default()
    };
    let period = |record: &BoxRecord| {
        let resources = compile_resource_update(record, &update).unwrap();
        resources.cpu().clone().unwrap().period()
    };
    assert_eq!(period(&record), Some(100_000));
    record.resource_limits.cpu_period = Some(250_000);
    assert_eq!(period(&record), Some(250_000));
}
