//! The files of a container on a real engine: links, races, sizes, rights.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use a3sbox_oci::{
    ContainerTarget, DeleteMode, Error, ErrorCode, FileOp, FileRequest, FileResponse,
    FilesystemEntryKind, FilesystemOp, FilesystemRequest, FilesystemResponse,
    MAX_FILE_TRANSFER_BYTES, OciRuntimeService, OperationContext,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use support::{World, context, target};

/// A container with a root of its own that it may change, and its service.
struct Files {
    world: World,
    container: ContainerTarget,
}

impl Files {
    /// Runs `script` in the container first.
    async fn after(script: &str) -> Self {
        let world = World::new().await;
        // The shared rootfs is for all tests: this one gets a copy on a filesystem of its own.
        let copy = world.folder().join("rootfs");
        let made = std::process::Command::new("cp")
            .args(["-a", "--"])
            .arg(support::rootfs())
            .arg(&copy)
            .status()
            .unwrap();
        assert!(made.success());
        std::fs::create_dir_all(copy.join("etc")).unwrap();
        std::fs::create_dir_all(copy.join("var")).unwrap();
        std::fs::create_dir_all(copy.join("run")).unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\n";
        std::fs::write(copy.join("etc/passwd"), passwd).unwrap();
        std::fs::write(copy.join("etc/group"), "root:x:0:\napp:x:1000:\n").unwrap();
        let script = format!("{script}\necho ready >/ready; exec sleep 1000");
        let mut spec = world.spec(&["sh", "-c", &script]);
        spec["root"]["path"] = copy.to_str().unwrap().into();
        let container = target(&world.create_spec(&spec).await.unwrap());
        world.start(&container).await;
        let files = Self { world, container };
        support::eventually("the container's script", || copy.join("ready").exists()).await;
        files
    }

    fn rootfs(&self) -> PathBuf {
        self.world.folder().join("rootfs")
    }

    async fn transfer(&self, request: FileRequest) -> Result<FileResponse, Error> {
        self.world.service.file(request).await
    }

    fn upload(&self, path: &str, data: &[u8], context: OperationContext) -> FileRequest {
        FileRequest {
            target: self.container.clone(),
            op: FileOp::Upload,
            path: path.to_owned(),
            data: Some(STANDARD.encode(data)),
            user: None,
            context: Some(context),
        }
    }

    async fn write(&self, path: &str, data: &[u8]) -> Result<FileResponse, Error> {
        self.transfer(self.upload(path, data, context())).await
    }

    async fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        let answer = self
            .transfer(FileRequest {
                target: self.container.clone(),
                op: FileOp::Download,
                path: path.to_owned(),
                data: None,
                user: None,
                context: None,
            })
            .await?;
        Ok(STANDARD.decode(answer.data.unwrap()).unwrap())
    }

    async fn call(
        &self,
        op: FilesystemOp,
        path: &str,
        destination: Option<&str>,
        depth: u32,
    ) -> Result<FilesystemResponse, Error> {
        self.world
            .service
            .filesystem(FilesystemRequest {
                target: self.container.clone(),
                op,
                path: path.to_owned(),
                destination: destination.map(str::to_owned),
                depth,
                user: None,
                context: op.is_mutating().then(context),
            })
            .await
    }

    async fn end(self) {
        self.world
            .delete(&self.container, DeleteMode::Force)
            .await
            .unwrap();
        self.world.assert_nothing_left();
    }
}

fn not_found(error: &Error) -> bool {
    error.is_of_path() && error.code == ErrorCode::NotFound && error.message.contains("not found")
}

