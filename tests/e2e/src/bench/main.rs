//! Paired benchmarks against the stock shim: A B A B on one containerd in one run, printed as ratios.
//!
//! `hack/bench/run` builds what is needed and calls this.

mod measure;
mod report;

use std::process::ExitCode;

use a3sbox_e2e::{Containerd, Node, Shim, Version};
use anyhow::{Context, Result, bail, ensure};

use crate::measure::MEASURES;
use crate::report::{Pairs, Report};

const USAGE: &str = "usage: bench [--containerd 1.6|1.7|2.1|newest]... [--only MEASURE]... [--rounds N] [--with-rust-runc] [--output table|json]";

struct Options {
    versions: Vec<Version>,
    only: Vec<String>,
    rounds: Option<usize>,
    rust_runc: bool,
    json: bool,
}

fn options() -> Result<Options> {
    let mut options = Options {
        versions: Vec::new(),
        only: Vec::new(),
        rounds: None,
        rust_runc: false,
        json: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next()
                .with_context(|| format!("{arg} needs a value\n{USAGE}"))
        };
        match arg.as_str() {
            "--containerd" => {
                let label = value()?;
                let version = Version::ALL.into_iter().find(|v| v.label() == label);
                options
                    .versions
                    .push(version.with_context(|| format!("no containerd {label}"))?);
            }
            "--only" => options.only.push(value()?),
            "--rounds" => options.rounds = Some(value()?.parse().context("--rounds")?),
            "--with-rust-runc" => options.rust_runc = true,
            "--output" => options.json = value()? == "json",
            _ => bail!("unknown argument {arg}\n{USAGE}\nmeasures: {}", names()),
        }
    }
    if options.versions.is_empty() {
        options.versions = vec![Version::V2_1, Version::Newest];
    }
    ensure!(
        options
            .only
            .iter()
            .all(|name| MEASURES.iter().any(|m| m.name == name)),
        "measures: {}",
        names()
    );
    Ok(options)
}

fn names() -> String {
    MEASURES
        .iter()
        .map(|m| m.name)
        .collect::<Vec<_>>()
        .join(" ")
}

fn bench(options: &Options) -> Result<Report> {
    let mut report = Report::default();
    let mut rivals = vec![Shim::Stock];
    if options.rust_runc {
        rivals.push(Shim::RustRunc);
    }
    for version in &options.versions {
        let containerd = Containerd::start(*version)?;
        for measure in MEASURES
            .iter()
            .filter(|m| options.only.is_empty() || options.only.iter().any(|o| o == m.name))
        {
            for rival in &rivals {
                eprintln!(
                    "containerd {}: {} against {rival:?} ...",
                    version.label(),
                    measure.name
                );
                let mut pairs = Pairs::default();
                for round in 0..options.rounds.unwrap_or(measure.rounds) {
                    // Who goes first changes, so that a drift of the machine favours nobody.
                    let mut order = [Shim::Ours, *rival];
                    if round % 2 == 1 {
                        order.reverse();
                    }
                    let mut figures = [0.0; 2];
                    for shim in order {
                        let node = Node {
                            containerd: &containerd,
                            shim,
                        };
                        let figure = (measure.run)(&node)
                            .with_context(|| format!("{} with {shim:?}", measure.name))?;
                        figures[usize::from(shim != Shim::Ours)] = figure;
                    }
                    pairs.push(figures[0], figures[1]);
                }
                report.add(version.label(), measure, &format!("{rival:?}"), pairs);
            }
        }
    }
    Ok(report)
}

fn main() -> ExitCode {
    let run = || -> Result<()> {
        let options = options()?;
        let report = bench(&options)?;
        print!(
            "{}",
            if options.json {
                report.json()
            } else {
                report.table()
            }
        );
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
