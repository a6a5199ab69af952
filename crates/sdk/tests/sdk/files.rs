//! Section 10: files.

use a3sbox_core::*;
use a3sbox_sdk::{ArtifactExportOptions, ClientError, FilesystemOptions, MAX_ARTIFACT_BYTES};

use crate::fake::{Call, entry, guest, refused, world};

fn file_response(data: Option<&str>, size: u64) -> FileResponse {
    FileResponse {
        success: true,
        data: data.map(str::to_owned),
        size,
        error: None,
    }
}

fn filesystem_response(entry: Option<FilesystemEntry>) -> FilesystemResponse {
    FilesystemResponse {
        success: true,
        entry,
        entries: vec![],
        error: None,
    }
}

#[tokio::test]
async fn bytes_go_in_and_come_out_as_base64() {
    let world = world();
    let files = world.sandbox().await.files;
    let info = files.write("/f", b"hi\xff").await.unwrap();
    assert_eq!((info.path.as_str(), info.size), ("/f", 3));
    let as_user = FilesystemOptions::default().user("1000");
    assert_eq!(
        files.read_with_options("/f", as_user).await.unwrap(),
        b"hi\xff"
    );
    let request = |op, data: Option<&str>, user: Option<&str>| FileRequest {
        op,
        guest_path: "/f".into(),
        data: data.map(str::to_owned),
        user: user.map(str::to_owned),
        max_bytes: None,
    };
    assert_eq!(
        world.fake.take(),
        [
            Call::Transfer(1, request(FileOp::Upload, Some("aGn/"), None)),
            Call::Transfer(1, request(FileOp::Download, None, Some("1000"))),
        ]
    );
}

#[tokio::test]
async fn nonsense_from_the_workloads_side_is_guest() {
    let world = world();
    let files = world.sandbox().await.files;
    guest(files.read("/missing").await);
    files.write("/bin", b"\xff").await.unwrap();
    assert!(guest(files.read_text("/bin").await).contains("UTF-8"));
    for response in [
        file_response(Some("aGk="), 3),
        file_response(Some("not base64"), 2),
        file_response(None, 2),
    ] {
        world.fake.answer_file(response);
        guest(files.read("/f").await);
    }
    world.fake.answer_file(FileResponse {
        success: false,
        ..file_response(None, 0)
    });
    guest(files.write("/f", "x").await);
    world.fake.answer_filesystem(filesystem_response(None));
    guest(files.stat("/f").await);
}

#[tokio::test]
async fn the_workloads_own_text_is_kept() {
    let world = world();
    let files = world.sandbox().await.files;
    world.fake.answer_file(FileResponse {
        success: false,
        data: None,
        size: 0,
        error: Some("Permission denied: /f".into()),
    });
    assert_eq!(guest(files.write("/f", "x").await), "Permission denied: /f");
}

#[tokio::test]
async fn exists_tells_missing_from_broken() {
    let world = world();
    let files = world.sandbox().await.files;
    world.fake.put_file("/f", b"x");
    assert!(files.exists("/f").await.unwrap());
    assert!(!files.exists("/nope").await.unwrap());
    let request = FilesystemRequest {
        op: FilesystemOp::Stat,
        path: "/f".into(),
        destination: None,
        depth: 0,
        user: None,
    };
    assert_eq!(world.fake.take()[0], Call::Filesystem(1, request));
    world.fake.answer_filesystem(FilesystemResponse {
        success: false,
        error: Some("permission denied".into()),
        ..filesystem_response(None)
    });
    guest(files.exists("/f").await);
    world
        .fake
        .fail(|_| ExecutionManagerError::Unavailable("x".into()));
    assert!(matches!(
        files.exists("/f").await,
        Err(ClientError::Execution(_))
    ));
}

