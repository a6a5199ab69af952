//! Cases, and the run of all of them over the containerd versions.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{Containerd, Leftovers, Node, Shim, Version};

/// On which containerd versions a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All four.
    Core,
    /// The oldest and 2.1.
    Full,
}

impl Scope {
    fn covers(self, version: Version) -> bool {
        self == Self::Core || matches!(version, Version::V1_6 | Version::V2_1)
    }
}

/// One promise of the runtime.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub scope: Scope,
    /// Runs on the stock shim too. Not for what only ours promises, such as a record on disk.
    pub compared: bool,
    pub run: fn(&Node<'_>) -> Result<()>,
}

impl Case {
    pub const fn core(name: &'static str, run: fn(&Node<'_>) -> Result<()>) -> Self {
        Self {
            name,
            scope: Scope::Core,
            compared: true,
            run,
        }
    }

    pub const fn full(name: &'static str, run: fn(&Node<'_>) -> Result<()>) -> Self {
        Self {
            name,
            scope: Scope::Full,
            compared: true,
            run,
        }
    }

    /// The same case, not run on the stock shim.
    pub const fn ours_alone(mut self) -> Self {
        self.compared = false;
        self
    }
}

/// How long the last shims of a run may take to end.
const END_LIMIT: std::time::Duration = std::time::Duration::from_secs(40);

/// The containerds of this run, each started when its first case needs it.
#[derive(Default)]
struct Fleet(Mutex<BTreeMap<Version, Arc<Containerd>>>);

impl Fleet {
    fn get(&self, version: Version) -> Result<Arc<Containerd>> {
        let mut running = self
            .0
            .lock()
            .map_err(|_| anyhow::anyhow!("an earlier start panicked"))?;
        if let Some(containerd) = running.get(&version) {
            return Ok(containerd.clone());
        }
        let containerd = Arc::new(
            Containerd::start(version)
                .with_context(|| format!("containerd {}", version.label()))?,
        );
        running.insert(version, containerd.clone());
        Ok(containerd)
    }

    /// Stops all of them and tells what they left behind.
    fn stop(&self) -> Vec<String> {
        let running = std::mem::take(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()));
        let mut left = Vec::new();
        for (version, containerd) in running {
            // A shim whose last task was deleted a moment ago is still on its way out.
            let _ = crate::eventually("the last shims end", END_LIMIT, || {
                Ok(Leftovers::of_containerd(&containerd)
                    .is_empty()
                    .then_some(()))
            });
            let found = Leftovers::of_containerd(&containerd);
            left.extend(
                found
                    .into_iter()
                    .map(|what| format!("{}: {what}", version.label())),
            );
        }
        left
    }
}

/// Runs the cases that the command line chooses. Every case is one trial per containerd version.
pub fn run_all(cases: Vec<Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The cases of one containerd share the machine's two cores with containerd itself.
    arguments.test_threads.get_or_insert(2);
    let fleet = Arc::new(Fleet::default());
    let mut trials = Vec::new();
    for version in Version::ALL {
        for case in cases
            .iter()
            .copied()
            .filter(|case| case.scope.covers(version))
        {
            let fleet = fleet.clone();
            let name = format!("{}::{}", version.label(), case.name);
            trials.push(Trial::ignorable_test(name, move || {
                run_one(&fleet, version, case)
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let left = if arguments.list {
        Vec::new()
    } else {
        fleet.stop()
    };
    for what in &left {
        eprintln!("left behind on containerd {what}");
    }
    if left.is_empty() {
        conclusion.exit_code()
    } else {
        ExitCode::FAILURE
    }
}

fn run_one(fleet: &Fleet, version: Version, case: Case) -> Result<Completion, Failed> {
    let containerd = fleet
        .get(version)
        .map_err(|e| Failed::from(format!("{e:#}")))?;
    let on = |shim| {
        (case.run)(&Node {
            containerd: &containerd,
            shim,
        })
    };
    let stock = if case.compared {
        on(Shim::Stock)
    } else {
        Ok(())
    };
    match (on(Shim::Ours), stock) {
        (Ok(()), Ok(())) => Ok(Completion::Completed),
        (Ok(()), Err(stock)) => {
            eprintln!(
                "note: {} passes here and fails on the stock shim: {stock:#}",
                case.name
            );
            Ok(Completion::Completed)
        }
        (Err(ours), Err(stock)) => Ok(Completion::ignored_with(format!(
            "the stock shim fails alike on this host\n  ours:  {ours:#}\n  stock: {stock:#}"
        ))),
        (Err(ours), Ok(())) => Err(Failed::from(format!("{ours:#}"))),
    }
}
