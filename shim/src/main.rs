//! `containerd-shim-a3sbox-v2`: the process that containerd runs for each pod.
//!
//! ```text
//! start  ─► bootstrap ─► (lock, socket) ─► serve     one server per pod
//! serve  ─► server ─► task/<verb> ─► convert ─► task face of the execution manager
//! delete ─► cleanup                                  after a server died
//! -info, -v                                          answers for people and containerd 2
//! ```

mod args;
mod assembly;
mod bootstrap;
mod bundle;
mod cgroup;
mod cleanup;
mod convert;
mod engine;
mod events;
mod grouping;
mod info;
mod lifecycle;
mod logging;
mod options;
mod policy;
mod server;
mod sys;
mod task;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use args::{Action, Args};

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == bundle::HOLD_ARGUMENT)
    {
        return finish(bundle::hold().map_err(|error| error.to_string()));
    }
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprint!("{}: {error}\n{}", info::RUNTIME_NAME, args::USAGE);
            return ExitCode::from(2);
        }
    };
    finish(run(&args))
}

fn finish(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", info::RUNTIME_NAME);
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    match args.action {
        Action::Help => print(args::USAGE.as_bytes()),
        Action::Version => print(version().as_bytes()),
        Action::Info => print(&info::info(&input()?)?),
        Action::Start => {
            let bundle = bundle_folder(args)?;
            let environment = bootstrap::Environment::of_process();
            let call = bootstrap::StartCall::read(args, &bundle, &input()?, &environment);
            let address = bootstrap::launch(&call).map_err(|error| logging::chain(&error))?;
            print(&call.answer(&address))
        }
        Action::Delete => {
            // containerd logs what it finds on standard error.
            if let Ok(stderr) = io::stderr().as_fd().try_clone_to_owned() {
                logging::install(File::from(stderr), args.debug);
            }
            let cwd = std::env::current_dir().unwrap_or_default();
            let answer = cleanup::delete(args, &cwd).map_err(|error| error.to_string())?;
            print(&answer)
        }
        Action::Serve => server::serve(args).map_err(|error| logging::chain(&error)),
    }
}

/// The folder that `start` was run in, unless another is named.
fn bundle_folder(args: &Args) -> Result<std::path::PathBuf, String> {
    match &args.bundle {
        Some(bundle) => Ok(bundle.clone()),
        None => std::env::current_dir().map_err(|error| format!("no working folder: {error}")),
    }
}

/// What the caller wrote to standard input; a person at a terminal is not waited for.
fn input() -> Result<Vec<u8>, String> {
    let stdin = io::stdin();
    let mut bytes = Vec::new();
    if stdin.is_terminal() {
        return Ok(bytes);
    }
    stdin
        .take(bootstrap::INPUT_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("failed to read stdin: {error}"))?;
    if bytes.len() as u64 > bootstrap::INPUT_MAX_BYTES {
        return Err(format!(
            "input is larger than {} bytes",
            bootstrap::INPUT_MAX_BYTES
        ));
    }
    Ok(bytes)
}

fn print(bytes: &[u8]) -> Result<(), String> {
    let mut stdout = io::stdout();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("failed to write stdout: {error}"))
}

fn version() -> String {
    let name = std::env::args_os()
        .next()
        .and_then(|path| {
            Some(
                std::path::Path::new(&path)
                    .file_name()?
                    .display()
                    .to_string(),
            )
        })
        .unwrap_or_default();
    format!("{name}:\n  Version:  {}\n\n", env!("CARGO_PKG_VERSION"))
}