#[tokio::test]
async fn the_other_verbs_send_what_they_say() {
    let world = world();
    let files = world.sandbox().await.files;
    let user = || FilesystemOptions::default().user("u");
    files.list("/d", 3).await.unwrap();
    files.make_dir_with_options("/d", user()).await.unwrap();
    files.move_path("/a", "/b").await.unwrap();
    files.remove("/a").await.unwrap();
    files.make_dir("/d").await.unwrap();
    files.list_with_options("/d", 0, user()).await.unwrap();
    files
        .move_path_with_options("/a", "/b", user())
        .await
        .unwrap();
    files.remove_with_options("/a", user()).await.unwrap();
    let expected = [
        (FilesystemOp::ListDir, "/d", None, 3, None),
        (FilesystemOp::MakeDir, "/d", None, 0, Some("u")),
        (FilesystemOp::Move, "/a", Some("/b"), 0, None),
        (FilesystemOp::Remove, "/a", None, 0, None),
        (FilesystemOp::MakeDir, "/d", None, 0, None),
        (FilesystemOp::ListDir, "/d", None, 0, Some("u")),
        (FilesystemOp::Move, "/a", Some("/b"), 0, Some("u")),
        (FilesystemOp::Remove, "/a", None, 0, Some("u")),
    ];
    let expected = expected.map(|(op, path, destination, depth, user)| {
        Call::Filesystem(
            1,
            FilesystemRequest {
                op,
                path: path.into(),
                destination: destination.map(str::to_owned),
                depth,
                user: user.map(str::to_owned),
            },
        )
    });
    assert_eq!(world.fake.calls(), expected);
}

#[tokio::test]
async fn bounded_reads_are_bounded_on_both_sides() {
    let world = world();
    let files = world.sandbox().await.files;
    world.fake.put_file("/f", b"12345");
    let read = |max| files.read_bounded_with_options("/f", max, FilesystemOptions::default());
    for max in [0, MAX_ARTIFACT_BYTES + 1] {
        refused(read(max).await);
    }
    assert_eq!(world.fake.calls(), []);
    assert_eq!(read(5).await.unwrap(), b"12345");
    let calls = world.fake.take();
    assert!(matches!(
        &calls[..],
        [Call::Transfer(1, request)] if request.max_bytes == Some(5)
    ));
    guest(read(4).await);
}

#[tokio::test]
async fn an_export_has_size_and_digest_and_a_new_file() {
    let world = world();
    let files = world.sandbox().await.files;
    world.fake.put_file("/out", b"abc");
    let destination = world.home.path().join("out");
    let options = ArtifactExportOptions {
        destination: Some(destination.clone()),
        ..ArtifactExportOptions::default()
    };
    let artifact = files
        .export_with_options("/out", options.clone())
        .await
        .unwrap();
    assert_eq!((artifact.size, artifact.data.as_slice()), (3, &b"abc"[..]));
    assert_eq!(
        artifact.sha256,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(artifact.host_path.as_ref(), Some(&destination));
    assert_eq!(std::fs::read(&destination).unwrap(), b"abc");

    std::fs::write(&destination, "mine").unwrap();
    let again = files.export_with_options("/out", options).await;
    assert!(matches!(again, Err(ClientError::State(_))));
    assert_eq!(std::fs::read(&destination).unwrap(), b"mine");
    assert_eq!(files.export("/out").await.unwrap().host_path, None);
}

#[tokio::test]
async fn only_files_within_the_bound_are_exported() {
    let world = world();
    let files = world.sandbox().await.files;
    world.fake.put_file("/out", b"abc");
    let at_most = |max_bytes| ArtifactExportOptions {
        max_bytes,
        ..ArtifactExportOptions::default()
    };
    refused(files.export_with_options("/out", at_most(0)).await);
    refused(files.export_with_options("/out", at_most(2)).await);
    files.export_with_options("/out", at_most(3)).await.unwrap();
    let directory = entry("/out", FilesystemEntryKind::Directory, 3);
    world
        .fake
        .answer_filesystem(filesystem_response(Some(directory)));
    refused(files.export("/out").await);
    let grown = entry("/out", FilesystemEntryKind::File, 2);
    world
        .fake
        .answer_filesystem(filesystem_response(Some(grown)));
    guest(files.export("/out").await);
}
