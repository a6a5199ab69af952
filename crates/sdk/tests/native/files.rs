//! Files of a sandbox, whose ids are not the host's.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use a3sbox_core::{ExecutionManagerError, FilesystemEntryKind};
use a3sbox_sdk::{ClientError, FilesystemOptions};

use crate::support::Home;

const FIRST_HOST_ID: u32 = 536_870_912;

fn as_user(user: &str) -> FilesystemOptions {
    FilesystemOptions {
        user: Some(user.to_owned()),
    }
}

fn guest<T: std::fmt::Debug>(result: a3sbox_sdk::Result<T>) -> String {
    match result {
        Err(ClientError::Guest(text)) => text,
        other => panic!("expected Guest, got {other:?}"),
    }
}

#[tokio::test]
async fn files_go_in_and_out_and_belong_to_the_sandbox() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let files = &sandbox.files;
    let written = files.write("/srv/new/hello", "hello").await.unwrap();
    assert_eq!((written.path.as_str(), written.size), ("/srv/new/hello", 5));
    assert_eq!(files.read_text("/srv/new/hello").await.unwrap(), "hello");
    assert!(files.exists("/srv/new/hello").await.unwrap());
    assert!(!files.exists("/srv/nothing").await.unwrap());
    assert!(guest(files.read("/srv/nothing").await).contains("not found"));

    let rootfs = home.path().join("boxes").join(sandbox.id()).join("rootfs");
    let host = std::fs::metadata(rootfs.join("srv/new/hello")).unwrap();
    assert_eq!((host.uid(), host.gid()), (FIRST_HOST_ID, FIRST_HOST_ID));
    let seen = sandbox
        .commands
        .run("stat -c '%U %a' /srv/new /srv/new/hello")
        .await
        .unwrap();
    assert_eq!(seen.stdout, "root 755\nroot 644\n");

    files
        .write_with_options("~/own", "mine", as_user("app"))
        .await
        .unwrap();
    let own = files.stat("/home/app/own").await.unwrap();
    assert_eq!((own.owner.as_str(), own.group.as_str()), ("app", "app"));
    let refused = files
        .write_with_options("/etc/passwd", "", as_user("app"))
        .await;
    assert!(guest(refused).contains("permission denied"));

    files.make_dir("/srv/dir").await.unwrap();
    files.move_path("/srv/new", "/srv/dir/moved").await.unwrap();
    let listed = files.list("/srv", 3).await.unwrap();
    let found: Vec<_> = listed
        .iter()
        .map(|entry| (entry.path.as_str(), entry.kind))
        .collect();
    assert_eq!(
        found,
        [
            ("/srv/dir", FilesystemEntryKind::Directory),
            ("/srv/dir/moved", FilesystemEntryKind::Directory),
            ("/srv/dir/moved/hello", FilesystemEntryKind::File),
        ]
    );
    files.remove("/srv/dir").await.unwrap();
    assert!(!files.exists("/srv/dir").await.unwrap());
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn a_sandbox_s_root_is_nobody_to_what_the_host_mounted_into_it() {
    let home = Home::new().await;
    let host = tempfile::tempdir().unwrap();
    std::fs::set_permissions(host.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = host.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(host.path().join("open"), "open").unwrap();
    let sandbox = home
        .sandbox()
        .mount_bind(host.path(), "/host")
        .start()
        .await
        .unwrap();
    let files = &sandbox.files;
    assert_eq!(files.read_text("/host/open").await.unwrap(), "open");
    for refused in [
        files.read("/host/secret").await.map(drop),
        files.write("/host/open", "x").await.map(drop),
        files.write("/host/new", "x").await.map(drop),
        files.make_dir("/host/dir").await,
        files.remove("/host/open").await,
        files.move_path("/host/open", "/host/other").await,
    ] {
        assert!(guest(refused).contains("permission denied"));
    }
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(host.path()).unwrap().count(), 2);
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}

#[tokio::test]
async fn links_stay_inside_and_large_files_have_a_stated_limit() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let files = &sandbox.files;
    let canary = home.path().join("canary");
    std::fs::write(&canary, "canary").unwrap();
    let made = sandbox
        .commands
        .run("ln -s ../../../../.. /up; ln -s / /r; ln -s l2 /l1; ln -s l1 /l2")
        .await
        .unwrap();
    assert_eq!(made.exit_code, 0);
    assert!(guest(files.read(format!("/up{}", canary.display())).await).contains("not found"));
    assert!(
        files
            .read_text("/r/etc/passwd")
            .await
            .unwrap()
            .starts_with("root:x:0:0")
    );
    guest(files.stat("/l1").await);

    let data: Vec<u8> = (0..5_000_000_u32)
        .map(|at| at.to_le_bytes()[0] ^ 7)
        .collect();
    files.write("/data", &data).await.unwrap();
    assert!(files.read("/data").await.unwrap() == data);
    let refused = files.write("/data", vec![0; 33 * 1024 * 1024]).await;
    assert!(
        matches!(
            &refused,
            Err(ClientError::Execution(
                ExecutionManagerError::InvalidRequest(_)
            ))
        ),
        "{refused:?}"
    );
    assert!(files.read("/data").await.unwrap() == data);
    sandbox.kill().await.unwrap();
    home.assert_nothing_left(&[sandbox.id()]);
}
