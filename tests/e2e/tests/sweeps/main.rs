//! Black-box sweeps: the shipped shim on a real containerd, broken from outside at each of its durable
//! writes.
//!
//! One trial is one verb and one fault. In it, for each system call of a durable write and for N = 1, 2, ...
//! until the verb comes to its end unbroken, a pod of two containers is made, `strace` is told to break the
//! server's Nth such call, and the verb is called through containerd. `strace` attaches to the server's one
//! thread of work alone, so that N counts exactly its writes and no engine is touched.
//!
//! | fault | what must hold afterwards |
//! |---|---|
//! | SIGKILL | containerd cleans up: no process, mount, cgroup, record, temporary or socket is left; no exit code is invented; the same ids serve the next point |
//! | EIO, ENOSPC | the call says which file, or succeeds; the pod's other container goes on; the broken one can be killed and deleted |
//!
//! A normal run takes every second point, `hack/test --full` each. With `A3SBOX_CRASH_ROWS` naming a folder,
//! what was seen is written there for `hack/crash-matrix`.

mod fault;
mod pod;
mod report;
mod sweep;
mod truth;
mod verb;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use a3sbox_e2e::{Containerd, Leftovers, Node, Shim, Version, Watcher};
use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::fault::Fault;
use crate::report::Report;
use crate::verb::Verb;

/// A containerd that one sweep at a time has to itself: the whole of its state must be empty at the end.
struct Host {
    watcher: Watcher,
    containerd: Containerd,
}

impl Host {
    fn start() -> Result<Self> {
        let containerd = Containerd::start(Version::V2_1)?;
        let watcher = Watcher::start(&Node {
            containerd: &containerd,
            shim: Shim::Ours,
        })?;
        Ok(Self {
            watcher,
            containerd,
        })
    }
}

/// Containerds that are free. One whose sweep failed does not come back.
#[derive(Default)]
struct Hosts(Mutex<Vec<Host>>);

impl Hosts {
    fn take(&self) -> Result<Host> {
        let free = self.0.lock().unwrap_or_else(|e| e.into_inner()).pop();
        free.map_or_else(Host::start, Ok)
    }

    fn give_back(&self, host: Host) {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(host);
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let hosts = Arc::new(Hosts::default());
    let report = Arc::new(Report::default());
    let mut trials = Vec::new();
    for verb in Verb::ALL {
        for fault in Fault::ALL {
            let (hosts, report) = (hosts.clone(), report.clone());
            let name = format!("2.1::{}::{}", verb.label(), fault.label());
            trials.push(Trial::test(name, move || {
                run(&hosts, &report, verb, fault).map_err(|e| Failed::from(format!("{e:#}")))
            }));
        }
    }
    let is_run = !arguments.list;
    if is_run {
        println!(
            "every point of every {} is broken (A3SBOX_TEST_SCALE)",
            sweep::stride()
        );
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let mut left = Vec::new();
    for host in std::mem::take(&mut *hosts.0.lock().unwrap_or_else(|e| e.into_inner())) {
        drop(host.watcher);
        left.extend(Leftovers::of_containerd(&host.containerd));
    }
    if is_run {
        report.print();
        if let Err(error) = report.write() {
            eprintln!("cannot write the rows of the crash matrix: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    for what in &left {
        eprintln!("left behind: {what}");
    }
    if left.is_empty() {
        conclusion.exit_code()
    } else {
        ExitCode::FAILURE
    }
}

fn run(hosts: &Hosts, report: &Report, verb: Verb, fault: Fault) -> Result<()> {
    let host = hosts.take()?;
    let node = Node {
        containerd: &host.containerd,
        shim: Shim::Ours,
    };
    sweep::run(&node, &host.watcher, report, verb, fault)?;
    hosts.give_back(host);
    Ok(())
}
