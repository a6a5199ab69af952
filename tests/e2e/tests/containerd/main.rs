//! The end-to-end suite. `cargo test -p a3sbox-e2e --test containerd -- FILTER` runs a part of it; a
//! trial is called `CONTAINERD::SUBJECT::PROMISE`.

mod lifecycle;

fn main() -> std::process::ExitCode {
    let mut cases = Vec::new();
    cases.extend(lifecycle::cases());
    a3sbox_e2e::run_all(cases)
}
