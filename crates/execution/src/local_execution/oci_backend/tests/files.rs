//! File transfer and filesystem operations.

use a3sbox_core::exec::{
    FileOp, FileRequest, FilesystemEntryKind, FilesystemOp, FilesystemRequest, FilesystemResponse,
};
use a3sbox_core::{
    ExecutionIsolation, ExecutionManagerResult, ExecutionSessionManager, MAX_BOUNDED_FILE_BYTES,
};
use a3sbox_oci::RuntimeOperation;
use a3sbox_testkit::RuntimeReport;
use base64::engine::general_purpose::STANDARD;

use super::super::*;
use super::{
    Launched, World, assert_conflict, assert_internal, assert_invalid, assert_unavailable, next,
};

const FOLDER: &str = "/srv/data";

fn download(path: &str, max_bytes: Option<u64>) -> FileRequest {
    FileRequest {
        op: FileOp::Download,
        guest_path: path.to_owned(),
        data: None,
        user: None,
        max_bytes,
    }
}

fn upload(path: &str, max_bytes: Option<u64>) -> FileRequest {
    FileRequest {
        op: FileOp::Upload,
        guest_path: path.to_owned(),
        data: Some(STANDARD.encode("adapter payload")),
        user: Some("1000:1001".to_owned()),
        max_bytes,
    }
}

fn on(op: FilesystemOp, path: &str) -> FilesystemRequest {
    FilesystemRequest {
        op,
        path: path.to_owned(),
        destination: None,
        depth: 0,
        user: None,
    }
}

async fn filesystem(
    world: &World,
    launched: &Launched,
    request: FilesystemRequest,
) -> ExecutionManagerResult<FilesystemResponse> {
    world
        .manager
        .filesystem(launched.id(), launched.generation(), request)
        .await
}

#[tokio::test]
async fn file_and_filesystem_sessions_preserve_exact_targets_and_replay_mutations_once() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let (id, generation) = (launched.id(), launched.generation());
    let result = format!("{FOLDER}/result.txt");
    let tree = format!("{FOLDER}/tree");

    world.runtime.lose_answer(RuntimeOperation::File);
    let put = world
        .manager
        .transfer_file(id, generation, upload("~/payload.txt", None))
        .await
        .unwrap();
    assert!(put.success && put.error.is_none() && put.data.is_none());
    assert_eq!(put.size, 15);
    let got = world
        .manager
        .transfer_file(id, generation, download(&result, None))
        .await
        .unwrap();
    assert!(got.success);
    assert_eq!(got.size, 10);
    assert_eq!(STANDARD.decode(got.data.unwrap()).unwrap(), b"fake file\n");
    let bounded = world
        .manager
        .transfer_file(id, generation, download(&result, Some(9)))
        .await;
    assert_internal(bounded, "requested download limit");

    world.runtime.lose_answer(RuntimeOperation::Filesystem);
    let make = FilesystemRequest {
        user: Some("1000".to_owned()),
        ..on(FilesystemOp::MakeDir, &tree)
    };
    let made = filesystem(&world, &launched, make).await.unwrap();
    assert_eq!(made.entry.unwrap().kind, FilesystemEntryKind::Directory);
    let stat = on(FilesystemOp::Stat, &format!("{tree}/payload.txt"));
    let entry = filesystem(&world, &launched, stat)
        .await
        .unwrap()
        .entry
        .unwrap();
    assert_eq!(entry.kind, FilesystemEntryKind::File);
    assert_eq!(entry.permissions, "-rw-r--r--");
    assert_eq!(entry.metadata["fake"], "true");
    let list = FilesystemRequest {
        depth: 2,
        ..on(FilesystemOp::ListDir, &tree)
    };
    let listed = filesystem(&world, &launched, list).await.unwrap();
    assert!(listed.entry.is_none());
    assert_eq!(listed.entries.len(), 1);
    assert_eq!(listed.entries[0].path, format!("{tree}/fixture.txt"));
    let moved = FilesystemRequest {
        destination: Some(format!("{tree}/moved.txt")),
        ..on(FilesystemOp::Move, &format!("{tree}/payload.txt"))
    };
    let moved = filesystem(&world, &launched, moved).await.unwrap();
    assert_eq!(moved.entry.unwrap().path, format!("{tree}/moved.txt"));
    let removed = filesystem(&world, &launched, on(FilesystemOp::Remove, &tree))
        .await
        .unwrap();
    assert!(removed.entry.is_none() && removed.entries.is_empty());

    let recorded = world.runtime.recorded();
    let files = &recorded.files;
    assert_eq!(files.len(), 4);
    assert_eq!(files[0], files[1]);
    assert_eq!(files[0].op, a3sbox_oci::FileOp::Upload);
    assert_eq!(files[0].path, "~/payload.txt");
    assert_eq!(files[0].data, upload("", None).data);
    assert!(files[0].context.is_some());
    assert_eq!(files[2].op, a3sbox_oci::FileOp::Download);
    assert!(files[2].context.is_none() && files[2].data.is_none());
    assert_eq!(files[2], files[3]);
    assert_eq!(world.runtime.file_effects(), files[..1]);

    let requests = &recorded.filesystems;
    let shape: Vec<_> = requests
        .iter()
        .map(|request| (request.op, request.depth, request.context.is_some()))
        .collect();
    assert_eq!(requests[0], requests[1]);
    assert_eq!(
        shape,
        [
            (a3sbox_oci::FilesystemOp::MakeDir, 0, true),
            (a3sbox_oci::FilesystemOp::MakeDir, 0, true),
            (a3sbox_oci::FilesystemOp::Stat, 0, false),
            (a3sbox_oci::FilesystemOp::ListDir, 2, false),
            (a3sbox_oci::FilesystemOp::Move, 0, true),
            (a3sbox_oci::FilesystemOp::Remove, 0, true),
        ]
    );
    assert_eq!(world.runtime.filesystem_effects().len(), 3);
    let targets = files.iter().map(|request| &request.target);
    let mut targets = targets.chain(requests.iter().map(|request| &request.target));
    assert!(targets.all(|target| *target == files[0].target));
}

