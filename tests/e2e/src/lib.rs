//! End-to-end suites: the shipped binaries on a real containerd, from the outside only.
//!
//! A case is a function on a [`Node`]: one containerd and one shim, ours or the stock one. The same
//! case runs on both in the same run; ours must pass where stock passes.

mod api;
mod case;
mod command;
mod fifo;
mod leaks;
mod node;
mod spec;
mod watcher;

pub use api::{Api, TaskIo};
pub use case::{Case, Scope, run_all};
pub use command::{Output, run, run_in};
pub use fifo::{drain_to_end, make_fifo, open_reader, open_writer};
pub use leaks::Leftovers;
pub use node::{BUSYBOX, Containerd, Node, PAUSE, Shim, Version};
pub use spec::{Bundle, busybox, merge};
pub use watcher::Watcher;

/// Waits until `probe` gives a value, at most `limit`; the error says what was waited for.
pub fn eventually<T>(
    what: &str,
    limit: std::time::Duration,
    mut probe: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let began = std::time::Instant::now();
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        anyhow::ensure!(began.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// How often [`eventually`] looks.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

/// A counted case's count: the whole with `hack/test --full`, a share of it otherwise.
pub fn scaled(count: u32) -> u32 {
    let share = std::env::var("A3SBOX_TEST_SCALE")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(10);
    (count / std::cmp::Ord::max(share, 1)).max(1)
}
