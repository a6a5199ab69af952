//! Fifos as a client of the Task API uses them.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;

pub fn make_fifo(path: &Path) -> Result<()> {
    nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o600))
        .with_context(|| format!("mkfifo {}", path.display()))
}

/// A reading end; opening it does not wait for a writer.
pub fn open_reader(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    Ok(file)
}

/// A writing end; waits for nobody, a reader must be there already.
pub fn open_writer(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

/// Reads until every writer is gone; waiting longer than `limit` is an error.
///
/// A fifo without a writer yet reads as ended: call it when the process is known to have the other end.
pub fn drain_to_end(file: &mut File, limit: Duration) -> Result<Vec<u8>> {
    let began = Instant::now();
    let mut all = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                if began.elapsed() > limit {
                    bail!(
                        "the fifo has {} bytes and no end after {limit:?}",
                        all.len()
                    );
                }
                std::thread::sleep(super::POLL_INTERVAL / 10);
            }
            Err(e) => return Err(e.into()),
        }
    }
}
