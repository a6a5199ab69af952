//! Section 4: named volumes.

use a3sbox_sdk::{ClientError, CreateVolume};

use crate::fake::{refused, world};

// The builders are called inside a runtime, as programs do.
#[tokio::test]
async fn a_new_volume_has_a_folder_and_a_definition() {
    let world = world();
    let volume = world
        .client
        .volume("build-cache")
        .label("team", "core")
        .size_limit(1 << 30)
        .create()
        .unwrap();
    let folder = world.client.paths().volumes_dir.join("build-cache");
    assert!(folder.is_dir());
    assert_eq!(volume.mount_point, folder.to_str().unwrap());
    assert_eq!((volume.driver.as_str(), volume.in_use), ("local", false));
    assert_eq!(
        (volume.size_limit, volume.labels["team"].as_str()),
        (1 << 30, "core")
    );
    chrono::DateTime::parse_from_rfc3339(&volume.created_at).unwrap();

    let found = world.client.get_volume("build-cache").unwrap().unwrap();
    assert_eq!(found, volume);
    assert_eq!(world.client.list_volumes().unwrap(), [volume]);
    assert_eq!(world.client.get_volume("other").unwrap(), None);
    assert_eq!(world.fake.calls(), []);
}

#[tokio::test]
async fn missing_folders_above_the_file_are_made() {
    let home = tempfile::tempdir().unwrap();
    let paths = a3sbox_sdk::A3sBoxPaths::from_home(home.path().join("a/b"));
    let client =
        a3sbox_sdk::A3sBoxClient::with_execution_manager(paths.clone(), crate::fake::Fake::new());
    client.volume("v").create().unwrap();
    assert!(paths.volumes_file.is_file() && paths.volumes_dir.join("v").is_dir());
}

#[tokio::test]
async fn a_taken_name_is_refused_and_the_first_definition_stays() {
    let world = world();
    let first = world.client.volume("v").label("n", "1").create().unwrap();
    let file = &world.client.paths().volumes_file;
    let before = std::fs::read(file).unwrap();
    let second = world.client.volume("v").label("n", "2").create();
    assert!(matches!(second, Err(ClientError::Runtime(_))));
    assert_eq!(std::fs::read(file).unwrap(), before);
    assert_eq!(world.client.get_volume("v").unwrap(), Some(first));
}

#[tokio::test]
async fn bad_names_and_drivers_write_nothing() {
    let world = world();
    let long = "x".repeat(256);
    for name in [
        "", " ", "a/b", "a\\b", "/", ".", "..", "a:b", "a\0", "a\n", &long,
    ] {
        refused(world.client.volume(name).create());
    }
    let mut request = CreateVolume::new("v");
    request.driver = "nfs".into();
    refused(world.client.create_volume(request));
    assert!(world.home_entries().is_empty());
}

#[tokio::test]
async fn remove_takes_folder_and_definition() {
    let world = world();
    let volume = world.client.volume("v").create().unwrap();
    std::fs::write(format!("{}/file", volume.mount_point), "x").unwrap();
    world.client.remove_volume("v", false).unwrap();
    assert!(!std::path::Path::new(&volume.mount_point).exists());
    assert_eq!(world.client.list_volumes().unwrap(), []);
    let again = world.client.remove_volume("v", true);
    assert!(matches!(again, Err(ClientError::Runtime(_))));
    refused(world.client.remove_volume("..", true));
}

#[tokio::test]
async fn a_volume_in_use_is_removed_by_force_only_and_never_pruned() {
    let world = world();
    world.client.volume("busy").create().unwrap();
    world.client.volume("idle").create().unwrap();
    let file = &world.client.paths().volumes_file;
    let text = std::fs::read_to_string(file).unwrap();
    let (head, tail) = text.split_once("\"in_use_by\": []").unwrap();
    std::fs::write(file, format!("{head}\"in_use_by\": [\"e-1\"]{tail}")).unwrap();

    let busy = world.client.get_volume("busy").unwrap().unwrap();
    assert!(busy.in_use && busy.in_use_by == ["e-1"]);
    let refused = world.client.remove_volume("busy", false).unwrap_err();
    assert!(refused.to_string().contains("e-1"), "{refused}");
    assert_eq!(world.client.prune_volumes().unwrap(), ["idle"]);
    world.client.remove_volume("busy", true).unwrap();
    assert_eq!(world.client.list_volumes().unwrap(), []);
}

#[tokio::test]
async fn a_file_of_another_version_or_damaged_is_refused_and_kept() {
    let world = world();
    let file = &world.client.paths().volumes_file;
    for text in [
        r#"{"schema":"a3sbox.volumes.v9","entries":{}}"#,
        "{}",
        "{",
        "",
    ] {
        std::fs::write(file, text).unwrap();
        assert!(matches!(
            world.client.volume("v").create(),
            Err(ClientError::Runtime(_))
        ));
        assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    }
}

#[test]
fn writers_at_once_lose_nothing() {
    let world = world();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let client = world.client.clone();
            scope.spawn(move || {
                for number in 0..5 {
                    client
                        .volume(format!("v-{writer}-{number}"))
                        .create()
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(world.client.list_volumes().unwrap().len(), 20);
}

#[test]
fn an_unwritable_home_is_a_state_error_that_names_the_path() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let client = a3sbox_sdk::A3sBoxClient::with_execution_manager(
        a3sbox_sdk::A3sBoxPaths::from_home(file.path().join("home")),
        crate::fake::Fake::new(),
    );
    let error = client.volume("v").create().unwrap_err();
    assert!(matches!(error, ClientError::State(_)), "{error:?}");
    let path = file.path().to_str().unwrap();
    assert!(error.to_string().contains(path), "{error}");
}
