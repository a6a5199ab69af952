//! Section 11: the tail of the log.

use a3sbox_sdk::SandboxLogOptions;

use crate::fake::{Call, log_entry, refused, world};

#[tokio::test]
async fn a_tail_out_of_bounds_is_refused_without_a_call() {
    let world = world();
    let sandbox = world.sandbox().await;
    for tail in [0, 10_001, usize::MAX] {
        refused(sandbox.logs(SandboxLogOptions::tail(tail)).await);
    }
    assert_eq!(world.fake.calls(), []);
}

#[tokio::test]
async fn the_last_entries_come_in_order_and_unchanged() {
    let world = world();
    let sandbox = world.sandbox().await;
    world.fake.set_log(150);
    for (options, first) in [
        (SandboxLogOptions::tail(1), 149),
        (SandboxLogOptions::tail(149), 1),
        (SandboxLogOptions::tail(10_000), 0),
        (SandboxLogOptions::default(), 50),
    ] {
        let entries = sandbox.logs(options).await.unwrap();
        let expected: Vec<_> = (first..150).map(log_entry).collect();
        assert_eq!(entries, expected);
    }
    assert_eq!(world.fake.take(), vec![Call::ReadLogs(1); 4]);
    sandbox.stop().await.unwrap();
    assert_eq!(
        sandbox
            .logs(SandboxLogOptions::tail(3))
            .await
            .unwrap()
            .len(),
        3
    );
}
