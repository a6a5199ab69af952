//! `a3sbox-fuzz [--seconds N | --inputs N] [--seed N] TARGET|all`; see `hack/fuzz`.

use std::process::ExitCode;
use std::time::Duration;

use a3sbox_fuzz::{Limit, TARGETS, run};

const DEFAULT_SECONDS: u64 = 60;

fn main() -> ExitCode {
    let mut limit = Limit::For(Duration::from_secs(DEFAULT_SECONDS));
    let mut seed = 1;
    let mut wanted = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
        match argument.as_str() {
            "--seconds" => match number() {
                Some(seconds) => limit = Limit::For(Duration::from_secs(seconds)),
                None => return usage(),
            },
            "--inputs" => match number() {
                Some(inputs) => limit = Limit::Inputs(inputs),
                None => return usage(),
            },
            "--seed" => match number() {
                Some(number) => seed = number,
                None => return usage(),
            },
            name => wanted = Some(name.to_owned()),
        }
    }
    let chosen: Vec<_> = TARGETS
        .iter()
        .filter(|target| {
            wanted
                .as_deref()
                .is_some_and(|name| name == "all" || name == target.name)
        })
        .collect();
    if chosen.is_empty() {
        return usage();
    }
    for target in chosen {
        let report = run(target, limit, seed);
        println!(
            "{}: {} inputs in {:.1} s",
            target.name,
            report.inputs,
            report.took.as_secs_f64()
        );
        if let Some(input) = report.failure {
            let path = std::env::temp_dir().join(format!("a3sbox-fuzz-{}.input", target.name));
            match std::fs::write(&path, &input) {
                Ok(()) => eprintln!("{}: panicked; input in {}", target.name, path.display()),
                Err(error) => eprintln!("{}: panicked on {input:?} ({error})", target.name),
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!(
        "usage: a3sbox-fuzz [--seconds N | --inputs N] [--seed N] {}|all",
        names.join("|")
    );
    ExitCode::from(2)
}
