//! Section 5: named networks.

use a3sbox_core::network::IsolationMode;
use a3sbox_sdk::{ClientError, CreateNetwork};

use crate::fake::{refused, world};

#[tokio::test]
async fn a_new_network_is_stored_with_its_gateway() {
    let world = world();
    let network = world
        .client
        .network("ci-net")
        .subnet("10.90.4.0/22")
        .label("team", "core")
        .create()
        .unwrap();
    assert_eq!(network.subnet, "10.90.4.0/22");
    assert_eq!(network.gateway, "10.90.4.1");
    assert_eq!(network.driver, "bridge");
    assert_eq!(network.isolation, "none");
    assert_eq!((network.endpoint_count, network.endpoints.len()), (0, 0));
    let found = world.client.get_network("ci-net").unwrap();
    assert_eq!(found, Some(network.clone()));
    assert_eq!(world.client.list_networks().unwrap(), [network]);

    let default = world.client.network("d").create().unwrap();
    assert_eq!(
        (default.subnet.as_str(), default.gateway.as_str()),
        ("10.89.0.0/24", "10.89.0.1")
    );
}

#[tokio::test]
async fn bad_requests_write_nothing() {
    let world = world();
    for subnet in [
        "",
        "10.0.0.0",
        "10.0.0.0/0",
        "10.0.0.0/31",
        "fd00::/64",
        "x/24",
    ] {
        refused(world.client.network("n").subnet(subnet).create());
    }
    for name in ["", " ", "a/b", "a\\b", ".", ".."] {
        refused(world.client.network(name).create());
    }
    let mut request = CreateNetwork::new("n");
    request.driver = "macvlan".into();
    refused(world.client.create_network(request));
    let strict = world.client.network("n").isolation(IsolationMode::Strict);
    refused(strict.create());
    assert!(world.home_entries().is_empty());
}

#[tokio::test]
async fn a_taken_name_is_refused_and_the_first_definition_stays() {
    let world = world();
    let first = world.client.network("n").create().unwrap();
    let second = world.client.network("n").subnet("10.1.0.0/16").create();
    assert!(matches!(second, Err(ClientError::Runtime(_))));
    assert_eq!(world.client.get_network("n").unwrap(), Some(first));
}

#[tokio::test]
async fn remove_and_prune_leave_networks_with_members() {
    let world = world();
    for name in ["a", "b", "c"] {
        world.client.network(name).create().unwrap();
    }
    let file = &world.client.paths().networks_file;
    let text = std::fs::read_to_string(file).unwrap();
    let member = r#""endpoints": {"e": {"box_id": "e", "box_name": "web",
        "ip_address": "10.89.0.2", "mac_address": "02:00:00:00:00:01"}}"#;
    std::fs::write(file, text.replacen("\"endpoints\": {}", member, 1)).unwrap();

    let a = world.client.get_network("a").unwrap().unwrap();
    assert_eq!(a.endpoint_count, 1);
    assert_eq!(a.endpoints[0].ip_address, "10.89.0.2");
    let result = world.client.remove_network("a");
    assert!(matches!(result, Err(ClientError::Runtime(_))));
    world.client.remove_network("b").unwrap();
    assert!(world.client.remove_network("b").is_err());
    assert_eq!(world.client.prune_networks().unwrap(), ["c"]);
    assert_eq!(world.client.list_networks().unwrap(), [a]);
}
