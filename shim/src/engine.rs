//! The two things that the shim asks of an engine binary itself: what it can do (`-info`), and to take a
//! container away whose records cannot be used. Everything else goes through the runtime service.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Longest time for one call.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between looks whether it has ended.
const CALL_INTERVAL: Duration = Duration::from_millis(2);
/// Largest output that is read.
const OUTPUT_MAX_BYTES: u64 = 4 << 20;

/// What `features` prints; `None` when the engine has no such command.
pub(crate) fn features(binary: &str) -> Option<Vec<u8>> {
    let output = call(Command::new(binary).arg("features")).ok()?;
    serde_json::from_slice::<serde::de::IgnoredAny>(&output).ok()?;
    Some(output)
}

/// Deletes by force each container that the engine made from this bundle.
pub(crate) fn delete_by_bundle(
    binary: &str,
    root: &Path,
    systemd_cgroup: bool,
    bundle: &Path,
) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Listed {
        id: String,
        bundle: std::path::PathBuf,
    }
    let engine = || {
        let mut command = Command::new(binary);
        command.arg("--root").arg(root);
        if systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        command
    };
    let list = call(engine().args(["list", "--format", "json"]))?;
    // An empty list is the word null.
    let listed: Option<Vec<Listed>> =
        serde_json::from_slice(&list).map_err(|error| error.to_string())?;
    let wanted = bundle.canonicalize().unwrap_or_else(|_| bundle.to_owned());
    for container in listed.unwrap_or_default() {
        if container.bundle == wanted || container.bundle == bundle {
            call(engine().args(["delete", "--force", &container.id]))?;
        }
    }
    Ok(())
}

fn call(command: &mut Command) -> Result<Vec<u8>, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let mut pipe = child.stdout.take();
    let reader = std::thread::Builder::new()
        .name("a3sbox-engine-output".to_owned())
        .spawn(move || {
            let mut output = Vec::new();
            if let Some(pipe) = &mut pipe {
                // What could not be read is missing from the JSON, which then does not parse.
                let _ = pipe.take(OUTPUT_MAX_BYTES).read_to_end(&mut output);
            }
            output
        })
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + CALL_DEADLINE;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("the engine did not answer in time".to_owned());
            }
            None => std::thread::sleep(CALL_INTERVAL),
        }
    };
    let output = reader.join().unwrap_or_default();
    if status.success() {
        Ok(output)
    } else {
        Err(format!("the engine failed: {status}"))
    }
}
