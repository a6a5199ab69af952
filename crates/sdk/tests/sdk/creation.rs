//! Section 6: from options to one request.

use a3sbox_core::*;
use a3sbox_sdk::{
    ClientError, Sandbox, SandboxCreateOptions, SandboxNetwork, TmpfsMount, VolumeMount,
};

use crate::fake::{Call, World, refused, world};

async fn create(world: &World, options: SandboxCreateOptions) -> a3sbox_sdk::Result<Sandbox> {
    Sandbox::create_with_client(world.client.clone(), options).await
}

fn options() -> SandboxCreateOptions {
    SandboxCreateOptions::new("alpine:3.20")
}

#[tokio::test]
async fn defaults_make_one_creation_and_a_running_handle() {
    let world = world();
    let sandbox = create(&world, options()).await.unwrap();
    let request = world.fake.the_request();
    let info = sandbox.info();
    assert_eq!(info.sandbox_id, "execution-1");
    assert_eq!(sandbox.id(), "execution-1");
    assert_eq!((info.generation, info.state), (1, ExecutionState::Running));
    assert_eq!(info.isolation, ExecutionIsolation::Microvm);
    assert_eq!(sandbox.isolation(), ExecutionIsolation::Microvm);

    let config = &request.config;
    assert_eq!(config.image, "alpine:3.20");
    assert_eq!(config.resources, ResourceConfig::default());
    assert_eq!(config.network, NetworkMode::Tsi);
    assert!(config.workspace.as_os_str().is_empty());
    assert_eq!(config.cmd.len(), 3);
    assert_eq!(config.cmd[..2], ["/bin/sh", "-c"]);
    assert!(config.cmd[2].contains("sleep 3600"));
    assert_eq!(config.entrypoint_override, None);
    assert!(request.policy.auto_remove);
    assert_eq!(request.policy.name, None);
}