#[tokio::test]
async fn file_sessions_reject_invalid_download_limits_before_dispatch() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    for request in [
        upload("/file", Some(5)),
        download("/file", Some(0)),
        download("/file", Some(MAX_BOUNDED_FILE_BYTES + 1)),
    ] {
        let answer = world
            .manager
            .transfer_file(launched.id(), launched.generation(), request)
            .await;
        assert_invalid(answer, "limit");
    }
    assert!(world.runtime.recorded().files.is_empty());
}

#[tokio::test]
async fn file_and_filesystem_capabilities_and_box_generation_fail_before_dispatch() {
    let world = World::with_report(RuntimeReport::default().without(RuntimeOperation::File));
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let stale = next(launched.generation());
    let request = download("/file", None);
    assert_conflict(
        world
            .manager
            .transfer_file(launched.id(), stale, request.clone())
            .await,
    );
    let answer = world
        .manager
        .transfer_file(launched.id(), launched.generation(), request)
        .await;
    assert_unavailable(answer, "does not advertise file");
    assert!(world.runtime.recorded().files.is_empty());

    let world = World::with_report(RuntimeReport::default().without(RuntimeOperation::Filesystem));
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    let stale = next(launched.generation());
    let request = on(FilesystemOp::Stat, "/file");
    assert_conflict(
        world
            .manager
            .filesystem(launched.id(), stale, request.clone())
            .await,
    );
    assert_unavailable(
        filesystem(&world, &launched, request).await,
        "does not advertise filesystem",
    );
    assert!(world.runtime.recorded().filesystems.is_empty());
}

#[tokio::test]
async fn file_and_filesystem_sessions_reject_runtime_target_drift() {
    let world = World::new();
    let launched = world.launch(ExecutionIsolation::Sandbox).await;
    world.runtime.drift();
    let request = download("/file", None);
    assert_internal(
        world
            .manager
            .transfer_file(launched.id(), launched.generation(), request)
            .await,
        "invalid file target",
    );
    assert_internal(
        filesystem(&world, &launched, on(FilesystemOp::Stat, "/file")).await,
        "invalid filesystem target",
    );
}
