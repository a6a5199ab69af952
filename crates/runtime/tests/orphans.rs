//! A subreaper's own duty: orphans are reaped, and no exit that somebody waits for is taken with them.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use a3sbox_oci::{DeleteMode, OciRuntimeService};
use support::{World, eventually, target};

/// Ended children of this process that nobody has reaped.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| {
            let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
            let mut fields = fields.split(' ');
            fields.next() == Some("Z") && fields.next() == Some(&own)
        })
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_are_reaped_and_exits_are_not_stolen() {
    let world = World::sweeping().await;
    let mut spec = world.spec(&["sleep", "1000"]);
    // Without a pid namespace of its own a container's orphans become ours.
    spec["linux"]["namespaces"]
        .as_array_mut()
        .unwrap()
        .retain(|namespace| namespace["type"] != "pid");
    let container = target(&world.create_spec(&spec).await.unwrap());
    world.start(&container).await;
    let mut running = Vec::new();
    for code in 0..24_i32 {
        let service = world.service.clone();
        let script = format!("(true &) ; (sleep 0.0{code} &) ; exit {code}");
        let request = world.exec_request(&container, &format!("e{code}"), &["sh", "-c", &script]);
        running.push(tokio::spawn(async move {
            let record = service.exec(request).await.unwrap();
            let status = service
                .wait_process(a3sbox_oci::WaitProcessRequest {
                    process: record.target,
                    timeout_ms: Some(30_000),
                })
                .await
                .unwrap();
            assert_eq!(status.exit_code, Some(code));
        }));
    }
    for exec in running {
        exec.await.unwrap();
    }
    eventually("no zombie is left", || zombies() == 0).await;
    world.delete(&container, DeleteMode::Force).await.unwrap();
    eventually("no zombie is left", || zombies() == 0).await;
    world.assert_nothing_left();
}
