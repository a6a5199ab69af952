//! Files of the container, changed once though answers are lost.

use a3sbox_core::{
    ExecutionSessionManager as _, FileOp, FileRequest, FilesystemEntryKind, FilesystemOp,
    FilesystemRequest, FilesystemResponse,
};
use a3sbox_oci::RuntimeOperation;

use super::assert_internal;
use super::launch::end;
use crate::{Launched, World};

/// `adapter payload` in base64.
const PAYLOAD: &str = "YWRhcHRlciBwYXlsb2Fk";

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
) -> FilesystemResponse {
    let answer = world
        .manager
        .filesystem(launched.id(), launched.generation(), request)
        .await
        .unwrap();
    assert!(answer.success, "{answer:?}");
    answer
}

// proves: B19
pub async fn transfers_and_changes_happen_once(world: World) {
    let launched = world.launch().await;
    let (id, generation) = (launched.id(), launched.generation());
    // Whatever is changed loses its first answer: the second call must find it done.
    world.faults.lose_answer(RuntimeOperation::Filesystem);
    let made = filesystem(&world, &launched, on(FilesystemOp::MakeDir, "/out/tree")).await;
    assert_eq!(made.entry.unwrap().kind, FilesystemEntryKind::Directory);

    world.faults.lose_answer(RuntimeOperation::File);
    let upload = FileRequest {
        op: FileOp::Upload,
        guest_path: "/out/tree/payload.txt".to_owned(),
        data: Some(PAYLOAD.to_owned()),
        user: None,
        max_bytes: None,
    };
    let written = world.manager.transfer_file(id, generation, upload).await;
    let written = written.unwrap();
    assert_eq!(
        (written.size, written.data, written.error),
        (15, None, None)
    );
    assert_eq!(world.out("tree/payload.txt"), "adapter payload");

    let download = |max_bytes| FileRequest {
        op: FileOp::Download,
        guest_path: "/out/tree/payload.txt".to_owned(),
        data: None,
        user: None,
        max_bytes,
    };
    let read = world.manager.transfer_file(id, generation, download(None));
    assert_eq!(read.await.unwrap().data.as_deref(), Some(PAYLOAD));
    let small = world
        .manager
        .transfer_file(id, generation, download(Some(9)))
        .await;
    assert_internal(small, "requested download limit");

    let stat = on(FilesystemOp::Stat, "/out/tree/payload.txt");
    let entry = filesystem(&world, &launched, stat).await.entry.unwrap();
    assert_eq!((entry.kind, entry.size), (FilesystemEntryKind::File, 15));
    let list = FilesystemRequest {
        depth: 2,
        ..on(FilesystemOp::ListDir, "/out/tree")
    };
    let entries = filesystem(&world, &launched, list).await.entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].path, "/out/tree/payload.txt");

    world.faults.lose_answer(RuntimeOperation::Filesystem);
    let moved = FilesystemRequest {
        destination: Some("/out/tree/moved.txt".to_owned()),
        ..on(FilesystemOp::Move, "/out/tree/payload.txt")
    };
    let moved = filesystem(&world, &launched, moved).await.entry.unwrap();
    assert_eq!(moved.path, "/out/tree/moved.txt");
    assert_eq!(world.out("tree/moved.txt"), "adapter payload");
    assert_eq!(world.out("tree/payload.txt"), "");

    world.faults.lose_answer(RuntimeOperation::Filesystem);
    filesystem(&world, &launched, on(FilesystemOp::Remove, "/out/tree")).await;
    assert_eq!(world.out("tree/moved.txt"), "");
    // Three changes twice, two looks once.
    assert_eq!(world.faults.calls(RuntimeOperation::Filesystem), 8);
    assert_eq!(world.faults.calls(RuntimeOperation::File), 4);
    end(&world, &launched).await;
}