#[tokio::test]
async fn links_lead_to_places_inside_the_container_only() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    std::fs::write(&canary, "canary").unwrap();
    let files = Files::after(
        "rm -rf /var/run; ln -s /run /var/run; ln -s / /r; ln -s ../../../../../.. /up
         ln -s /etc/nothere /dangle; ln -s l2 /l1; ln -s l1 /l2; ln -s /proc/1/root /pr
         mkdir /d; ln -s /run /d/link",
    )
    .await;
    let passwd = std::fs::read(files.rootfs().join("etc/passwd")).unwrap();

    files.write("/var/run/a/x", b"x").await.unwrap();
    assert_eq!(std::fs::read(files.rootfs().join("run/a/x")).unwrap(), b"x");
    for path in [
        "/r/etc/passwd",
        "/up/etc/passwd",
        "../../etc/passwd",
        "etc/passwd",
    ] {
        assert_eq!(files.read(path).await.unwrap(), passwd, "{path}");
    }
    // A link of the kernel's own is refused.
    assert!(files.read("/pr/etc/passwd").await.unwrap_err().is_of_path());
    let reached = files.read(&format!("/up{}", canary.display())).await;
    assert!(not_found(&reached.unwrap_err()));

    files.write("/dangle", b"here").await.unwrap();
    assert_eq!(
        std::fs::read(files.rootfs().join("etc/nothere")).unwrap(),
        b"here"
    );
    let looped = files
        .call(FilesystemOp::Stat, "/l1", None, 0)
        .await
        .unwrap_err();
    assert!(looped.is_of_path() && !not_found(&looped), "{looped:?}");

    files
        .call(FilesystemOp::Remove, "/var/run", None, 0)
        .await
        .unwrap();
    assert!(files.rootfs().join("run/a/x").exists());
    files
        .call(FilesystemOp::Remove, "/d", None, 0)
        .await
        .unwrap();
    assert!(files.rootfs().join("run/a/x").exists());
    assert!(!files.rootfs().join("d").exists());
    assert_eq!(std::fs::read(&canary).unwrap(), b"canary");
    files.end().await;
}

#[tokio::test]
async fn a_race_of_links_never_leads_out() {
    let scale: usize = std::env::var("A3SBOX_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok())
        .unwrap_or(10);
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    std::fs::write(&canary, "canary").unwrap();
    let files = Files::after(
        "(while :; do rm -rf /t; mkdir /t; rm -rf /t; ln -s / /t; done) 2>/dev/null >/dev/null &",
    )
    .await;
    let path = format!("/t{}", canary.display());
    for _ in 0..2000 / scale {
        // Refused or done, as the race has it.
        let _ = files.write(&path, b"changed").await;
    }
    assert_eq!(std::fs::read(&canary).unwrap(), b"canary");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    files.end().await;
}

#[tokio::test]
async fn sizes_come_back_whole_and_too_much_is_refused_before_anything_is_written() {
    let files = Files::after("mkdir /data; printf 0123456789 >/data/big").await;
    for size in [0, 4 * 1024 * 1024 - 1024, 4 * 1024 * 1024, 5 * 1024 * 1024] {
        let data: Vec<u8> = (0..size)
            .map(|at: usize| (at * 31).to_le_bytes()[0])
            .collect();
        assert_eq!(
            files.write("/data/f", &data).await.unwrap().size,
            size as u64
        );
        assert!(files.read("/data/f").await.unwrap() == data);
    }
    let too_much = vec![0; MAX_FILE_TRANSFER_BYTES + 1];
    for _ in 0..2 {
        let refused = files.write("/data/big", &too_much).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument);
    }
    assert_eq!(files.read("/data/big").await.unwrap(), b"0123456789");
    // What only the container can make that large is refused on the way out.
    let big = std::fs::File::create(files.rootfs().join("data/huge")).unwrap();
    big.set_len(MAX_FILE_TRANSFER_BYTES as u64 + 1).unwrap();
    let refused = files.read("/data/huge").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ResourceExhausted);
    files.end().await;
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_file_and_no_part() {
    let files = Files::after("true").await;
    // `/tmp` of the container is a tmpfs; `/dev/shm` is one of 64 MiB that is filled up.
    let dd = files
        .world
        .exec(
            &files.container,
            "fill",
            &["sh", "-c", "printf old >/dev/shm/f; dd if=/dev/zero of=/dev/shm/fill bs=1M count=62 2>/dev/null"],
        )
        .await;
    files.world.wait_process(&dd).await.unwrap();
    let refused = files
        .write("/dev/shm/f", &vec![1; 8 * 1024 * 1024])
        .await
        .unwrap_err();
    assert!(refused.is_of_path());
    assert_eq!(refused.code, ErrorCode::ResourceExhausted);
    assert_eq!(files.read("/dev/shm/f").await.unwrap(), b"old");
    let listed = files
        .call(FilesystemOp::ListDir, "/dev/shm", None, 1)
        .await
        .unwrap();
    let names: Vec<_> = listed
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["f", "fill"]);
    files.end().await;
}

