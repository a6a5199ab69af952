//! The end-to-end suite. `cargo test -p a3sbox-e2e --test containerd -- FILTER` runs a part of it; a
//! trial is called `CONTAINERD::SUBJECT::PROMISE`.

mod answers;
mod bootstrap;
mod events;
mod exec;
mod hooks;
mod io;
mod lifecycle;
mod pods;
mod races;
mod recovery;
mod refusals;
mod resources;

fn main() -> std::process::ExitCode {
    let mut cases = lifecycle::cases();
    cases.extend(answers::cases());
    cases.extend(bootstrap::cases());
    cases.extend(events::cases());
    cases.extend(exec::cases());
    cases.extend(hooks::cases());
    cases.extend(io::cases());
    cases.extend(pods::cases());
    cases.extend(races::cases());
    cases.extend(recovery::cases());
    cases.extend(refusals::cases());
    cases.extend(resources::cases());
    a3sbox_e2e::run_all(cases)
}