#[tokio::test]
async fn each_creation_has_a_fresh_identity() {
    let world = world();
    create(&world, options()).await.unwrap();
    create(&world, options()).await.unwrap();
    let mut seen = Vec::new();
    for call in world.fake.calls() {
        let Call::CreateAndStart(operation, request) = call else {
            panic!("{call:?}");
        };
        let external = request["external_sandbox_id"].as_str().unwrap().to_owned();
        let uuid = external.strip_prefix("local-").unwrap();
        assert_eq!(operation, format!("sdk-create-{uuid}"));
        assert_eq!(uuid.len(), 36);
        seen.push(external);
    }
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn every_option_ends_up_in_the_request() {
    let world = world();
    world.client.volume("cache").create().unwrap();
    let snapshot = ExecutionSnapshotId::new("base").unwrap();
    let options = options()
        .timeout_seconds(120)
        .env("Z", "1")
        .env("A", "2")
        .metadata("suite", "x")
        .cpus(4)
        .memory_mb(512)
        .filesystem_snapshot(snapshot.clone())
        .workdir("/w")
        .mount(VolumeMount::bind("/src", "/a").read_only(true))
        .mount(VolumeMount::named("cache", "/b"))
        .mount(VolumeMount::named("cache", "/c").read_only(true))
        .network(SandboxNetwork::Disabled)
        .auto_remove(false)
        .name("web")
        .workspace("/ws")
        .user("1000:1000")
        .hostname("box")
        .tmpfs(TmpfsMount::new("/t1"))
        .tmpfs(TmpfsMount::new("/t2").size_bytes(10))
        .tmpfs(TmpfsMount::new("/t3").read_only(true))
        .tmpfs(TmpfsMount::new("/t4").size_bytes(7).read_only(true))
        .dns_server("1.1.1.1")
        .dns_server("fd00::1")
        .host_alias("db", "10.0.0.5")
        .read_only(true)
        .persistent(true)
        .command(["run", "it"])
        .entrypoint(["/init"]);
    create(&world, options).await.unwrap();

    let request = world.fake.the_request();
    let config = request.config;
    let mount_point = world
        .client
        .get_volume("cache")
        .unwrap()
        .unwrap()
        .mount_point;
    assert_eq!(
        config.resources,
        ResourceConfig {
            vcpus: 4,
            memory_mb: 512,
            timeout: 120,
            ..ResourceConfig::default()
        }
    );
    assert_eq!(
        config.extra_env,
        [("A".into(), "2".into()), ("Z".to_owned(), "1".to_owned())]
    );
    assert_eq!(request.labels["suite"], "x");
    assert_eq!(request.rootfs_snapshot_id, Some(snapshot));
    assert_eq!(config.workdir.as_deref(), Some("/w"));
    assert_eq!(
        config.volumes,
        [
            "/src:/a:ro".to_owned(),
            format!("{mount_point}:/b:rw"),
            format!("{mount_point}:/c:ro"),
        ]
    );
    assert_eq!(request.policy.volume_names, ["cache"]);
    assert_eq!(config.network, NetworkMode::None);
    assert!(!request.policy.auto_remove);
    assert_eq!(request.policy.name.as_deref(), Some("web"));
    assert_eq!(config.workspace, std::path::Path::new("/ws"));
    assert_eq!(config.user.as_deref(), Some("1000:1000"));
    assert_eq!(config.hostname.as_deref(), Some("box"));
    assert_eq!(
        config.tmpfs,
        ["/t1", "/t2:size=10", "/t3:ro", "/t4:size=7,ro"]
    );
    assert_eq!(config.dns, ["1.1.1.1", "fd00::1"]);
    assert_eq!(config.add_hosts, ["db:10.0.0.5"]);
    assert!(config.read_only && config.persistent);
    assert_eq!(config.cmd, ["run", "it"]);
    assert_eq!(config.entrypoint_override, Some(vec!["/init".to_owned()]));
}

#[tokio::test]
async fn an_entrypoint_alone_gets_no_keep_alive() {
    let world = world();
    create(&world, options().entrypoint(["/server"]))
        .await
        .unwrap();
    assert!(world.fake.the_request().config.cmd.is_empty());
}

#[tokio::test]
async fn a_microvm_on_a_bridge_with_a_volume_and_a_port() {
    let world = world();
    world.client.volume("build-cache").create().unwrap();
    world
        .client
        .network("ci-net")
        .subnet("10.90.0.0/24")
        .create()
        .unwrap();
    let builder = world
        .client
        .sandbox("alpine:3.20")
        .cpus(4)
        .memory_mb(4096)
        .mount_named("build-cache", "/cache")
        .network(SandboxNetwork::bridge("ci-net"))
        .publish_tcp(8080, 80)
        .workdir("/workspace")
        .auto_remove(false);
    assert_eq!(builder.options().cpus, Some(4));
    builder.start().await.unwrap();
    let request = world.fake.the_request();
    assert_eq!(request.config.resources.vcpus, 4);
    assert_eq!(request.config.resources.memory_mb, 4096);
    assert_eq!(request.config.network.to_string(), "bridge:ci-net");
    assert_eq!(request.config.port_map, ["8080:80"]);
    assert_eq!(request.policy.volume_names, ["build-cache"]);
    assert!(!request.policy.auto_remove);
}

#[tokio::test]
async fn bad_options_are_refused_without_a_call() {
    let world = world();
    let no_port = PortMapping {
        host_port: 1,
        guest_port: 0,
        protocol: PortProtocol::Tcp,
    };
    let none: [&str; 0] = [];
    let bad = [
        ("blank image", SandboxCreateOptions::new(" ")),
        ("timeout 0", options().timeout_seconds(0)),
        ("cpus 0", options().cpus(0)),
        ("memory 0", options().memory_mb(0)),
        ("relative workdir", options().workdir("w")),
        ("NUL in workdir", options().workdir("/w\0")),
        (
            "relative mount target",
            options().mount(VolumeMount::bind("/s", "t")),
        ),
        (
            "NUL in mount target",
            options().mount(VolumeMount::bind("/s", "/t\0")),
        ),
        (
            "colon in mount target",
            options().mount(VolumeMount::bind("/s", "/t:rw")),
        ),
        (
            "empty bind source",
            options().mount(VolumeMount::bind("", "/t")),
        ),
        (
            "colon in bind source",
            options().mount(VolumeMount::bind("/s:x", "/t")),
        ),
        ("relative tmpfs", options().tmpfs(TmpfsMount::new("t"))),
        (
            "tmpfs of size 0",
            options().tmpfs(TmpfsMount::new("/t").size_bytes(0)),
        ),
        ("DNS server by name", options().dns_server("dns.example")),
        ("alias without name", options().host_alias("", "10.0.0.1")),
        ("alias of odd name", options().host_alias("a_b", "10.0.0.1")),
        ("alias without address", options().host_alias("a", "b")),
        ("guest port 0", options().publish_port(no_port)),
        ("empty command", options().command(none)),
        ("blank command", options().command([" ", "x"])),
        ("empty entrypoint", options().entrypoint(none)),
        ("blank entrypoint", options().entrypoint([""])),
        ("odd variable", options().env("A=B", "")),
        ("nameless variable", options().env("", "x")),
        (
            "unknown volume",
            options().mount(VolumeMount::named("v", "/t")),
        ),
        (
            "unknown network",
            options().network(SandboxNetwork::bridge("n")),
        ),
        (
            "blank network",
            options().network(SandboxNetwork::bridge(" ")),
        ),
    ];
    for (what, options) in bad {
        match create(&world, options).await {
            Err(ClientError::Validation(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    assert_eq!(world.fake.calls(), []);
    assert!(world.home_entries().is_empty());
}

#[tokio::test]
async fn what_the_isolation_cannot_honour_is_refused_without_a_call() {
    let world = world();
    let options = options()
        .isolation(ExecutionIsolation::Sandbox)
        .publish_port(PortMapping::tcp(8080, 80).unwrap());
    let result = create(&world, options).await;
    assert!(matches!(
        result,
        Err(ClientError::Runtime(BoxError::ConfigError(_)))
    ));
    assert_eq!(world.fake.calls(), []);
}

#[tokio::test]
async fn connecting_is_one_inspection() {
    let world = world();
    let created = world.sandbox().await;
    world.fake.set_state(ExecutionState::Paused, 5);
    let connected = Sandbox::connect_with_client(world.client.clone(), created.id())
        .await
        .unwrap();
    let info = connected.info();
    assert_eq!((info.generation, info.state), (5, ExecutionState::Paused));
    assert_eq!(info.isolation, ExecutionIsolation::Sandbox);
    assert_eq!(world.fake.take(), [Call::Inspect]);

    let unknown = Sandbox::connect_with_client(world.client.clone(), "nobody").await;
    assert!(matches!(
        unknown,
        Err(ClientError::Execution(ExecutionManagerError::NotFound(_)))
    ));
    refused(Sandbox::connect_with_client(world.client.clone(), " ").await);
}