#[tokio::test]
async fn entries_say_what_is_there_and_listings_are_bounded() {
    let files = Files::after(
        "mkdir -p /l/sub/deep; echo hello >/l/file
         ln -s file /l/link; mkdir /many; i=0; while [ $i -lt 4097 ]; do : >/many/$i; i=$((i+1)); done",
    )
    .await;
    let made = files.rootfs().join("l/file");
    std::os::unix::fs::chown(&made, Some(1000), Some(1000)).unwrap();
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o4750)).unwrap();
    let stat = async |path: &str| {
        files
            .call(FilesystemOp::Stat, path, None, 0)
            .await
            .map(|answer| answer.entry.unwrap())
    };
    let file = stat("/l/file").await.unwrap();
    assert_eq!(
        (
            file.name.as_str(),
            file.kind,
            file.size,
            file.permissions.as_str()
        ),
        ("file", FilesystemEntryKind::File, 6, "-rwsr-x---")
    );
    assert_eq!((file.owner.as_str(), file.group.as_str()), ("app", "app"));
    let link = stat("/l/link").await.unwrap();
    assert_eq!(link.kind, FilesystemEntryKind::File);
    assert_eq!(link.symlink_target.as_deref(), Some("file"));
    assert_eq!(
        stat("/").await.unwrap().kind,
        FilesystemEntryKind::Directory
    );
    assert!(not_found(&stat("/l/none").await.unwrap_err()));

    let paths = async |depth| {
        let answer = files
            .call(FilesystemOp::ListDir, "/l", None, depth)
            .await
            .unwrap();
        answer
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(1).await, ["/l/file", "/l/link", "/l/sub"]);
    assert_eq!(
        paths(2).await,
        ["/l/file", "/l/link", "/l/sub", "/l/sub/deep"]
    );
    let refused = files
        .call(FilesystemOp::ListDir, "/many", None, 1)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::ResourceExhausted);
    files.end().await;
}

#[tokio::test]
async fn names_are_made_moved_and_removed_also_while_paused() {
    let files = Files::after("true").await;
    files.world.pause(&files.container).await.unwrap();
    let made = files
        .call(FilesystemOp::MakeDir, "/a/b/c", None, 0)
        .await
        .unwrap();
    assert_eq!(made.entry.unwrap().path, "/a/b/c");
    files.write("/a/b/c/f", b"1").await.unwrap();
    let moved = files
        .call(FilesystemOp::Move, "/a/b/c", Some("/a/moved"), 0)
        .await
        .unwrap();
    assert_eq!(moved.entry.unwrap().path, "/a/moved");
    assert_eq!(files.read("/a/moved/f").await.unwrap(), b"1");
    files
        .call(FilesystemOp::Remove, "/a", None, 0)
        .await
        .unwrap();
    let gone = files
        .call(FilesystemOp::Remove, "/a", None, 0)
        .await
        .unwrap_err();
    assert!(not_found(&gone));
    let root = files
        .call(FilesystemOp::Remove, "/", None, 0)
        .await
        .unwrap_err();
    assert!(root.is_of_path());
    // What is mounted below is not removed through.
    let mounted = files
        .call(FilesystemOp::Remove, "/dev", None, 0)
        .await
        .unwrap_err();
    assert!(mounted.is_of_path());
    files.world.resume(&files.container).await.unwrap();
    files.end().await;
}

#[tokio::test]
async fn a_user_has_the_rights_of_a_user() {
    let files = Files::after(
        "mkdir -p /home/app; chown 1000:1000 /home/app; echo s >/secret; chmod 600 /secret",
    )
    .await;
    let as_app = |mut request: FileRequest| {
        request.user = Some("app".to_owned());
        files.transfer(request)
    };
    as_app(files.upload("~/mine", b"1", context()))
        .await
        .unwrap();
    let mine = files
        .call(FilesystemOp::Stat, "/home/app/mine", None, 0)
        .await
        .unwrap();
    assert_eq!(mine.entry.unwrap().owner, "app");
    let refused = as_app(files.upload("/etc/passwd", b"", context()))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied);
    let mut read = files.upload("/secret", b"", context());
    (read.op, read.data, read.context) = (FileOp::Download, None, None);
    let refused = as_app(read).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied);
    files.end().await;
}

#[tokio::test]
async fn a_repeated_operation_has_one_effect_and_other_content_is_a_conflict() {
    let files = Files::after("true").await;
    let once = files.upload("/f", b"one", context());
    files.transfer(once.clone()).await.unwrap();
    files.write("/f", b"two").await.unwrap();
    assert_eq!(files.transfer(once.clone()).await.unwrap().size, 3);
    assert_eq!(files.read("/f").await.unwrap(), b"two");
    let other = files.upload("/f", b"three", once.context.unwrap());
    let refused = files.transfer(other).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    files.end().await;
}
