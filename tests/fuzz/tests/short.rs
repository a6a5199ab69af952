//! A short run of every target. Longer ones are for `hack/fuzz`.

#![allow(clippy::unwrap_used, reason = "test code")]

use a3sbox_fuzz::{Limit, TARGETS, run};

#[test]
fn no_input_makes_a_target_panic() {
    for target in &TARGETS {
        let report = run(target, Limit::Inputs(3_000), 7);
        assert!(
            report.failure.is_none(),
            "{} panicked on {:?}",
            target.name,
            String::from_utf8_lossy(&report.failure.unwrap())
        );
    }
}
